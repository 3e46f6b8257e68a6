//! Owns [`Draft`]: what the nodes of an acquisition are created with, and where.

use std::sync::Arc;

use crate::driver::names;
use crate::machine::{Kind, Op, is_turn};
use crate::options::Options;
use crate::path::LockPath;

/// What the nodes of an acquisition are created with, and where.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) options: Options,
    /// The nodes. Several in one path are permits.
    pub(crate) queues: Vec<(LockPath, Kind)>,
    pub(crate) permits: Option<Permits>,
    /// What to delete together with the nodes, if nothing is in it.
    pub(crate) removes: Vec<LockPath>,
}

/// Of a semaphore.
#[derive(Debug)]
pub(crate) struct Permits {
    /// How many there are.
    pub(crate) limit: u32,
    /// What the node of a turn is created with.
    pub(crate) turn: Arc<Draft>,
}

impl Draft {
    /// That of an acquisition, or of its turn.
    pub(super) fn of(self: &Arc<Self>, acquisition: Option<Op>) -> &Arc<Self> {
        let turn = self.permits.as_ref().map(|permits| &permits.turn);
        turn.filter(|_| acquisition.is_some_and(is_turn)).unwrap_or(self)
    }

    /// The bytes of the paths of the nodes, as the servers count them.
    pub(super) fn node_bytes(&self, root_bytes: usize) -> usize {
        self.lengths().map(|bytes| root_bytes + bytes).sum()
    }

    /// The bytes of the longest path of a node.
    pub(super) fn longest_node(&self) -> usize {
        let turn = self.permits.iter().flat_map(|permits| permits.turn.lengths());
        self.lengths().chain(turn).max().unwrap_or_default()
    }

    /// Without the sign of a number.
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

    /// A session can be filled to the last node.
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
