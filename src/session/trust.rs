//! Owns the rule of trust: until when the servers are sure not to give a session's locks away.
//!
//! The rule is pure: it is given exchanges (when a request was sent, when its answer came) and computes instants.
//! DESIGN.md, "Argued: trust", states it, with its assumptions and its reasons. Of these, the code relies on:
//!
//! 1. A pair of exchanges, or the creation of the session, is trusted for `T`; a single write for less.
//! 2. Trust ends `T/64` before it could, so that a timer that is a little late is not too late.
//! 3. A renewal is due a third of a timeout before the end. It waits for the pair if a quarter then remains.
//!    A hold begins when trust lasts for an eighth more than until it can be renewed.
//! 4. Instants are of a clock that runs on while the machine sleeps, and never of the wall clock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::session::times::Times;

/// An instant of the system's boot time: it runs on during sleep, and nobody can set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = rustix::time::ClockId::Boottime;
        // Elsewhere the monotonic clock is the nearest there is.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(clock);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Self(Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or_default()))
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    pub(crate) fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    #[cfg(test)]
    pub(crate) fn at(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

/// What kind of request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Answered by the connected server, maybe by that alone.
    Read,
    /// Answered by a quorum.
    Write,
}

/// One request and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    pub(crate) sent: Moment,
    pub(crate) answered: Moment,
}

/// What a session knows of its own life.
#[derive(Debug)]
pub(crate) struct Ledger {
    times: Times,
    /// Exchanges that a later write can turn into trust, oldest first.
    candidates: VecDeque<Exchange>,
    trusted_until: Moment,
    newest_answer: Moment,
    newest_proof: Moment,
    /// When the process was seen to run with a connection, newest last.
    awake: VecDeque<Moment>,
    /// When the machine slept, and for how long, newest last.
    sleeps: VecDeque<(Moment, Duration)>,
}

impl Ledger {
    /// The ledger of a session whose client is connected `now`, and that was created after `created`, if that is known.
    /// If not, its process is taken to have run until now.
    pub(crate) fn new(timeout: Duration, created: Option<Moment>, now: Moment) -> Self {
        let until = created.map_or(now, |created| created.plus(timeout));
        Self {
            times: Times::of(timeout),
            candidates: VecDeque::new(),
            trusted_until: until,
            newest_answer: now,
            newest_proof: now,
            awake: created.into_iter().chain([now]).collect(),
            sleeps: VecDeque::new(),
        }
    }

    /// How long an answered write alone is trusted that was sent at `sent`: what two pings of the client and the ride
    /// of the first leave of the timeout, if the process may have stood still as long as it was not seen to run. A ping
    /// is late by one stall, since its timer goes on meanwhile, but by every sleep, which its timer sleeps through.
    fn cold(&self, sent: Moment) -> Duration {
        let before = self.awake.iter().copied().filter(|&awake| awake < sent).chain([sent]);
        let gaps = before.clone().zip(before.skip(1)).map(|(one, next)| next.since(one));
        let slept: Duration = self.sleeps.iter().map(|(_, by)| *by).sum();
        self.times.single_write().saturating_sub(gaps.max().unwrap_or_default() + slept)
    }

    /// Notes that the machine has slept since the process was last seen to run.
    pub(crate) fn slept(&mut self, now: Moment, by: Duration) {
        while self.sleeps.front().is_some_and(|(at, _)| now.since(*at) > self.times.session_timeout()) {
            self.sleeps.pop_front();
        }
        if !by.is_zero() {
            self.sleeps.push_back((now, by));
        }
    }

    /// Notes that the process is running with a connection; called often, so that a stall shows as a gap, and a lost
    /// connection as well: while a session is taken back, nothing of it reaches the leader.
    pub(crate) fn awake(&mut self, now: Moment) {
        if now.since(self.last_awake()) >= self.times.grain() {
            self.awake.push_back(now);
        }
        // Older pings than a timeout are worth nothing, and the gap before them with them.
        while self.awake.get(1).is_some_and(|second| now.since(*second) > self.times.session_timeout()) {
            self.awake.pop_front();
        }
    }

