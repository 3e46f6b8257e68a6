//! A hash with the owner and its count, a watchdog that renews it each third of the lease, and a fair queue whose first
//! waiter gets a message when the lock is released.
//!
//! Source: Redisson's `RFairLock`, as its documentation describes it. This script stands for it, because its jar is in no
//! package of Debian. Its `RLock` and `RedissonMultiLock` have no row. The fair lock promises that a live owner keeps the
//! lock for as long as it works, that a crashed one blocks the others for one lease only, and the order of arrival. A
//! waiter that does not come back loses its position in the queue after one lease here, after minutes there.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{RedisResult, Script};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redis_set_nx::redis;
use super::{LEASE, Pause, Place, unique, woken};
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

const RENEW: &str =
    "return redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 and redis.call('PEXPIRE', KEYS[1], ARGV[1]) or 0";

/// Returns nothing if the lock is not ours.
const UNLOCK: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then return redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
redis.call('DEL', KEYS[1])
local first = redis.call('LINDEX', KEYS[1] .. ':queue', 0)
if first then redis.call('PUBLISH', KEYS[1] .. ':' .. first, 'released') end
return 1
";

struct Watchdog {
    connection: MultiplexedConnection,
    messages: Mutex<PubSub>,
    key: String,
    owner: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let address = place.address()?;
        let client = redis::Client::open((address.ip().to_string(), address.port()))?;
        let mut messages = client.get_async_pubsub().await?;
        let owner = unique();
        messages.subscribe(format!("{}:{owner}", place.lock)).await?;
        let lock =
            Watchdog { connection: redis(&place).await?, messages: Mutex::new(messages), key: place.lock, owner };
        Ok(Arc::new(Textbook(lock)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

impl Watchdog {
    async fn run<T: redis::FromRedisValue>(&self, script: &Script) -> RedisResult<T> {
        let lease = LEASE.as_millis() as u64;
        script.key(&self.key).arg(lease).arg(&self.owner).invoke_async(&mut self.connection.clone()).await
    }
}

#[async_trait]
impl Recipe for Watchdog {
    async fn acquire(&self) -> Outcome<Grant> {
        let mut messages = self.messages.lock().await;
        let mut stream = messages.on_message();
        let script = Script::new(LOCK);
        loop {
            let wait: i64 = self.run(&script).await?;
            if wait < 0 {
                break;
            }
            let wait = std::time::Duration::from_millis(wait.unsigned_abs());
            if let Ok(None) = timeout(wait, stream.next()).await {
                return Err("the connection for messages has ended".into());
            }
            woken();
        }
        let (connection, key, owner) = (self.connection.clone(), self.key.clone(), self.owner.clone());
        let lock = |key, owner, connection| (key, owner, connection);
        let (key2, owner2, mut connection2) = lock(key.clone(), owner.clone(), connection.clone());
        let renewal = tokio::spawn(async move {
            let script = Script::new(RENEW);
            let lease = LEASE.as_millis() as u64;
            loop {
                sleep(LEASE / 3).await;
                let renewed = script.key(&key2).arg(lease).arg(&owner2).invoke_async(&mut connection2).await;
                // It ends silently when the lock is lost.
                if renewed != Ok(1) {
                    return;
                }
            }
        });
        Ok(Grant::new(async move {
            renewal.abort();
            let (script, lease) = (Script::new(UNLOCK), LEASE.as_millis() as u64);
            let mut connection = connection;
            let released: Option<i64> =
                script.key(key).arg(lease).arg(owner).invoke_async(&mut connection).await?;
            released.map(drop).ok_or_else(|| "the lock is not held by this owner".into())
        }))
    }
}
