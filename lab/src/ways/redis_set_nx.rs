//! `SET key value NX PX lease`, and a script that deletes the key if its value is still ours. No renewal.
//!
//! Source: the documentation of Redis' `SET` command, "Patterns". It promises that only the owner deletes the key, and
//! that a crashed owner blocks the others for one lease only. It does not promise that the owner is done by then.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::Script;
use redis::aio::MultiplexedConnection;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{LEASE, Pause, Place, poll, unique};
use crate::Outcome;

const UNLOCK: &str = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

struct SetNx {
    connection: MultiplexedConnection,
    key: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let lock = SetNx { connection: redis(&place).await?, key: place.lock };
        Ok(Arc::new(Textbook(lock)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

/// A connection to the first server.
pub(super) async fn redis(place: &Place) -> Outcome<MultiplexedConnection> {
    let address = place.address()?;
    let client = redis::Client::open((address.ip().to_string(), address.port()))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

#[async_trait]
impl Recipe for SetNx {
    async fn acquire(&self) -> Outcome<Grant> {
        let (mut connection, owner) = (self.connection.clone(), unique());
        let mut set = redis::cmd("SET");
        set.arg(&self.key).arg(&owner).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        while set.query_async::<Option<String>>(&mut connection).await?.is_none() {
            poll().await;
        }
        let key = self.key.clone();
        Ok(Grant::new(async move {
            let deleted: u32 = Script::new(UNLOCK).key(key).arg(owner).invoke_async(&mut connection).await?;
            if deleted == 1 { Ok(()) } else { Err("the key has expired".into()) }
        }))
    }
}
