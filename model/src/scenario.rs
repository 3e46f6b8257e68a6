//! Owns [`Scenario`]: who contends, how often, and which faults may happen.

use crate::order::Kind;

/// How many faults of each kind are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Connections that break.
    pub(crate) cuts: u8,
    /// Times that the trust of a session ends, after which the servers may end it.
    pub(crate) expiries: u8,
    /// Nodes that an operator deletes.
    pub(crate) hand: u8,
    /// Acquisitions that their caller drops.
    pub(crate) cancels: u8,
    /// Deletes that a server refuses.
    pub(crate) refusals: u8,
    /// The empty path is deleted and made again.
    pub(crate) remakes: u8,
    /// Of the deletions by hand (of nodes, of the path), these come after READ was taken: no event is sent.
    pub(crate) unseen: u8,
    /// Writers that become readers.
    pub(crate) downgrades: u8,
    /// Nodes that an operator creates, with an older number or the next.
    pub(crate) creates: u8,
    /// Sessions that somebody else ends with their password, while they are trusted.
    pub(crate) closes: u8,
    /// Connections that come back with a new session, unnoticed.
    pub(crate) replaced: u8,
}

/// A task of a session: what it locks, through which link, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub(crate) kind: Kind,
    pub(crate) link: u8,
    pub(crate) times: u8,
}

/// A mutex, locked this often.
pub(crate) const fn mutex(times: u8) -> Contender {
    Contender { kind: Kind::Lock, link: 0, times }
}

pub(crate) const fn reader(times: u8) -> Contender {
    Contender { kind: Kind::Read, link: 0, times }
}

pub(crate) const fn writer(times: u8) -> Contender {
    Contender { kind: Kind::Write, link: 0, times }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The tasks of each session.
    pub(crate) sessions: &'static [&'static [Contender]],
    pub(crate) budget: Budget,
    /// Whether waits are checked to end. Not where events are denied, or a node may not be deleted: the slow look and the
    /// end of a session, which end those waits, are not modelled.
    pub(crate) waits_end: bool,
}

impl Scenario {
    /// Whether all sessions do the same, so that they may be exchanged.
    pub(crate) fn is_symmetric(&self) -> bool {
        let alike = |one: &[Contender], other: &[Contender]| {
            one.len() == 1 && other.len() == 1 && (one[0].kind, one[0].times) == (other[0].kind, other[0].times)
        };
        self.sessions.windows(2).all(|pair| alike(pair[0], pair[1]))
    }
}
