//! What Redisson's locks have in common: a hash with the owner and its count, and a watchdog that renews it each third of
//! the lease while the owner has the lock.
//!
//! The scripts of `redisson_*.rs` are the laboratory's own, written after Redisson's documentation, because its jar is in no
//! package of Debian. Its client sends a request again for some seconds when the server does not answer, and so does this
//! watchdog.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::PubSub;
use redis::{FromRedisValue, Script};
use tokio::time::{sleep, timeout};

use super::grant::Grant;
use super::redis_member::Member;
use super::{LEASE, Place, unique, woken};
use crate::Outcome;

/// For an answer: much longer than one takes, much shorter than the lease.
const LIMIT: Duration = Duration::from_millis(500);

const RENEW: &str =
    "return redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 and redis.call('PEXPIRE', KEYS[1], ARGV[1]) or 0";

/// A contender of a lock on one server.
#[derive(Clone)]
pub(super) struct Contender {
    member: Arc<Member>,
    pub(super) key: String,
    pub(super) owner: String,
}

impl Contender {
    /// A contender on each server of the place, with one name for all.
    pub(super) fn on_each(place: &Place) -> Outcome<Vec<Self>> {
        let owner = unique();
        let on = |address: &std::net::SocketAddr| {
            let member = Arc::new(Member::at(*address)?);
            Ok(Self { member, key: place.lock.clone(), owner: owner.clone() })
        };
        place.addresses.iter().map(on).collect()
    }

    /// Runs a script with the key, the lease and the owner.
    pub(super) async fn run<T: FromRedisValue>(&self, script: &str) -> Outcome<T> {
        let (script, lease) = (Script::new(script), LEASE.as_millis() as u64);
        let mut call = script.key(&self.key);
        call.arg(lease).arg(&self.owner);
        self.member.run(LIMIT, |mut connection| async move { call.invoke_async(&mut connection).await }).await
    }

    /// What the server publishes in this channel, from now on.
    pub(super) async fn listen(&self, channel: &str) -> Outcome<PubSub> {
        let mut messages = timeout(LIMIT, self.member.client.get_async_pubsub()).await??;
        timeout(LIMIT, messages.subscribe(channel)).await??;
        Ok(messages)
    }

    /// The lock, renewed until it is lost or released by this script, which returns nothing if the lock is not ours.
    pub(super) fn hold(&self, unlock: &'static str) -> Grant {
        let renewal = tokio::spawn(self.clone().renew());
        let contender = self.clone();
        Grant::new(async move {
            renewal.abort();
            let released: Option<i64> = contender.run(unlock).await?;
            released.map(drop).ok_or_else(|| "the lock is not held by this owner".into())
        })
    }

    /// Ends silently when the lock is lost.
    async fn renew(self) {
        let mut answered = true;
        loop {
            // Redisson tries again after 1.5 s of 30 s.
            sleep(if answered { LEASE / 3 } else { LEASE / 20 }).await;
            match self.run::<i64>(RENEW).await {
                Ok(1) => answered = true,
                Ok(_) => return,
                Err(_) => answered = false,
            }
        }
    }
}

/// Waits for a message, for this long at most.
pub(super) async fn message(messages: &mut PubSub, limit: Duration) -> Outcome {
    if let Ok(None) = timeout(limit, messages.on_message().next()).await {
        return Err("the connection for messages has ended".into());
    }
    woken();
    Ok(())
}
