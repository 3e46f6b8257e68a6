//! Computes until when the servers certainly do not give a session's locks away.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;

/// A time in microseconds, by a clock that the driver reads. The clock cannot be set. It should run on while the computer
/// sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the time `by` microseconds later.
    #[must_use]
    pub fn plus(self, by: u64) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// Returns the time `by` microseconds earlier.
    #[must_use]
    pub fn minus(self, by: u64) -> Self {
        Self(self.0.saturating_sub(by))
    }

    /// Returns how many microseconds have passed since an earlier time.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// What answers prove about the session. The explorer replaces the [`Ledger`] with one bit.
pub trait Trust: Clone + Eq + Hash + Debug {
    /// Notes an answer to a request. `by_quorum`: a quorum certainly answered, not just one server.
    fn answered(&mut self, by_quorum: bool, sent: Moment, now: Moment);

    /// Returns until when the session is certainly alive.
    fn until(&self) -> Moment;

    /// Returns whether trust lasts long enough to begin a hold: until it can be renewed, if the servers answer.
    fn suffices(&self, now: Moment) -> bool;

    /// Notes a reconnect to the same session. The connect request was sent at `since` or later.
    fn reconnected(&mut self, since: Moment);

    /// Returns whether a write can extend trust because of a reconnect, if it is answered before trust ends.
    fn is_reconnected(&self, now: Moment) -> bool;

    /// Returns when the next write has to go out to renew trust.
    fn due(&self) -> Moment;

    /// Returns when the next read has to go out, so that a later write proves something.
    fn read_due(&self) -> Moment;

    /// Notes that the process is running. `slept`: the microseconds that the computer has slept since the last
    /// call.
    fn beat(&mut self, now: Moment, slept: u64, is_up: bool);

    /// Returns when the session counts as silent, unless an answer comes before.
    fn fresh_until(&self) -> Moment;

    /// Returns whether an answer to a request that was sent at `sent` is recent enough for a grant.
    fn is_recent(&self, sent: Moment, now: Moment) -> bool;

    /// Starts over for a new session. It is connected at `now`, and was created at `created` or later. `timeout`: in
    /// microseconds.
    fn renewed(&mut self, timeout: u64, created: Moment, now: Moment);
}

/// The account of a session's answers, for a session timeout *T*. docs/design/trust.md has the rule and its reasons.
///
/// 1. A pair of exchanges vouches for *T* from the sending of the first, a creation for *T*, a single write for less.
/// 2. A write after a reconnect vouches for *T* from when the earlier connection was last seen up, if trust had not
///    lapsed.
/// 3. Trust ends *T*/64 early, so that a timer may be a little late.
/// 4. Reads go out *T*/4 apart. A write goes out when 5/12 *T* of trust are left: by then a read's relay time is over.
/// 5. A hold begins only if trust lasts *T*/8 longer than until it can be renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    timeout: u64,
    /// The exchanges that a later write may make count, as (sent, answered). The oldest comes first.
    candidates: VecDeque<(Moment, Moment)>,
    until: Moment,
    newest_answer: Moment,
    newest_write: Moment,
    /// The time when the last read that counts was sent. The next read is due *T*/4 later.
    newest_read: Moment,
    /// A reconnect since which no write was answered. The connect request was sent at this time or later.
    reconnected: Option<Moment>,
    /// When the process was seen running with a connection. The newest comes last.
    awake: VecDeque<Moment>,
    /// When the computer slept, and for how long.
    sleeps: VecDeque<(Moment, u64)>,
}

