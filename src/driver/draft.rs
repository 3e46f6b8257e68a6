//! Owns [`Draft`]: the options, paths and kinds of an acquisition's new nodes.

use std::sync::Arc;

use tokio::sync::watch;

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
    pub(crate) permits: Option<Permits>,
    /// The paths to delete after the nodes, if they are empty.
    pub(crate) removes: Vec<LockPath>,
}

/// What an acquisition of a semaphore's permits needs. If it cannot get them at once, it first queues for its turn.
#[derive(Debug)]
pub(crate) struct Permits {
    /// The number of permits that the semaphore has, from now on.
    pub(crate) limit: watch::Receiver<u32>,
    /// The draft of the node that queues for a turn.
    pub(crate) turn: Arc<Draft>,
}

impl Draft {
    /// Returns the draft of the turn if `acquisition` queues for a turn, otherwise this draft.
    pub(super) fn for_op(self: &Arc<Self>, acquisition: Option<Op>) -> &Arc<Self> {
        let turn = self.permits.as_ref().map(|permits| &permits.turn);
        turn.filter(|_| acquisition.is_some_and(is_turn)).unwrap_or(self)
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
        let turn = self.permits.iter().flat_map(|permits| &permits.turn.queues);
        self.queues.iter().chain(turn).map(move |(path, _)| root_bytes + names::longest_child(path.as_str()))
    }
}