    fn last_awake(&self) -> Moment {
        *self.awake.back().expect("it begins with one")
    }

    /// Notes an answered exchange.
    pub(crate) fn answered(&mut self, exchange: Exchange) {
        self.awake(exchange.answered);
        self.newest_answer = self.newest_answer.max(exchange.answered);
        if exchange.request == Request::Write {
            self.newest_proof = self.newest_proof.max(exchange.answered);
            self.prove(exchange.sent);
        }
        self.keep(exchange);
    }

    /// A write sent at `sent` was answered: what rode to the leader before it has arrived.
    fn prove(&mut self, sent: Moment) {
        while let Some(candidate) =
            self.candidates.front().filter(|first| first.answered.plus(self.times.ride()) <= sent)
        {
            self.trusted_until = self.trusted_until.max(candidate.sent.plus(self.times.session_timeout()));
            self.candidates.pop_front();
        }
        if sent.plus(self.times.single_write()) > self.trusted_until {
            self.trusted_until = self.trusted_until.max(sent.plus(self.cold(sent)));
        }
    }

    fn keep(&mut self, exchange: Exchange) {
        // One candidate in a while is enough; without writes the old ones are of no use.
        let stale = |first: &Exchange| first.sent.plus(self.times.session_timeout()) <= exchange.answered;
        while self.candidates.front().is_some_and(stale) {
            self.candidates.pop_front();
        }
        if self.candidates.back().is_none_or(|last| last.sent.plus(self.times.grain()) <= exchange.sent) {
            self.candidates.push_back(exchange);
        }
    }

    /// The end of trust, as far as is known now. It never moves back.
    pub(crate) fn until(&self) -> Moment {
        self.trusted_until.minus(self.times.lateness())
    }

    /// Whether trust lasts long enough to begin a hold: until it is renewed, if the servers answer.
    pub(crate) fn suffices(&self, now: Moment) -> bool {
        let renewed = if self.is_renewed_by_one() {
            now
        } else {
            now.max(self.candidates.front().map_or(now, |first| first.answered).plus(self.times.ride()))
        };
        self.until() > renewed.plus(self.times.spare_trust())
    }

    /// Whether a single write is trusted for long enough to renew trust again and again.
    fn is_renewed_by_one(&self) -> bool {
        self.cold(self.last_awake()) > self.times.enough_by_one_write()
    }

    /// Whether the newest answer is younger than half of the timeout.
    pub(crate) fn is_fresh(&self, now: Moment) -> bool {
        now.since(self.newest_answer) <= self.times.suspended()
    }

    /// When freshness ends unless an answer comes.
    pub(crate) fn fresh_until(&self) -> Moment {
        self.newest_answer.plus(self.times.suspended())
    }

    /// When the next request is due that keeps up trust.
    pub(crate) fn renewal_due(&self) -> Moment {
        // Trust may last for longer than a hold is called fresh.
        self.proof_due().min(self.newest_answer.plus(self.times.answer_due()))
    }

    /// When the next write is due: a third of a timeout before the end, and no sooner than it proves something.
    fn proof_due(&self) -> Moment {
        let spare = self.trusted_until.minus(self.times.renewal());
        let latest = self.trusted_until.minus(self.times.latest_renewal());
        let mut rides = self.candidates.iter().map(|candidate| candidate.answered.plus(self.times.ride()));
        let Some(first) = rides.next() else {
            return self.last_awake();
        };
        if first <= latest {
            // Waiting for a little longer may prove a younger exchange.
            return rides.take_while(|ride| *ride <= latest).last().unwrap_or(first).max(spare);
        }
        if self.is_renewed_by_one() {
            // By the single-write rule a write gains something all the same, but not every write should have to.
            return spare.max(self.newest_proof.plus(self.times.between_single_writes()));
        }
        spare.max(first)
    }
}

#[cfg(test)]
mod tests;
