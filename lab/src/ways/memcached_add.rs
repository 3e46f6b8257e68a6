//! `add`, which fails if the key exists, with an expiry, and `delete`.
//!
//! Source: articles on locks in Memcached, and the pages of frameworks whose cache lock uses it. It promises that a crashed
//! owner blocks the others for one lease only. The delete does not ask for an owner, and a full cache may evict the key.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{LEASE, Pause, Place, poll};
use crate::Outcome;
use crate::servers::memcached::Client;

struct Add {
    // A command and its answer, one pair at a time.
    client: Arc<Mutex<Client>>,
    key: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let client = Arc::new(Mutex::new(Client::connect(place.address()?).await?));
        Ok(Arc::new(Textbook(Add { client, key: place.lock })) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for Add {
    async fn acquire(&self) -> Outcome<Grant> {
        let add = format!("add {} 0 {} 6\r\nlocked\r\n", self.key, LEASE.as_secs());
        loop {
            match self.client.lock().await.ask(&add).await?.as_str() {
                "STORED" => break,
                "NOT_STORED" => (),
                other => return Err(other.into()),
            }
            poll().await;
        }
        let (client, delete) = (self.client.clone(), format!("delete {}\r\n", self.key));
        Ok(Grant::new(async move {
            match client.lock().await.ask(&delete).await?.as_str() {
                "DELETED" => Ok(()),
                _ => Err("the key has expired".into()),
            }
        }))
    }
}
