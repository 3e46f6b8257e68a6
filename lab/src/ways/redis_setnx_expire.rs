//! `SETNX key value`, then `EXPIRE key seconds`, then `DEL key`.
//!
//! Source: countless articles from before Redis 2.6.12, which gave `SET` its options. It promises that a crashed owner
//! blocks the others for one lease only, and does not keep it: between the two commands the key has no expiry.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redis_set_nx::redis;
use super::{LEASE, Pause, Place, poll};
use crate::Outcome;

struct SetNxThenExpire {
    connection: MultiplexedConnection,
    key: String,
    gap: Pause,
}

/// Connects a contender.
pub fn connect(place: Place, gap: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let lock = SetNxThenExpire { connection: redis(&place).await?, key: place.lock, gap };
        Ok(Arc::new(Textbook(lock)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for SetNxThenExpire {
    async fn acquire(&self) -> Outcome<Grant> {
        let (mut connection, key) = (self.connection.clone(), self.key.clone());
        while redis::cmd("SETNX").arg(&key).arg("locked").query_async::<u32>(&mut connection).await? == 0 {
            poll().await;
        }
        self.gap.here().await;
        let () = redis::cmd("EXPIRE").arg(&key).arg(LEASE.as_secs()).query_async(&mut connection).await?;
        // By whomever it is held now.
        Ok(Grant::new(async move { Ok(redis::cmd("DEL").arg(key).query_async(&mut connection).await?) }))
    }
}
