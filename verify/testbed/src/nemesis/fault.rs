//! The kinds of faults, and the record of each one that happened.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// The leader is killed and restarted.
    LeaderKill,
    /// A follower is killed and restarted.
    FollowerKill,
    /// A server is paused.
    ServerPause,
    /// A server is paused briefly again and again, as if its disk were slow.
    SlowDisk,
    /// All servers are restarted, one after the other.
    RollingRestart,
    /// The connections between one server and the others are closed, and new ones refused.
    Partition,
    /// The link between a follower and the leader falls silent; all other traffic passes.
    FollowerCutOff,
    /// The links of the leader fall silent until it is deposed; its clients still reach it.
    LeaderIsolation,
    /// A follower's answers to the leader's pings are held back; all other traffic passes.
    PingsHeld,
    /// A client cannot reach any server.
    ClientPartition,
    /// The connections of a client are closed every 100 to 500 ms.
    Flapping,
    /// A client is paused for less than its session lives.
    ClientPause,
    /// A client is paused for longer than its session lives, if possible one in a critical section.
    LongClientPause,
    /// A client is killed, and another is started to replace it.
    ClientKill,
    /// An operator deletes the node of a contender.
    NodeDeletion,
    /// An operator deletes a lock's path with its descendants.
    PathDeletion,
}

/// A class of targets. Faults of one stream mostly follow each other; faults of several streams overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Servers,
    Connections,
    Processes,
    Nodes,
}

impl Stream {
    pub(super) const ALL: [Self; 4] = [Self::Servers, Self::Connections, Self::Processes, Self::Nodes];

    /// The least and the longest time between two faults, in session timeouts.
    pub(super) fn pause(self) -> (f64, f64) {
        match self {
            Self::Servers => (-0.4, 1.6),
            Self::Connections => (-0.5, 1.5),
            Self::Processes => (0.1, 1.5),
            Self::Nodes => (0.8, 3.0),
        }
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::LeaderKill,
        Self::FollowerKill,
        Self::ServerPause,
        Self::SlowDisk,
        Self::RollingRestart,
        Self::Partition,
        Self::FollowerCutOff,
        Self::LeaderIsolation,
        Self::PingsHeld,
        Self::ClientPartition,
        Self::Flapping,
        Self::ClientPause,
        Self::LongClientPause,
        Self::ClientKill,
        Self::NodeDeletion,
        Self::PathDeletion,
    ];

    pub(super) fn stream(self) -> Stream {
        match self {
            Self::LeaderKill
            | Self::FollowerKill
            | Self::ServerPause
            | Self::SlowDisk
            | Self::RollingRestart
            | Self::Partition
            | Self::FollowerCutOff
            | Self::LeaderIsolation
            | Self::PingsHeld => Stream::Servers,
            Self::ClientPartition | Self::Flapping => Stream::Connections,
            Self::ClientPause | Self::LongClientPause | Self::ClientKill => Stream::Processes,
            Self::NodeDeletion | Self::PathDeletion => Stream::Nodes,
        }
    }

    /// The least and the longest duration, in session timeouts.
    pub(super) fn lasts(self) -> (f64, f64) {
        match self {
            Self::LeaderKill | Self::FollowerKill => (0.3, 1.5),
            Self::ServerPause => (0.2, 2.0),
            Self::SlowDisk => (1.0, 3.0),
            Self::RollingRestart => (4.0, 4.5),
            Self::Partition | Self::FollowerCutOff => (0.5, 2.5),
            Self::LeaderIsolation => (1.4, 3.2),
            Self::PingsHeld => (0.5, 2.0),
            Self::ClientPartition => (0.2, 1.8),
            Self::Flapping => (1.0, 4.0),
            Self::ClientPause => (0.1, 0.9),
            Self::LongClientPause => (1.3, 2.0),
            Self::ClientKill => (0.1, 1.0),
            Self::NodeDeletion | Self::PathDeletion => (0.0, 0.0),
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::LeaderKill => "leader killed",
            Self::FollowerKill => "follower killed",
            Self::ServerPause => "server paused",
            Self::SlowDisk => "disk slow",
            Self::RollingRestart => "rolling restart",
            Self::Partition => "minority partition",
            Self::FollowerCutOff => "follower cut off from its leader",
            Self::LeaderIsolation => "leader cut off silently",
            Self::PingsHeld => "ping answers held back",
            Self::ClientPartition => "client partition",
            Self::Flapping => "connections flap",
            Self::ClientPause => "client paused for less than its session",
            Self::LongClientPause => "client paused past its session",
            Self::ClientKill => "client killed",
            Self::NodeDeletion => "node deleted by an operator",
            Self::PathDeletion => "path deleted by an operator",
        };
        f.pad(name)
    }
}

/// A planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of fault.
    pub kind: Kind,
    /// When it begins, from the start of the plan.
    pub begin: Duration,
    /// When it ends, from the start of the plan.
    pub end: Duration,
    /// Determines its target and its course.
    pub dice: u64,
}

/// A fault that happened. Times are those of [`history::now`](crate::history::now).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Struck {
    /// The kind of fault.
    pub fault: Kind,
    /// The target: `server 2`, or the name of a client.
    pub target: String,
    /// The clients that were hit; if pings were held back, the clients that were ever connected to the follower.
    pub clients: Vec<String>,
    /// The instant before its first effect.
    pub begin: u64,
    /// The instant after its last effect was undone.
    pub end: u64,
}
