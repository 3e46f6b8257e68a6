//! Until when the servers are certain not to give a session's locks away.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;

/// Microseconds of a clock that the driver reads. It runs on while the computer sleeps, and nobody can set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// The moment that is later by this many microseconds.
    #[must_use]
    pub(crate) fn plus(self, by: u64) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// The moment that is earlier by this many microseconds.
    #[must_use]
    pub(crate) fn minus(self, by: u64) -> Self {
        Self(self.0.saturating_sub(by))
    }

    /// How many microseconds have passed since an earlier moment.
    #[must_use]
    pub(crate) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// What answers prove about the session. The explorer replaces it by one bit.
pub(crate) trait Trust: Clone + Eq + Hash + Debug {
    /// A request was answered: by a quorum, or perhaps by one server alone.
    fn answered(&mut self, by_quorum: bool, sent: Moment, now: Moment);

    /// Until when the session certainly lives.
    fn until(&self) -> Moment;

    /// Whether trust lasts long enough to begin a hold: until it is renewed, if the servers answer.
    fn suffices(&self, now: Moment) -> bool;

    /// The session was taken back, by a request that was sent at `since` or later.
    fn reconnected(&mut self, since: Moment);

    /// Whether a write that is answered before trust ends would extend trust because of a reconnect.
    fn is_reconnected(&self, now: Moment) -> bool;

    /// When trust has to be renewed by a write.
    fn due(&self) -> Moment;

    /// When a read has to go out, so that a later write proves something.
    fn read_due(&self) -> Moment;

    /// The process is seen to run, and the computer has slept for so long since it was seen last. Called often.
    fn beat(&mut self, now: Moment, slept: u64, is_up: bool);

    /// When the session counts as silent unless an answer comes.
    fn fresh_until(&self) -> Moment;

    /// Whether an answer to a request that was sent then is recent enough for a grant.
    fn is_recent(&self, sent: Moment, now: Moment) -> bool;

    /// Another session was created, at this moment or later, and is connected now.
    fn renewed(&mut self, timeout: u64, created: Option<Moment>, now: Moment);
}

/// The account of a session's answers, for a session timeout *T*. docs/design/trust.md has the rule and its reasons.
///
/// 1. A pair of exchanges, or the creation of the session, is trusted for *T*; a single write for less.
/// 2. A write after a reconnect is trusted for *T* from the last look at the connection before, if trust had not lapsed.
/// 3. Trust ends *T*/64 before it could, so that a timer that is a little late is not too late.
/// 4. Reads go out a quarter of a timeout apart, and a write when five twelfths are left: by then the relay time of the newest
///    read is over.
///    A hold begins when trust lasts for an eighth more than until it can be renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    timeout: u64,
    /// When requests were sent and answered that a later write may turn into trust. The oldest comes first.
    candidates: VecDeque<(Moment, Moment)>,
    until: Moment,
    newest_answer: Moment,
    newest_write: Moment,
    /// When the read was sent by which the next is timed.
    newest_read: Moment,
    /// The session was taken back, by a request that was sent then or later, and no write has been answered since.
    reconnected: Option<Moment>,
    /// When the process was seen to run with a connection. The newest comes last.
    awake: VecDeque<Moment>,
    /// When the computer slept, and for how long.
    sleeps: VecDeque<(Moment, u64)>,
}

impl Ledger {
    /// The account of a session that is connected now, and that was created at this moment or later, if that is known. If not,
    /// its process is taken to have run until now.
    #[must_use]
    pub(crate) fn new(timeout: u64, created: Option<Moment>, now: Moment) -> Self {
        Self {
            timeout,
            candidates: VecDeque::new(),
            until: created.map_or(now, |created| created.plus(timeout)),
            newest_answer: now,
            newest_write: now,
            newest_read: now,
            reconnected: None,
            awake: created.into_iter().chain([now]).collect(),
            sleeps: VecDeque::new(),
        }
    }

    /// How long a follower may take to pass a touch of the session on to the leader.
    fn relay(&self) -> u64 {
        self.timeout / 3
    }

    /// The resolution of the account: exchanges that are closer together count as one, so it stays short.
    fn resolution(&self) -> u64 {
        self.timeout / 64
    }

    /// How long a single write is trusted while the client pings every *T*/5 on time: *T*, less the time between two pings
    /// and the relay time.
    fn single_write(&self) -> u64 {
        self.timeout * 7 / 15
    }

    /// How long a single answered write that was sent at this moment is trusted. The client's pings may have been late: one
    /// stall delays a ping once, because its timer keeps running; each sleep of the computer delays it again, because the timer
    /// stands still.
    fn single_write_trust(&self, sent: Moment) -> u64 {
        let before = self.awake.iter().copied().filter(|awake| *awake < sent).chain([sent]);
        let gap = before.clone().zip(before.skip(1)).map(|(earlier, later)| later.since(earlier)).max();
        let slept: u64 = self.sleeps.iter().map(|(_, by)| *by).sum();
        self.single_write().saturating_sub(gap.unwrap_or_default().saturating_add(slept))
    }

    /// Notes that the computer has slept since the process was last seen to run.
    fn slept(&mut self, now: Moment, by: u64) {
        while self.sleeps.front().is_some_and(|(at, _)| now.since(*at) > self.timeout) {
            self.sleeps.pop_front();
        }
        if by > 0 {
            self.sleeps.push_back((now, by));
        }
    }

