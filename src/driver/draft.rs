//! Owns [`Draft`]: what the nodes of an acquisition are created with, and where.

use crate::driver::names;
use crate::machine::Kind;
use crate::options::Options;
use crate::path::LockPath;

/// What the nodes of an acquisition are created with, and where.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) options: Options,
    /// The nodes. Several in one path are permits.
    pub(crate) queues: Vec<(LockPath, Kind)>,
    pub(crate) admission: Admitted,
    /// It is for a turn of a semaphore, whose path may have children of any name.
    pub(crate) is_turn: bool,
    /// What to delete together with the nodes, if nothing is in it.
    pub(crate) removes: Vec<LockPath>,
}

/// When an acquisition holds; see [`Admission`].
#[derive(Clone, Debug, Default)]
pub(crate) enum Admitted {
    #[default]
    First,
    Room {
        limit: u32,
        turn: Option<LockPath>,
    },
}

impl Draft {
    /// The bytes of the paths of the nodes, as the servers count them.
    pub(super) fn node_bytes(&self, root_bytes: usize) -> usize {
        self.queues.iter().map(|(path, _)| root_bytes + names::longest(path.as_str())).sum()
    }
    /// The bytes of the longest path of a node, without the sign of a number.
    pub(super) fn longest_node(&self) -> usize {
        let node =
            |(path, kind): &(LockPath, Kind)| names::prefix(path.as_str(), 0, *kind).len() + "0123456789".len();
        self.queues.iter().map(node).max().unwrap_or_default()
    }
}