impl Ledger {
    /// Creates the account of a session, which is connected at `now`, and was created at `created` or later. Without
    /// `created`, the session is not trusted yet, and no earlier stall of the process is counted. `timeout`: in microseconds.
    #[must_use]
    pub fn new(timeout: u64, created: Option<Moment>, now: Moment) -> Self {
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

    /// Returns how long a follower server may take to pass a touch of the session on to the leader.
    fn relay(&self) -> u64 {
        self.timeout / 3
    }

    /// Returns the resolution of the account. Exchanges that are closer together count as one, so that the account
    /// stays short.
    fn resolution(&self) -> u64 {
        self.timeout / 64
    }

    /// Returns how long a single write is trusted if the client pings every *T*/5 on time. This is *T*, less the time
    /// between two pings and the relay time.
    fn single_write(&self) -> u64 {
        self.timeout * 7 / 15
    }

    /// Returns how long one answered write, sent at `sent`, is trusted. Late pings shorten that: by the longest stall
    /// or disconnect, counted once, and by every sleep of the computer.
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

    /// Notes that the process is running with a connection. The calls are frequent, so a stall or a lost connection
    /// shows as a gap. While the client reconnects, nothing of the session reaches the leader.
    fn awake(&mut self, now: Moment) {
        if now.since(self.last_awake()) >= self.resolution() {
            self.awake.push_back(now);
        }
        // Pings older than the timeout are worth nothing, and neither are the gaps before them.
        while self.awake.get(1).is_some_and(|second| now.since(*second) > self.timeout) {
            self.awake.pop_front();
        }
    }

    fn last_awake(&self) -> Moment {
        self.awake.back().copied().unwrap_or_default()
    }

    /// Returns whether a single write is trusted for long enough to renew trust again and again.
    fn is_renewed_by_one(&self) -> bool {
        self.single_write_trust(self.last_awake()) > self.timeout / 4
    }

    /// Returns when the next write is due.
    fn write_due(&self) -> Moment {
        let Some((_, first)) = self.relays().next() else { return self.last_awake() };
        let latest = self.until.minus(self.timeout / 4);
        let spare = self.until.minus(self.timeout * 5 / 12);
        let gains = |by: u64| self.relays().find(move |(sent, _)| sent.plus(self.timeout) >= self.until.plus(by));
        // Wait a little for an exchange whose gain is worth a write. Writing for each small gain would take too many
        // writes.
        if let Some((_, counts_at)) = gains(self.timeout / 6)
            && counts_at <= spare.plus(self.timeout / 64)
        {
            return counts_at.max(spare);
        }
        if let Some((_, counts_at)) = gains(self.timeout / 16)
            && counts_at <= latest
        {
            return counts_at.max(spare);
        }
        if first <= latest {
            return latest.max(self.newest_write.plus(self.timeout / 24));
        }
        let spare = self.until.minus(self.timeout / 3);
        if self.is_renewed_by_one() {
            // No pair is ready in time, but a single write gains some trust, too. Such writes keep a distance of
            // *T*/24.
            return spare.max(self.newest_write.plus(self.timeout / 24));
        }
        spare.max(first)
    }

    /// Returns, for each candidate exchange, when its request was sent, and the earliest time to send a later write
    /// that makes it count.
    fn relays(&self) -> impl Iterator<Item = (Moment, Moment)> {
        self.candidates.iter().map(|(sent, answered)| (*sent, answered.plus(self.relay())))
    }
}

impl Trust for Ledger {
    fn answered(&mut self, by_quorum: bool, sent: Moment, now: Moment) {
        // If trust has lapsed, the leader may already have been expiring the session at the reconnect.
        let has_lasted = self.until() > now;
        self.awake(now);
        self.newest_answer = self.newest_answer.max(now);
        // A read that comes soon after another does not delay the next.
        if !by_quorum && sent >= self.newest_read.plus(self.timeout * 3 / 16) {
            self.newest_read = sent;
        }
        if by_quorum {
            self.newest_write = self.newest_write.max(now);
            let relay = self.relay();
            while let Some((first, _)) =
                self.candidates.front().filter(|(_, answered)| answered.plus(relay) <= sent)
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
        // Exchanges older than the timeout gain nothing any more.
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
        // Reads have their own deadlines. If they were scheduled after the writes, writes would come early and late in
        // turn.
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

    fn renewed(&mut self, timeout: u64, created: Moment, now: Moment) {
        *self = Self::new(timeout, Some(created), now);
    }
}

#[cfg(test)]
mod tests;
