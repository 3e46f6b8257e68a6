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
    pub(crate) permits: Option<Permits>,
    /// The paths to delete after the nodes, if they are empty.
    pub(crate) removes: Vec<LockPath>,
}

/// The permits of a semaphore.
#[derive(Debug)]
pub(crate) struct Permits {
    /// The number of permits that the semaphore has.
    pub(crate) limit: u32,
    /// The draft for the node of a turn.
    pub(crate) turn: Arc<Draft>,
}

impl Draft {
    /// Returns the draft of the turn if `acquisition` is a turn, otherwise this draft.
    pub(super) fn for_op(self: &Arc<Self>, acquisition: Option<Op>) -> &Arc<Self> {
        let turn = self.permits.as_ref().map(|permits| &permits.turn);
        turn.filter(|_| acquisition.is_some_and(is_turn)).unwrap_or(self)
    }

    /// Returns the total length of the node paths in bytes, chroot included.
    pub(super) fn node_bytes(&self, root_bytes: usize) -> usize {
        self.lengths().map(|bytes| root_bytes + bytes).sum()
    }

    /// Returns the bytes of the longest node path, including the turn's.
    pub(super) fn longest_node(&self) -> usize {
        let turn = self.permits.iter().flat_map(|permits| permits.turn.lengths());
        self.lengths().chain(turn).max().unwrap_or_default()
    }

    /// Returns the bytes of each node path. The number counts as ten digits without a sign.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.queues.iter().map(|(path, kind)| names::prefix_bytes(path.as_str(), *kind) + "0123456789".len())
    }
}

#[cfg(test)]
mod tests {
    use super::Draft;
    use crate::driver::names;
    use crate::machine::{Kind, Name};
    use crate::path::LockPath;

    /// The reservation must be exact, so that a session can be filled to the last node.
    #[test]
    fn room_is_taken_for_as_many_bytes_as_the_nodes_will_have() {
        for kind in [Kind::Lock, Kind::Read, Kind::Write, Kind::Lease, Kind::Latch] {
            let path = LockPath::new("/a/b").expect("a path");
            let node = names::own("/a/b", Name { number: 7, guid: 1, kind });
            let draft = Draft { queues: vec![(path, kind)], ..Draft::default() };
            assert_eq!(draft.node_bytes(3), 3 + node.len());
        }
    }
}
