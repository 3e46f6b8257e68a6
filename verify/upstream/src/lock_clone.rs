//! `OwnedLockClient` can be cloned, and dropping a clone releases the lock.

use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::{Acls, LockPrefix};

use crate::support::{Outcome, Result, UNHURRIED, block_on, connect, create_folder};

const LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(hosts: &str) -> Result<Outcome> {
    block_on(async {
        let (client, other) = (connect(hosts, UNHURRIED).await?, connect(hosts, UNHURRIED).await?);
        let folder = create_folder(&client, "lock-clone").await?;
        let prefix = || LockPrefix::new_curator(&folder, "lock-");
        let lock = client.lock(prefix()?, b"", Acls::anyone_all()).await?.into_owned();
        drop(lock.clone());
        // Would wait for ever if the lock were still held.
        let second = timeout(LIMIT, other.lock(prefix()?, b"", Acls::anyone_all())).await;
        println!(
            "a clone of the first lock is dropped; the second is {}",
            if second.is_ok() { "granted" } else { "not" }
        );
        println!(
            "the first: {}; its node is there: {}",
            lock.lock_path(),
            client.check_stat(lock.lock_path()).await?.is_some()
        );
        Ok(Outcome::of(second.is_ok()))
    })
}
