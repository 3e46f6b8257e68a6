//! Sequential ephemeral nodes: the lowest holds the lock, and each contender watches its predecessor.
//!
//! Source: ZooKeeper's page on recipes, "Locks", without its later paragraph on recoverable errors. It promises
//! exclusion among live sessions, the order of arrival, and one wake-up for each release. It uses no token, and after a
//! lost answer or a cancelled wait it does not look for its own node.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::zookeeper_one_node::client;
use super::{Pause, Place, woken};
use crate::Outcome;

struct Sequential {
    client: Client,
    folder: String,
}

/// Connects a contender, which has a session of its own.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let (client, folder) = (client(&place).await?, format!("/{}", place.lock));
        client.mkdir(&folder, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(Arc::new(Textbook(Sequential { client, folder })) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for Sequential {
    async fn acquire(&self) -> Outcome<Grant> {
        let Self { client, folder } = self;
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = client.create(&format!("{folder}/lock-"), b"", &options).await?;
        let node = format!("lock-{sequence}");
        loop {
            let mut nodes = client.list_children(folder).await?;
            nodes.sort();
            let position = nodes.iter().position(|other| *other == node).ok_or("our node is gone")?;
            let Some(predecessor) = position.checked_sub(1) else { break };
            let (stat, watcher) = client.check_and_watch_stat(&format!("{folder}/{}", nodes[predecessor])).await?;
            if stat.is_some() {
                watcher.changed().await;
                woken();
            }
        }
        let (client, path) = (client.clone(), format!("{folder}/{node}"));
        Ok(Grant::new(async move { Ok(client.delete(&path, None).await?) }))
    }
}
