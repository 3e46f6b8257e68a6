//! The workloads of the clients, and the locks that each uses.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use testbed::history::Model;

use crate::judgement::Promise;

/// The parent of all lock paths.
pub(crate) const ROOT: &str = "/chaos";

/// The permits of the semaphore.
pub(crate) const PERMITS: u32 = 3;

/// How many numbers there are to be claimed, and how many shards.
pub(crate) const SLOTS: u32 = 3;
pub(crate) const SHARDS: u32 = 6;

/// The group of the members.
pub(crate) const MEMBERS: &str = "members";

/// What a client does in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Holds mutexes of several kinds.
    Lock,
    /// Adds elements to a set, guarded by a mutex.
    LockSet,
    /// Reads and writes.
    Rw,
    /// Acquires one or several permits.
    Permits,
    /// Acquires several locks, together or one after the other.
    Multi,
    /// Is elected, leads for a while, and resigns.
    Election,
    /// Joins a group and leaves it, and follows its members.
    Members,
    /// Claims numbers.
    Slots,
    /// Serves the shards that the plan gives to its process.
    Shards,
}

impl Workload {
    pub(crate) const ALL: [Self; 9] = [
        Self::Lock,
        Self::LockSet,
        Self::Rw,
        Self::Permits,
        Self::Multi,
        Self::Election,
        Self::Members,
        Self::Slots,
        Self::Shards,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::LockSet => "lock-set",
            Self::Rw => "rw",
            Self::Permits => "permits",
            Self::Multi => "multi",
            Self::Election => "election",
            Self::Members => "members",
            Self::Slots => "slots",
            Self::Shards => "shards",
        }
    }

    /// The locks which it uses.
    pub(crate) fn objects(self) -> &'static [&'static str] {
        match self {
            Self::Lock => &["mutex", "fleeting", "again", "reentrant"],
            Self::LockSet => &["set-checked", "set-ignored"],
            Self::Rw => &["rw"],
            Self::Permits => &["permits"],
            Self::Multi => &["multi-a", "multi-b", "multi-c"],
            Self::Election => &["election"],
            Self::Members => &[],
            Self::Slots => &["slots/0", "slots/1", "slots/2"],
            Self::Shards => &["shards/0", "shards/1", "shards/2", "shards/3", "shards/4", "shards/5"],
        }
    }

    /// What an operator deletes nodes of beside its locks.
    pub(crate) fn others(self) -> &'static [&'static str] {
        match self {
            Self::Members => &[MEMBERS],
            Self::Slots => &["slots/queue-3"],
            Self::Shards => &["shards/members"],
            _ => &[],
        }
    }

    /// Whether its locks go from holder to holder all the time. A shard stays with its owner.
    pub(crate) fn is_busy(self) -> bool {
        self != Self::Shards
    }
}

/// The promises of a lock, each with the model that checks it. Later models include the earlier ones.
pub(crate) fn promises(object: &str) -> &'static [(Promise, Model)] {
    match object {
        "permits" => &[(Promise::Room, Model::Permits(PERMITS))],
        "reentrant" => &[(Promise::Exclusion, Model::ReentrantMutex), (Promise::Order, Model::Fifo)],
        "rw" | "multi-a" | "multi-b" | "multi-c" => {
            &[(Promise::Exclusion, Model::ReadWrite), (Promise::Order, Model::Fifo)]
        }
        _ => &[
            (Promise::Exclusion, Model::Mutex),
            (Promise::Tokens, Model::FencedMutex),
            (Promise::Order, Model::Fifo),
        ],
    }
}

impl Display for Workload {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|workload| workload.name() == name);
        found.ok_or_else(|| format!("no workload is called {name}"))
    }
}

/// The path of a lock.
pub(crate) fn path(object: &str) -> String {
    format!("{ROOT}/{object}")
}
