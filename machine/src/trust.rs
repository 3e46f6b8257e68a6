//! Until when the servers are certain not to give a session's locks away.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;

/// Microseconds of a clock that the driver reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment that is later by this many microseconds.
    #[must_use]
    pub fn plus(self, by: u64) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// The moment that is earlier by this many microseconds.
    #[must_use]
    pub fn minus(self, by: u64) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

/// What answers prove about the session. The explorer replaces it by one bit.
pub trait Trust: Clone + Eq + Hash + Debug {
    /// A request was answered: by a quorum, or perhaps by one server alone.
    fn answered(&mut self, by_quorum: bool, sent: Moment, now: Moment);

    /// Until when the session certainly lives.
    fn until(&self) -> Moment;

    /// When trust has to be renewed.
    fn due(&self) -> Moment;

    /// Whether an answer to a request that was sent then is recent enough for a grant.
    fn is_recent(&self, sent: Moment, now: Moment) -> bool;

    /// Another session was created, at the earliest now.
    fn renewed(&mut self, now: Moment);
}

/// The account of a session's answers: an exchange vouches for the session until its sending plus *T*, once a write that was sent
/// *T*/3 or more after its answer has been answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    timeout: u64,
    /// When requests were sent and answered that a later write may turn into trust. The oldest comes first.
    candidates: VecDeque<(Moment, Moment)>,
    until: Moment,
}

impl Ledger {
    /// A session of this timeout that was created at this moment or later.
    #[must_use]
    pub fn new(timeout: u64, created: Moment) -> Self {
        Self { timeout, candidates: VecDeque::new(), until: created.plus(timeout) }
    }
}

impl Trust for Ledger {
    fn answered(&mut self, by_quorum: bool, sent: Moment, now: Moment) {
        let ride = self.timeout / 3;
        while by_quorum
            && let Some((first, _)) = self.candidates.front().filter(|(_, answered)| answered.plus(ride) <= sent)
        {
            self.until = self.until.max(first.plus(self.timeout));
            self.candidates.pop_front();
        }
        while self.candidates.front().is_some_and(|(first, _)| first.plus(self.timeout) <= now) {
            self.candidates.pop_front();
        }
        if self.candidates.back().is_none_or(|(last, _)| last.plus(self.timeout / 64) <= sent) {
            self.candidates.push_back((sent, now));
        }
    }

    fn until(&self) -> Moment {
        self.until.minus(self.timeout / 64)
    }

    fn due(&self) -> Moment {
        let (spare, latest) = (self.until.minus(self.timeout / 3), self.until.minus(self.timeout / 4));
        let mut rides = self.candidates.iter().map(|(_, answered)| answered.plus(self.timeout / 3)).peekable();
        match rides.peek().copied() {
            None => Moment(0),
            Some(first) if first <= latest => {
                rides.take_while(|ride| *ride <= latest).last().unwrap_or(first).max(spare)
            }
            Some(first) => spare.max(first),
        }
    }

    fn is_recent(&self, sent: Moment, now: Moment) -> bool {
        now <= sent.plus(self.timeout / 8)
    }

    fn renewed(&mut self, now: Moment) {
        *self = Self::new(self.timeout, now);
    }
}
