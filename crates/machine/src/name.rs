//! Names of lock nodes, and which contender waits for which.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The kind of a contender. Servers do not know kinds: the name of a lock node shows its kind, whichever client created it.
///
/// As text (`Display`) it is `lock`, `reader`, `writer`, `permit` or `candidate`. `zklock list` shows the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ContenderKind {
    /// A contender for a mutex, or a caller that waits for permits of a semaphore. Also a contender of Curator's
    /// `LeaderSelector`, of kazoo's `Lock` and `Election`, of Go's `zk.Lock` and of ZooKeeper's `WriteLock`.
    Lock,
    /// A reader of a read-write lock.
    Read,
    /// A writer of a read-write lock.
    Write,
    /// A permit of a semaphore. Later contenders of other kinds wait for it. A permit itself waits until few enough
    /// permits are taken.
    Lease,
    /// A candidate in an `Election`, or in Curator's `LeaderLatch`.
    Latch,
}

pub type Kind = ContenderKind;

impl fmt::Display for ContenderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Kind {
    /// Returns the word for the kind, as in `Display`.
    #[doc(hidden)]
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// Returns the separator between the guid and the number in the names that we create.
    #[doc(hidden)]
    #[must_use]
    pub fn separator(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Lock => ("lock", "-lock-"),
            Self::Read => ("reader", "-__READ__"),
            Self::Write => ("writer", "-__WRIT__"),
            Self::Lease => ("permit", "-lease-"),
            Self::Latch => ("candidate", "-latch-"),
        }
    }

    /// Returns whether a contender of this kind waits for an older contender of kind `older`.
    #[must_use]
    pub fn waits_for(self, older: Self) -> bool {
        !matches!((self, older), (Self::Read, Self::Read) | (Self::Lease, Self::Lease))
    }

    /// Returns whether a holder of this kind excludes all other contenders. Only such holders hand over in memory.
    #[must_use]
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, Self::Lock | Self::Write | Self::Latch)
    }

    /// Returns whether the deletion of a node means that its owner has left. A downgrade deletes a writer's node, too.
    #[must_use]
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::Lock | Self::Latch)
    }
}

/// The parsed name of a lock node. The driver keeps the texts, and invents guids for names that are not spelled like ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    pub number: i32,
    pub guid: u128,
    pub kind: Kind,
}

impl Name {
    /// Returns the name of the reader's node that replaces this writer's.
    pub fn reader(self, guid: u128) -> Self {
        Self { guid, kind: Kind::Read, ..self }
    }

    #[must_use]
    pub fn is_near_wrap(self) -> bool {
        is_near_wrap(self.number)
    }
}

/// Returns whether a number is near the wrap of the counter, where numbers alone do not show the order.
pub fn is_near_wrap(number: i32) -> bool {
    number == i32::MAX || number < 0
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nonce, op, attempt) = (self.guid >> 64, self.guid >> 32 & 0xffff_ffff, self.guid & 0xffff_ffff);
        write!(f, "{:?}-{nonce:x}.{op}.{attempt:x}-{}", self.kind, self.number)
    }
}

/// Compares sequence numbers by serial arithmetic, because the counter wraps around.
#[must_use]
pub(crate) fn precedes(one: i32, other: i32) -> Ordering {
    0.cmp(&other.wrapping_sub(one))
}

/// The contenders under a lock path, in queue order. The driver parses and sorts them. For `ListOwn`: the session's nodes in all
/// paths, not sorted.
pub type Listing = Arc<[Name]>;

/// A listing, prepared to find predecessors in it.
pub(crate) struct Order<'a> {
    names: &'a [Name],
    /// The indices in `names` of the contenders for which readers wait.
    non_readers: OnceCell<Vec<usize>>,
}

impl<'a> Order<'a> {
    pub(crate) fn new(names: &'a [Name]) -> Self {
        Self { names, non_readers: OnceCell::new() }
    }

    fn non_readers(&self) -> &[usize] {
        let is_waited_for = |(_, name): &(usize, &Name)| Kind::Read.waits_for(name.kind);
        self.non_readers
            .get_or_init(|| self.names.iter().enumerate().filter(is_waited_for).map(|(at, _)| at).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the index of a node. Near the wrap, a binary search by number may miss it.
    pub(crate) fn index_of(&self, own: Name) -> Option<usize> {
        let found = self.names.binary_search_by(|name| precedes(name.number, own.number));
        let at = found.ok().filter(|at| self.names.get(*at) == Some(&own));
        at.or_else(|| self.names.iter().position(|name| *name == own))
    }

    /// Returns the last contender before the index `place` that `kind` waits for, and how many such contenders there are.
    /// Not for permits, which are only counted.
    pub(crate) fn ahead(&self, place: usize, kind: Kind) -> (Option<Name>, usize) {
        let (last, count) = match kind {
            Kind::Read => {
                let non_readers = self.non_readers();
                let count = non_readers.partition_point(|at| *at < place);
                (count.checked_sub(1).and_then(|last| non_readers.get(last)).copied(), count)
            }
            _ => (place.checked_sub(1), place),
        };
        (last.and_then(|last| self.names.get(last)).copied(), count)
    }
}
