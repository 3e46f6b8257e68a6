//! Tair's `put`, which fails if the key exists, without and with an expiry, and `invalid`, which deletes it. Redis
//! stands for Tair here: `SET key value NX`, with or without `PX`, and `DEL`.
//!
//! Source: articles on locks in Tair, Alibaba's cache. Without an expiry it promises exclusion while every owner
//! unlocks; with one, that a crashed owner blocks the others for one lease only. The unlock does not ask for an owner.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redis_set_nx::redis;
use super::{LEASE, Pause, Place, poll};
use crate::Outcome;

struct Put {
    connection: MultiplexedConnection,
    key: String,
    expiry: Option<Duration>,
}

/// Connects a contender whose lock has no expiry.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    connect_with(place, None).boxed()
}

/// Connects a contender whose lock expires.
pub fn connect_expiring(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    connect_with(place, Some(LEASE)).boxed()
}

async fn connect_with(place: Place, expiry: Option<Duration>) -> Outcome<Arc<dyn DistributedLock>> {
    Ok(Arc::new(Textbook(Put { connection: redis(&place).await?, key: place.lock, expiry })))
}

#[async_trait]
impl Recipe for Put {
    async fn acquire(&self) -> Outcome<Grant> {
        let (mut connection, key) = (self.connection.clone(), self.key.clone());
        let mut put = redis::cmd("SET");
        put.arg(&key).arg("locked").arg("NX");
        if let Some(expiry) = self.expiry {
            put.arg("PX").arg(expiry.as_millis() as u64);
        }
        while put.query_async::<Option<String>>(&mut connection).await?.is_none() {
            poll().await;
        }
        Ok(Grant::new(async move { Ok(redis::cmd("DEL").arg(key).query_async(&mut connection).await?) }))
    }
}
