//! Owns `zklock wait`: it waits until a lock is free, and joins no queue.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use zookeeper_recipes::Session;

use crate::acquire::Kind;
use crate::changes::Changes;
use crate::cli::Wait;
use crate::connect::{close, connect};
use crate::exit::{Failure, NO};
use crate::nested::refuse_own;
use crate::queue::{Queue, report_busy};

pub(crate) async fn wait(wait: &Wait) -> Result<u8, Failure> {
    let began = Instant::now();
    let limit = wait.wait.filter(|limit| !limit.is_zero());
    let session = connect(&wait.connection, limit).await?;
    let is_free = match limit {
        None => until_free(wait, &session).await,
        Some(limit) => {
            let left = limit.saturating_sub(began.elapsed());
            timeout(left, until_free(wait, &session)).await.unwrap_or(Ok(false))
        }
    };
    let is_free = is_free?;
    if !is_free {
        report_busy(&session, &wait.path, wait.slots).await;
    }
    close(&session).await;
    Ok(if is_free { 0 } else { NO })
}

/// Waits until the lock is free; `false` at once if we are not to wait.
async fn until_free(wait: &Wait, session: &Session) -> Result<bool, Failure> {
    if wait.wait.is_none() {
        refuse_own(session, &wait.path, wait.slots.map_or(Kind::Mutex, Kind::Slot)).await?;
    }
    let mut changes = Changes::of(session, &wait.path);
    loop {
        changes.arm().await;
        let queue = Queue::look(session, &wait.path, wait.slots).await?;
        match (queue.is_free(wait.slots), wait.wait) {
            (false, Some(Duration::ZERO)) => return Ok(false),
            (true, _) => return Ok(true),
            (false, _) => changes.next().await,
        }
    }
}
