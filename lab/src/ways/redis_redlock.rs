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
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{LEASE, POLL, Pause, Place, unique, woken};
use crate::Outcome;

const UNLOCK: &str = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
/// For one server: small beside the lease.
const LIMIT: Duration = Duration::from_millis(50);

/// A server, and the connection to it while there is one.
struct Member {
    client: redis::Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Member {
    /// Runs the script; `None` if the server does not answer in time.
    async fn run(&self, script: impl AsyncFnOnce(&mut MultiplexedConnection) -> Option<bool>) -> Option<bool> {
        let mut connection = self.connection.lock().await;
        if connection.is_none() {
            *connection = timeout(LIMIT, self.client.get_multiplexed_async_connection()).await.ok()?.ok();
        }
        let answer = timeout(LIMIT, script(connection.as_mut()?)).await.ok().flatten();
        if answer.is_none() {
            *connection = None;
        }
        answer
    }

    async fn set(&self, key: &str, owner: &str) -> bool {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(owner).arg("NX").arg("PX").arg(LEASE.as_millis() as u64);
        let set = async |connection: &mut MultiplexedConnection| {
            set.query_async::<Option<String>>(connection).await.ok().map(|answer| answer.is_some())
        };
        self.run(set).await == Some(true)
    }

    async fn unset(&self, key: &str, owner: &str) -> bool {
        let unset = async |connection: &mut MultiplexedConnection| {
            let script = Script::new(UNLOCK);
            let deleted = script.key(key).arg(owner).invoke_async::<u32>(connection).await;
            deleted.ok().map(|deleted| deleted == 1)
        };
        self.run(unset).await == Some(true)
    }
}

struct RedLock {
    members: Arc<Vec<Member>>,
    key: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let member = |address: &std::net::SocketAddr| {
            let client = redis::Client::open((address.ip().to_string(), address.port()))?;
            Outcome::Ok(Member { client, connection: Mutex::new(None) })
        };
        let members = Arc::new(place.addresses.iter().map(member).collect::<Outcome<Vec<_>>>()?);
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
