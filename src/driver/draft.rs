//! Owns [`Draft`]: the options, paths and kinds of an acquisition's new nodes.

use std::sync::Arc;

use crate::driver::names;
use crate::machine::{Kind, Op, is_turn};
use crate::options::Options;
use crate::path::LockPath;

/// The options, paths and kinds of the nodes that an acquisition creates.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) options: Options,
    /// The path and kind of each node. Several nodes in one path are permits.
    pub(crate) queues: Vec<(LockPath, Kind)>,
    /// The draft of the node that queues for a semaphore's turn, if the permits cannot be had at once.
    pub(crate) turn: Option<Arc<Self>>,
    /// The paths to delete after the nodes, if they are empty.
    pub(crate) removes: Vec<LockPath>,
}

impl Draft {
    /// Returns the draft of the turn if `acquisition` queues for a turn, otherwise this draft.
    pub(super) fn for_op(self: &Arc<Self>, acquisition: Option<Op>) -> &Arc<Self> {
        self.turn.as_ref().filter(|_| acquisition.is_some_and(is_turn)).unwrap_or(self)
    }

    /// Returns the most bytes that the paths of all nodes can have, with the node of the turn and the chroot.
    pub(super) fn node_bytes(&self, root_bytes: usize) -> usize {
        self.lengths(root_bytes).sum()
    }

    /// Returns the most bytes that the path of one of these nodes can have, with the chroot.
    pub(super) fn longest_node(&self, root_bytes: usize) -> usize {
        self.lengths(root_bytes).max().unwrap_or_default()
    }

    fn lengths(&self, root_bytes: usize) -> impl Iterator<Item = usize> {
        let turn = self.turn.iter().flat_map(|turn| &turn.queues);
        self.queues.iter().chain(turn).map(move |(path, _)| root_bytes + names::longest_child(path.as_str()))
    }
}
