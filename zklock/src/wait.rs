//! Owns `zklock wait`: it waits until a lock is free, and joins no queue.

use std::time::Duration;

use tokio::time::timeout;

use crate::changes::Changes;
use crate::cli::Wait;
use crate::connect::{close, connect};
use crate::exit::{Failure, NO};
use crate::messages::report;
use crate::queue::Queue;

pub(crate) async fn wait(wait: &Wait) -> Result<u8, Failure> {
    let waited = until_free(wait);
    match wait.wait {
        None => waited.await,
        Some(limit) if limit.is_zero() => waited.await,
        Some(limit) => match timeout(limit, waited).await {
            Ok(waited) => waited,
            Err(_) => Ok(busy(wait)),
        },
    }
}

async fn until_free(wait: &Wait) -> Result<u8, Failure> {
    let session = connect(&wait.connection, wait.wait.filter(|limit| !limit.is_zero())).await?;
    let mut changes = Changes::of(&session, &wait.path);
    let is_free = loop {
        changes.arm().await;
        let queue = Queue::look(&session, &wait.path, wait.slots).await?;
        match (queue.is_free(wait.slots), wait.wait) {
            (false, Some(Duration::ZERO)) => break false,
            (true, _) => break true,
            (false, _) => changes.next().await,
        }
    };
    close(&session).await;
    Ok(if is_free { 0 } else { busy(wait) })
}

fn busy(wait: &Wait) -> u8 {
    report(format_args!("{} is busy", wait.path));
    NO
}
