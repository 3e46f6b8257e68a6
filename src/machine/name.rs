//! Names of nodes, and which contender waits for which.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The kind of a contender's node. The servers know no kinds: the name of the node shows it, whichever recipe or client made it.
///
/// As text (`Display`) it is `lock`, `reader`, `writer`, `permit` or `candidate`. `zklock list` shows the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ContenderKind {
    /// The node of a contender for a mutex. Also that of a caller which waits for permits of a semaphore, of Curator's `LeaderSelector`, of kazoo's `Lock`
    /// and `Election`, of Go's `zk.Lock` and of ZooKeeper's `WriteLock`.
    Lock,
    /// The node of a reader.
    Read,
    /// The node of a writer.
    Write,
    /// A permit of a semaphore. Contenders of other kinds wait for it; it waits for room.
    Lease,
    /// The node of a candidate in an `Election`, or in Curator's `LeaderLatch`.
    Latch,
}

pub(crate) type Kind = ContenderKind;

impl Kind {
    /// Whether a contender of this kind waits for an older one of the other kind.
    #[must_use]
    pub(crate) fn waits_for(self, older: Self) -> bool {
        !matches!((self, older), (Self::Read, Self::Read) | (Self::Lease, Self::Lease))
    }

    /// Whether nobody else holds beside it. Only then its release hands the lock over.
    #[must_use]
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, Self::Lock | Self::Write | Self::Latch)
    }

    /// Whether the deletion of its node means that it has left: a downgrade deletes the node of a writer.
    #[must_use]
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::Lock | Self::Latch)
    }
}

/// The name of a contender's node under a lock path. The driver has the texts, and numbers the nodes of other clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) number: i32,
    pub(crate) guid: u128,
    pub(crate) kind: Kind,
}

impl Name {
    /// The reader that takes the place of this writer.
    pub(crate) fn reader(self, guid: u128) -> Self {
        Self { guid, kind: Kind::Read, ..self }
    }

    #[must_use]
    pub(crate) fn is_near_wrap(self) -> bool {
        is_near_wrap(self.number)
    }
}

/// Whether the number alone does not show the order: the counter has come to its end.
pub(crate) fn is_near_wrap(number: i32) -> bool {
    number == i32::MAX || number < 0
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nonce, op, attempt) = (self.guid >> 64, self.guid >> 32 & 0xffff_ffff, self.guid & 0xffff_ffff);
        write!(f, "{:?}-{nonce:x}.{op}.{attempt:x}-{}", self.kind, self.number)
    }
}

/// Whether one number comes before another, by serial arithmetic: the counter wraps around.
#[must_use]
pub(crate) fn precedes(one: i32, other: i32) -> Ordering {
    0.cmp(&other.wrapping_sub(one))
}

/// The contenders under a lock path, in their order. The driver parses and sorts them.
pub(crate) type Listing = Arc<[Name]>;

/// The order that a listing shows.
pub(crate) struct Order<'a> {
    names: &'a [Name],
    /// The indices in `names` of the contenders that readers wait for.
    non_readers: Vec<usize>,
}

impl<'a> Order<'a> {
    pub(crate) fn new(names: &'a [Name]) -> Self {
        let non_readers = names.iter().enumerate().filter(|(_, name)| Kind::Read.waits_for(name.kind));
        Self { names, non_readers: non_readers.map(|(at, _)| at).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Where a node stands. At the end of the counter the order is not that of numbers alone.
    pub(crate) fn place_of(&self, own: Name) -> Option<usize> {
        let found = self.names.binary_search_by(|name| precedes(name.number, own.number));
        let at = found.ok().filter(|at| self.names.get(*at) == Some(&own));
        at.or_else(|| self.names.iter().position(|name| *name == own))
    }

    /// The last contender before this place that one of a kind waits for, and how many there are. (Permits wait for
    /// room, and not for contenders.)
    pub(crate) fn ahead(&self, place: usize, kind: Kind) -> (Option<Name>, usize) {
        let (last, count) = match kind {
            Kind::Read => {
                let count = self.non_readers.partition_point(|at| *at < place);
                (count.checked_sub(1).and_then(|last| self.non_readers.get(last)).copied(), count)
            }
            _ => (place.checked_sub(1), place),
        };
        (last.and_then(|last| self.names.get(last)).copied(), count)
    }
}
