//! One ephemeral node: the contender that creates it holds the lock, and all others watch it.
//!
//! Source: the simplest recipe, which ZooKeeper's own page on recipes warns of: a release wakes every waiter (the herd).
//! It promises exclusion among live sessions, and that a crashed holder blocks the others for one session timeout.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_client::{Acls, Client, CreateMode, Error};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{LEASE, Pause, Place, woken};
use crate::Outcome;

struct OneNode {
    client: Client,
    path: String,
}

/// Connects a contender, which has a session of its own.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let lock = OneNode { client: client(&place).await?, path: format!("/{}", place.lock) };
        Ok(Arc::new(Textbook(lock)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

/// A session of the bare client.
pub(super) async fn client(place: &Place) -> Outcome<Client> {
    Ok(Client::connector().with_session_timeout(LEASE).connect(&place.address()?.to_string()).await?)
}

#[async_trait]
impl Recipe for OneNode {
    async fn acquire(&self) -> Outcome<Grant> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        loop {
            match self.client.create(&self.path, b"", &options).await {
                Ok(_) => break,
                Err(Error::NodeExists) => {}
                Err(error) => return Err(error.into()),
            }
            let (stat, watcher) = self.client.check_and_watch_stat(&self.path).await?;
            if stat.is_some() {
                watcher.changed().await;
                woken();
            }
        }
        let (client, path) = (self.client.clone(), self.path.clone());
        Ok(Grant::new(async move { Ok(client.delete(&path, None).await?) }))
    }
}
