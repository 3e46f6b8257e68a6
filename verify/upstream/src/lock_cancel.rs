//! `Client::lock` leaves its node when its future is dropped while the node is created.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;
use zookeeper_client::{Acls, LockPrefix};

use crate::support::{Outcome, Result, UNHURRIED, block_on, connect, create_folder};

const ROUNDS: usize = 20;

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let client = connect(hosts, UNHURRIED).await?;
        let folder = create_folder(&client, "lock-cancel").await?;
        for _ in 0..ROUNDS {
            // Polled once, and dropped.
            let lock = client.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", Acls::anyone_all());
            if lock.now_or_never().is_some() {
                return Err("it was granted without an answer".into());
            }
        }
        // The client cleans up in the background.
        let mut left = client.list_children(&folder).await?;
        for _ in 0..20 {
            if left.is_empty() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
            left = client.list_children(&folder).await?;
        }
        println!("{ROUNDS} futures were polled once and dropped; a second later {} nodes are left", left.len());
        Ok(Outcome::of(!left.is_empty()))
    })
}
