//! Redisson's plain lock: all who wait get a message when the lock is released, and the fastest of them has it.
//!
//! Source: Redisson's `RLock`, as its documentation describes it; a script stands for it. It promises that a live owner
//! keeps the lock for as long as it works, and that a crashed one blocks the others for one lease only. It promises no
//! order.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redisson::{Contender, message};
use super::{Pause, Place};
use crate::Outcome;

/// Returns -1 if the lock is ours, and otherwise for how many milliseconds it is another owner's at most.
const LOCK: &str = "
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return math.max(0, redis.call('PTTL', KEYS[1]))
end
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return -1
";

/// Returns nothing if the lock is not ours.
const UNLOCK: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then return redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[1] .. ':released', '')
return 1
";

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let contender = Contender::on_each(&place)?.pop().ok_or("no server")?;
        Ok(Arc::new(Textbook(contender)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for Contender {
    async fn acquire(&self) -> Outcome<Grant> {
        if self.run::<i64>(LOCK).await? < 0 {
            return Ok(self.hold(UNLOCK));
        }
        // Only a waiter listens. What was published before is not heard, so it looks again first.
        let mut messages = self.listen(&format!("{}:released", self.key)).await?;
        loop {
            let wait: i64 = self.run(LOCK).await?;
            if wait < 0 {
                return Ok(self.hold(UNLOCK));
            }
            message(&mut messages, Duration::from_millis(wait.unsigned_abs())).await?;
        }
    }
}
