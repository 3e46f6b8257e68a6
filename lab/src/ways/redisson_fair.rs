//! Redisson's fair lock: a queue beside the hash, whose first waiter gets a message when the lock is released.
//!
//! Source: Redisson's `RFairLock`, as its documentation describes it; a script stands for it. It promises that a live
//! owner keeps the lock for as long as it works, that a crashed one blocks the others for one lease only, and the order of
//! arrival. A waiter that does not come back loses its position in the queue after one lease here, after minutes there.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::PubSub;
use tokio::sync::Mutex;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redisson::{Contender, message};
use super::{Pause, Place};
use crate::Outcome;

/// Returns -1 if the lock is ours, and otherwise after how many milliseconds to look again at the latest.
const LOCK: &str = "
local lock, queue, ends = KEYS[1], KEYS[1] .. ':queue', KEYS[1] .. ':ends'
local lease, me = tonumber(ARGV[1]), ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local first = redis.call('LINDEX', queue, 0)
while first and tonumber(redis.call('ZSCORE', ends, first) or 0) < now do
  redis.call('LPOP', queue)
  redis.call('ZREM', ends, first)
  first = redis.call('LINDEX', queue, 0)
end
local mine = redis.call('HEXISTS', lock, me) == 1
if mine or (redis.call('EXISTS', lock) == 0 and (not first or first == me)) then
  if first == me then
    redis.call('LPOP', queue)
    redis.call('ZREM', ends, me)
  end
  redis.call('HINCRBY', lock, me, 1)
  redis.call('PEXPIRE', lock, lease)
  return -1
end
if not redis.call('ZSCORE', ends, me) then redis.call('RPUSH', queue, me) end
redis.call('ZADD', ends, now + lease, me)
return math.max(1, math.min(redis.call('PTTL', lock), lease / 2))
";

/// Returns nothing if the lock is not ours.
const UNLOCK: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then return redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
redis.call('DEL', KEYS[1])
local first = redis.call('LINDEX', KEYS[1] .. ':queue', 0)
if first then redis.call('PUBLISH', KEYS[1] .. ':' .. first, 'released') end
return 1
";

struct Fair {
    contender: Contender,
    messages: Mutex<PubSub>,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let contender = Contender::on_each(&place)?.pop().ok_or("no server")?;
        let messages = contender.listen(&format!("{}:{}", contender.key, contender.owner)).await?;
        Ok(Arc::new(Textbook(Fair { contender, messages: Mutex::new(messages) })) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for Fair {
    async fn acquire(&self) -> Outcome<Grant> {
        let mut messages = self.messages.lock().await;
        loop {
            let wait: i64 = self.contender.run(LOCK).await?;
            if wait < 0 {
                return Ok(self.contender.hold(UNLOCK));
            }
            message(&mut messages, Duration::from_millis(wait.unsigned_abs())).await?;
        }
    }
}
