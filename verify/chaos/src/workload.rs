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
}

impl Workload {
    pub(crate) const ALL: [Self; 6] =
        [Self::Lock, Self::LockSet, Self::Rw, Self::Permits, Self::Multi, Self::Election];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::LockSet => "lock-set",
            Self::Rw => "rw",
            Self::Permits => "permits",
            Self::Multi => "multi",
            Self::Election => "election",
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
        }
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
