//! RedLock: the same key on a majority of five servers, for what is left of the lease after that.
//!
//! Source: the documentation of Redis, "Distributed Locks with Redis". It promises exclusion while clocks run alike and
//! restarted servers stay away for one lease, and that a client that minds the validity time stops in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::redis_member::Member;
use super::{LEASE, POLL, Pause, Place, unique, woken};
use crate::Outcome;

const UNLOCK: &str = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
/// For one server: small beside the lease.
const LIMIT: Duration = Duration::from_millis(50);

impl Member {
    async fn set(&self, key: &str, owner: &str) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(owner).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        let set = |mut connection: MultiplexedConnection| async move {
            set.query_async::<Option<String>>(&mut connection).await
        };
        self.run(LIMIT, set).await.is_ok_and(|answer| answer.is_some())
    }

    async fn unset(&self, key: &str, owner: &str) -> bool {
        let unset = |mut connection: MultiplexedConnection| async move {
            Script::new(UNLOCK).key(key).arg(owner).invoke_async::<u32>(&mut connection).await
        };
        self.run(LIMIT, unset).await.is_ok_and(|deleted| deleted == 1)
    }
}

struct RedLock {
    members: Arc<Vec<Member>>,
    key: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let members = place.addresses.iter().map(|address| Member::at(*address));
        let members = Arc::new(members.collect::<Outcome<Vec<_>>>()?);
        Ok(Arc::new(Textbook(RedLock { members, key: place.lock })) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for RedLock {
    async fn acquire(&self) -> Outcome<Grant> {
        loop {
            let (owner, began) = (unique(), Instant::now());
            let set = join_all(self.members.iter().map(|member| member.set(&self.key, &owner))).await;
            // A hundredth of the lease, and two milliseconds, for clocks that run apart.
            let drift = LEASE / 100 + Duration::from_millis(2);
            let end = began + LEASE - drift;
            let has_majority = set.iter().filter(|set| **set).count() > self.members.len() / 2;
            if has_majority && Instant::now() < end {
                let (members, key) = (self.members.clone(), self.key.clone());
                let unlock = async move {
                    let unset = join_all(members.iter().map(|member| member.unset(&key, &owner))).await;
                    let of_majority = unset.iter().filter(|unset| **unset).count() > members.len() / 2;
                    if of_majority { Ok(()) } else { Err("the keys have expired".into()) }
                };
                return Ok(Grant::new(unlock).held_while(move || Instant::now() < end));
            }
            join_all(self.members.iter().map(|member| member.unset(&self.key, &owner))).await;
            // Contenders that split the majority must not meet again.
            sleep(POLL.mul_f64(0.5 + fastrand::f64())).await;
            woken();
        }
    }
}
