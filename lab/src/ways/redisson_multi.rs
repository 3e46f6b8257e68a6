//! Redisson's multi-lock: plain locks on several servers, one after the other, of which all must be held.
//!
//! Source: Redisson's `RedissonMultiLock`, as its documentation describes it; a script stands for it. It promises what its
//! locks promise, as one. There is no majority, and no validity time is computed: each lock has its watchdog. A contender
//! that has not all of them in time releases those that it has, and begins again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::{Instant, timeout_at};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redisson::Contender;
use super::{Pause, Place};
use crate::Outcome;

/// How long an attempt may take for each server.
const LIMIT: Duration = Duration::from_millis(1_500);

struct Multi(Vec<Contender>);

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move { Ok(Arc::new(Textbook(Multi(Contender::on_each(&place)?))) as Arc<dyn DistributedLock>) }.boxed()
}

#[async_trait]
impl Recipe for Multi {
    async fn acquire(&self) -> Outcome<Grant> {
        loop {
            let limit = LIMIT * u32::try_from(self.0.len())?;
            let deadline = Instant::now() + limit;
            let mut grants = Vec::new();
            let mut failed = Ok(());
            for contender in &self.0 {
                match timeout_at(deadline, contender.acquire()).await {
                    Ok(Ok(grant)) => grants.push(grant),
                    Ok(Err(error)) => {
                        failed = Err(error);
                        break;
                    }
                    Err(_) => break,
                }
            }
            if grants.len() == self.0.len() {
                return Ok(Grant::new(release(grants)));
            }
            // A lock that cannot be released ends with its lease.
            let _ = release(grants).await;
            failed?;
        }
    }
}

/// Releases all of them, whatever comes of each; returns the first error.
async fn release(grants: Vec<Grant>) -> Outcome {
    join_all(grants.into_iter().map(Grant::unlock)).await.into_iter().collect()
}
