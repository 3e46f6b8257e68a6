//! `SETNX key expiry`, where the value is the time at which the lock ends; those that find it over compete by `GETSET`.
//!
//! Source: the documentation of Redis' `SETNX` command, "Design pattern: Locking with SETNX". It promises that a crashed
//! owner blocks the others until its time only, by the clocks of the clients, which must agree.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redis_set_nx::redis;
use super::{LEASE, Pause, Place, poll};
use crate::Outcome;

struct GetSet {
    connection: MultiplexedConnection,
    key: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let lock = GetSet { connection: redis(&place).await?, key: place.lock };
        Ok(Arc::new(Textbook(lock)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

/// Milliseconds by this client's clock.
fn now() -> Outcome<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64)
}

#[async_trait]
impl Recipe for GetSet {
    async fn acquire(&self) -> Outcome<Grant> {
        let (mut connection, key) = (self.connection.clone(), self.key.clone());
        let end = loop {
            let end = now()? + LEASE.as_millis() as u64 + 1;
            if redis::cmd("SETNX").arg(&key).arg(end).query_async::<u32>(&mut connection).await? == 1 {
                break end;
            }
            let present: Option<u64> = redis::cmd("GET").arg(&key).query_async(&mut connection).await?;
            if present.is_some_and(|present| present < now().unwrap_or(0)) {
                let before: Option<u64> =
                    redis::cmd("GETSET").arg(&key).arg(end).query_async(&mut connection).await?;
                // Of all that found it over, the first gets the old value back.
                if before == present {
                    break end;
                }
            }
            poll().await;
        };
        Ok(Grant::new(async move {
            if now()? >= end {
                return Err("its time is over".into());
            }
            Ok(redis::cmd("DEL").arg(key).query_async(&mut connection).await?)
        }))
    }
}
