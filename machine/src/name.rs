//! Names of nodes, and which contender waits for which.

use std::fmt;
use std::sync::Arc;

/// What a contender asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A mutex.
    Lock,
    Read,
    Write,
}

impl Kind {
    /// Whether a contender of this kind waits for an older one of the other kind.
    #[must_use]
    pub fn waits_for(self, older: Self) -> bool {
        (self, older) != (Self::Read, Self::Read)
    }

    /// Whether its release hands the lock over: readers share it with others.
    #[must_use]
    pub fn hands_over(self) -> bool {
        self != Self::Read
    }

    /// Whether the deletion of its node means that it has left: a downgrade deletes the node of a writer.
    #[must_use]
    pub fn is_plain(self) -> bool {
        self == Self::Lock
    }
}

/// The name of a contender's node under a lock path. The driver has the texts, and numbers the nodes of other clients.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    pub number: i32,
    pub guid: u128,
    pub kind: Kind,
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nonce, op, attempt) = (self.guid >> 64, self.guid >> 32 & 0xffff_ffff, self.guid & 0xffff_ffff);
        write!(f, "{:?}-{nonce:x}.{op}.{attempt}-{}", self.kind, self.number)
    }
}

/// The contenders under a lock path, sorted. The driver parses and sorts them.
pub type Listing = Arc<[Name]>;