    /// Notes that the process is running with a connection; called often, so that a stall shows as a gap, and a lost
    /// connection as well: while a session is taken back, nothing of it reaches the leader.
    fn awake(&mut self, now: Moment) {
        if now.since(self.last_awake()) >= self.resolution() {
            self.awake.push_back(now);
        }
        // Older pings than a timeout are worth nothing, and the gap before them with them.
        while self.awake.get(1).is_some_and(|second| now.since(*second) > self.timeout) {
            self.awake.pop_front();
        }
    }

    fn last_awake(&self) -> Moment {
        self.awake.back().copied().unwrap_or_default()
    }

    /// Whether a single write is trusted for long enough to renew trust again and again.
    fn is_renewed_by_one(&self) -> bool {
        self.single_write_trust(self.last_awake()) > self.timeout / 4
    }

    /// When the next write is due.
    fn write_due(&self) -> Moment {
        let Some((_, first)) = self.relays().next() else { return self.last_awake() };
        let latest = self.until.minus(self.timeout / 4);
        let spare = self.until.minus(self.timeout * 5 / 12);
        let gains = |by: u64| self.relays().find(move |(sent, _)| sent.plus(self.timeout) >= self.until.plus(by));
        // It waits a little for an exchange that is worth the write, since a write for each small gain would be many.
        if let Some((_, ride)) = gains(self.timeout / 6)
            && ride <= spare.plus(self.timeout / 64)
        {
            return ride.max(spare);
        }
        if let Some((_, ride)) = gains(self.timeout / 16)
            && ride <= latest
        {
            return ride.max(spare);
        }
        if first <= latest {
            return latest.max(self.newest_write.plus(self.timeout / 24));
        }
        let spare = self.until.minus(self.timeout / 3);
        if self.is_renewed_by_one() {
            // By the single-write rule a write gains something all the same, but not every write should have to.
            return spare.max(self.newest_write.plus(self.timeout / 24));
        }
        spare.max(first)
    }

    /// Of each request that a later write may turn into trust: when it was sent, and from when on such a write may be sent.
    fn relays(&self) -> impl Iterator<Item = (Moment, Moment)> {
        self.candidates.iter().map(|(sent, answered)| (*sent, answered.plus(self.relay())))
    }
}

impl Trust for Ledger {
    fn answered(&mut self, by_quorum: bool, sent: Moment, now: Moment) {
        // If trust has lapsed, the leader may have been ending the session when it was asked for it.
        let has_lasted = self.until() > now;
        self.awake(now);
        self.newest_answer = self.newest_answer.max(now);
        // One that comes soon after another does not delay the next.
        if !by_quorum && sent >= self.newest_read.plus(self.timeout * 3 / 16) {
            self.newest_read = sent;
        }
        if by_quorum {
            self.newest_write = self.newest_write.max(now);
            let ride = self.relay();
            while let Some((first, _)) =
                self.candidates.front().filter(|(_, answered)| answered.plus(ride) <= sent)
            {
                self.until = self.until.max(first.plus(self.timeout));
                self.candidates.pop_front();
            }
            if sent.plus(self.single_write()) > self.until {
                self.until = self.until.max(sent.plus(self.single_write_trust(sent)));
            }
            if let Some(since) = self.reconnected.take().filter(|_| has_lasted) {
                self.until = self.until.max(since.plus(self.timeout));
            }
        }
        // Without writes the old ones are of no use.
        while self.candidates.front().is_some_and(|(first, _)| first.plus(self.timeout) <= now) {
            self.candidates.pop_front();
        }
        if self.candidates.back().is_none_or(|(last, _)| last.plus(self.resolution()) <= sent) {
            self.candidates.push_back((sent, now));
        }
    }

    fn until(&self) -> Moment {
        self.until.minus(self.timeout / 64)
    }

    fn suffices(&self, now: Moment) -> bool {
        let renewed = if self.is_renewed_by_one() {
            now
        } else {
            now.max(self.candidates.front().map_or(now, |(_, answered)| *answered).plus(self.relay()))
        };
        self.until() > renewed.plus(self.timeout / 8)
    }

    fn reconnected(&mut self, since: Moment) {
        self.reconnected = Some(since);
    }

    fn is_reconnected(&self, now: Moment) -> bool {
        self.reconnected.is_some() && self.until() > now
    }

    fn due(&self) -> Moment {
        let now = self.last_awake();
        if self.is_reconnected(now) { now } else { self.write_due() }
    }

    fn read_due(&self) -> Moment {
        // Reads have deadlines of their own. Scheduled after the writes, they would make the writes come early and late in turn.
        if self.candidates.is_empty() { self.last_awake() } else { self.newest_read.plus(self.timeout / 4) }
    }

    fn beat(&mut self, now: Moment, slept: u64, is_up: bool) {
        self.slept(now, slept);
        if is_up {
            self.awake(now);
        }
    }

    fn fresh_until(&self) -> Moment {
        self.newest_answer.plus(self.timeout / 2)
    }

    fn is_recent(&self, sent: Moment, now: Moment) -> bool {
        now <= sent.plus(self.timeout / 8)
    }

    fn renewed(&mut self, timeout: u64, created: Option<Moment>, now: Moment) {
        *self = Self::new(timeout, created, now);
    }
}

#[cfg(test)]
mod tests;
