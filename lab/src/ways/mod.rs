//! The ways to lock, one file each, as their textbooks describe them, faults included.

pub mod curator;
pub mod etcd_lease;
mod grant;
pub mod mariadb_for_update;
pub mod mariadb_unique_row;
pub mod mariadb_version;
pub mod memcached_add;
mod pause;
pub mod postgresql_advisory;
pub mod postgresql_pool;
pub mod redis_getset;
mod redis_member;
pub mod redis_redlock;
pub mod redis_set_nx;
pub mod redis_setnx_expire;
mod redisson;
pub mod redisson_fair;
pub mod redisson_lock;
pub mod redisson_multi;
pub mod tair_put;
pub mod this_crate;
pub mod zookeeper_one_node;
pub mod zookeeper_textbook;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use zookeeper_recipes::DistributedLock;

use crate::Outcome;

pub use self::list::{Kind, WAYS, Way, find};
pub(crate) use self::pause::Pause;

mod list;

/// The lease of every way that has one, and the session timeout on ZooKeeper.
pub const LEASE: Duration = Duration::from_secs(2);

/// How long a way that polls sleeps between two attempts.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Where a contender finds its lock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Place {
    /// Of the servers.
    pub addresses: Vec<SocketAddr>,
    /// The name of the lock, which is a key, a row or a path.
    pub lock: String,
    /// How Curator's driver is run.
    #[serde(default)]
    pub java: Vec<String>,
}

impl Place {
    fn address(&self) -> Outcome<SocketAddr> {
        Ok(*self.addresses.first().ok_or("no server")?)
    }

    /// A number for the name, for locks that are numbers.
    fn number(&self) -> i64 {
        let hash = self
            .lock
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        hash.cast_signed()
    }
}

/// Connects a contender to its lock.
pub type Connect = fn(Place, Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>>;

/// A job that a way needs beside its contenders.
pub type Job = fn(Place) -> AbortHandle;

static WAKE_UPS: AtomicU64 = AtomicU64::new(0);

/// Counts that a waiter woke up: by a message of the server, or to look again.
pub(crate) fn woken() {
    WAKE_UPS.fetch_add(1, Ordering::Relaxed);
}

/// How often waiters of this process woke up.
pub fn wake_ups() -> u64 {
    WAKE_UPS.load(Ordering::Relaxed)
}

/// A name that nobody else has.
pub(crate) fn unique() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Sleeps until the next attempt of a way that polls.
pub(crate) async fn poll() {
    tokio::time::sleep(POLL).await;
    woken();
}
