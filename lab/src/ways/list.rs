//! The list of all ways, in the order of the table.

use super::{Connect, Job};
use super::{
    curator, etcd_lease, mariadb_for_update, mariadb_unique_row, mariadb_version, memcached_add,
    postgresql_advisory, postgresql_pool, redis_getset, redis_redlock, redis_set_nx, redis_setnx_expire,
    redisson_fair, redisson_lock, redisson_multi, tair_put, this_crate, zookeeper_one_node, zookeeper_textbook,
};
use crate::Outcome;

/// The servers of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// One MariaDB.
    MariaDb,
    /// One PostgreSQL.
    PostgreSql,
    /// One Redis.
    Redis,
    /// Five of Redis, which know nothing of each other.
    FiveRedis,
    /// One etcd.
    Etcd,
    /// One ZooKeeper.
    ZooKeeper,
    /// One Memcached.
    Memcached,
}

/// A way to lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Way {
    /// What it is called in options and files.
    pub id: &'static str,
    /// What it is called in the table.
    pub title: &'static str,
    /// Its servers.
    pub kind: Kind,
    /// Whether its contenders send the token of their hold with every read and write, and the store compares.
    pub tokens: bool,
    /// Whether its counter is a row with a version, in its own server.
    pub optimistic: bool,
    /// Whether the server answers a waiter when it has the lock, so that the answer is its only wake-up.
    pub blocking: bool,
    /// Whether a contender is a virtual machine of Java.
    pub java: bool,
    /// Whether it gets stuck without a fault, so that its work is not measured.
    pub fails_alone: bool,
    /// The id of the way that is this one without tokens, which has the same speed.
    pub plain: Option<&'static str>,
    /// What connects a contender.
    pub connect: Connect,
    /// What runs beside the contenders.
    pub job: Option<Job>,
}

impl Way {
    /// Whether the lock ends after a lease that nobody renews.
    pub fn expires(&self) -> bool {
        matches!(self.kind, Kind::Redis | Kind::FiveRedis | Kind::Memcached)
            && !["redisson-lock", "redis-watchdog", "redisson-multi", "tair-put"].contains(&self.id)
    }

    /// Whether it holds the lock on most of its servers. Another way with several needs all.
    pub fn needs_majority(&self) -> bool {
        self.id == "redis-redlock"
    }
}

const fn way(id: &'static str, title: &'static str, kind: Kind, connect: Connect) -> Way {
    let (tokens, optimistic, blocking, java, fails_alone) = (false, false, false, false, false);
    Way { id, title, kind, tokens, optimistic, blocking, java, fails_alone, plain: None, connect, job: None }
}

/// All of them.
pub const WAYS: &[Way] = &[
    Way {
        job: Some(mariadb_unique_row::cleaner),
        ..way(
            "mariadb-unique-row",
            "a row with a unique key (MariaDB)",
            Kind::MariaDb,
            mariadb_unique_row::connect,
        )
    },
    Way {
        optimistic: true,
        ..way("mariadb-version", "a version column, no lock (MariaDB)", Kind::MariaDb, mariadb_version::connect)
    },
    Way {
        blocking: true,
        ..way("mariadb-for-update", "SELECT … FOR UPDATE (MariaDB)", Kind::MariaDb, mariadb_for_update::connect)
    },
    Way {
        blocking: true,
        ..way(
            "mariadb-for-update-no-index",
            "FOR UPDATE without an index (MariaDB)",
            Kind::MariaDb,
            mariadb_for_update::connect_without_index,
        )
    },
    Way {
        blocking: true,
        ..way("postgresql-advisory", "advisory lock (PostgreSQL)", Kind::PostgreSql, postgresql_advisory::connect)
    },
    Way {
        blocking: true,
        fails_alone: true,
        ..way(
            "postgresql-advisory-pool",
            "advisory lock through a pool (PostgreSQL)",
            Kind::PostgreSql,
            postgresql_pool::connect,
        )
    },
    way("redis-setnx-expire", "SETNX, then EXPIRE (Redis)", Kind::Redis, redis_setnx_expire::connect),
    way("redis-getset", "SETNX, GET, GETSET (Redis)", Kind::Redis, redis_getset::connect),
    way("redis-set-nx", "SET NX PX, no renewal (Redis)", Kind::Redis, redis_set_nx::connect),
    way("redisson-lock", "Redisson's RLock (a script stands for it)", Kind::Redis, redisson_lock::connect),
    way("redis-watchdog", "Redisson's fair lock (a script stands for it)", Kind::Redis, redisson_fair::connect),
    way(
        "redisson-multi",
        "Redisson's MultiLock (a script stands for it)",
        Kind::FiveRedis,
        redisson_multi::connect,
    ),
    way("redis-redlock", "RedLock (five Redis)", Kind::FiveRedis, redis_redlock::connect),
    way("tair-put", "Tair's put (Redis stands for it)", Kind::Redis, tair_put::connect),
    way(
        "tair-put-expire",
        "Tair's put with expiry (Redis stands for it)",
        Kind::Redis,
        tair_put::connect_expiring,
    ),
    way("memcached-add", "add with expiry (Memcached)", Kind::Memcached, memcached_add::connect),
    Way {
        blocking: true,
        ..way("etcd-lease", "etcd's lock, without its revision", Kind::Etcd, etcd_lease::connect)
    },
    Way {
        tokens: true,
        plain: Some("etcd-lease"),
        blocking: true,
        ..way("etcd-lease-tokens", "etcd's lock, revision as token", Kind::Etcd, etcd_lease::connect)
    },
    way("zookeeper-one-node", "one ephemeral node (ZooKeeper)", Kind::ZooKeeper, zookeeper_one_node::connect),
    way(
        "zookeeper-textbook",
        "sequential nodes, textbook (ZooKeeper)",
        Kind::ZooKeeper,
        zookeeper_textbook::connect,
    ),
    Way {
        java: true,
        ..way("zookeeper-curator", "Curator's InterProcessMutex", Kind::ZooKeeper, curator::connect)
    },
    Way {
        java: true,
        ..way(
            "zookeeper-curator-listener",
            "Curator's InterProcessMutex with a listener",
            Kind::ZooKeeper,
            curator::connect_watched,
        )
    },
    way("zookeeper-recipes", "this crate, without its tokens", Kind::ZooKeeper, this_crate::connect),
    Way {
        tokens: true,
        plain: Some("zookeeper-recipes"),
        ..way("zookeeper-recipes-tokens", "this crate", Kind::ZooKeeper, this_crate::connect)
    },
];

/// The way with this id.
///
/// # Errors
///
/// If there is none; the message lists all.
pub fn find(id: &str) -> Outcome<&'static Way> {
    let all: Vec<_> = WAYS.iter().map(|way| way.id).collect();
    let found = WAYS.iter().find(|way| way.id == id);
    found.ok_or_else(|| format!("there is no way {id:?}; there are {}", all.join(", ")).into())
}
