//! Owns the rule of trust: until when the servers are sure not to give a session's locks away.
//!
//! The rule is pure: it is told of exchanges (when a request was sent, when its answer came) and computes instants.
//!
//! 1. The leader alone ends sessions, one timeout `T` after it last heard of them. Behind a follower it hears of a
//!    session only through the follower's answers to its pings: an answered read proves nothing, and an answered
//!    write proves that a quorum is there, but does not touch the session.
//! 2. So trust needs two exchanges. The first touched the session at the follower, not before it was *sent*. It is
//!    assumed that a follower answers a ping of the leader within `T/3`; so `T/3` after the first exchange was
//!    *answered*, the touch is on its way to the leader. A write that is sent after that and answered proves that the
//!    leader has it: both travel on one connection, in order. Hence: trusted for `T` from the sending of the first.
//! 3. A session without such a pair yet is trusted for `T/2` from the sending of an answered write: the client pings
//!    every `0.15 T`, so some ping was on its way to the leader at most `0.5 T` before the write. This needs a process
//!    that was awake all the time; after a stall only rule 2 counts, until `T/2` have passed.
//! 4. Trust ends `T/64` before it could, so that a timer that is a little late is not too late.
//! 5. So trust never lapses while writes are answered within `T/14` (of rule 3's `T/2`, rule 2 takes `T/3` and rule 4
//!    its share; two round trips have to fit into the rest).
//! 6. Instants are of a clock that runs on while the machine sleeps, and never of the wall clock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::options::Trust;

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
        Self(
            Duration::from_secs(seconds)
                + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or_default()),
        )
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    fn minus(self, duration: Duration) -> Self {
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
    /// Answered by the connected server alone.
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
    timeout: Duration,
    /// Exchanges that a later write can turn into trust, oldest first.
    candidates: VecDeque<Exchange>,
    quorum_until: Moment,
    connection_until: Moment,
    newest_answer: Moment,
    last_awake: Moment,
    stalled: Option<Moment>,
}

impl Ledger {
    /// The ledger of a session that has just been connected.
    pub(crate) fn new(timeout: Duration, now: Moment) -> Self {
        Self {
            timeout,
            candidates: VecDeque::new(),
            quorum_until: now,
            connection_until: now,
            newest_answer: now,
            last_awake: now,
            stalled: None,
        }
    }

    /// How long a touch may take from a follower to the leader.
    fn ride(&self) -> Duration {
        self.timeout / 3
    }

    /// Notes that the process is running; called often, so that a stall shows as a gap.
    pub(crate) fn awake(&mut self, now: Moment) {
        if now.since(self.last_awake) > self.timeout / 4 {
            self.stalled = Some(now);
        }
        self.last_awake = self.last_awake.max(now);
    }

    /// Notes an answered exchange.
    pub(crate) fn answered(&mut self, exchange: Exchange) {
        self.awake(exchange.answered);
        self.newest_answer = self.newest_answer.max(exchange.answered);
        self.connection_until = self.connection_until.max(exchange.sent.plus(self.timeout));
        if exchange.request == Request::Write {
            self.prove(exchange.sent);
        }
        self.keep(exchange);
    }

    /// A write sent at `sent` was answered: what rode to the leader before it has arrived.
    fn prove(&mut self, sent: Moment) {
        while let Some(candidate) = self
            .candidates
            .front()
            .filter(|first| first.answered.plus(self.ride()) <= sent)
        {
            self.quorum_until = self.quorum_until.max(candidate.sent.plus(self.timeout));
            self.candidates.pop_front();
        }
        let awake = self
            .stalled
            .is_none_or(|stalled| sent >= stalled.plus(self.timeout / 2));
        if awake {
            self.quorum_until = self.quorum_until.max(sent.plus(self.timeout / 2));
        }
    }

    fn keep(&mut self, exchange: Exchange) {
        // One candidate in a while is enough; without writes the old ones are of no use.
        let stale = |first: &Exchange| first.sent.plus(self.timeout) <= exchange.answered;
        while self.candidates.front().is_some_and(stale) {
            self.candidates.pop_front();
        }
        if self
            .candidates
            .back()
            .is_none_or(|last| last.sent.plus(self.timeout / 64) <= exchange.sent)
        {
            self.candidates.push_back(exchange);
        }
    }

    /// The end of trust, as far as is known now. It never moves back.
    pub(crate) fn until(&self, trust: Trust) -> Moment {
        let end = match trust {
            Trust::Quorum => self.quorum_until,
            Trust::Connection => self.connection_until,
        };
        end.minus(self.timeout / 64)
    }

    /// Whether the newest answer is younger than half of the timeout.
    pub(crate) fn is_fresh(&self, now: Moment) -> bool {
        now.since(self.newest_answer) <= self.timeout / 2
    }

    /// When freshness ends unless an answer comes.
    pub(crate) fn fresh_until(&self) -> Moment {
        self.newest_answer.plus(self.timeout / 2)
    }

    /// When the next request is due that keeps up trust.
    pub(crate) fn renewal_due(&self, trust: Trust) -> Moment {
        match trust {
            // A write proves the candidates that have had their ride; one a third of a timeout before the end will do.
            Trust::Quorum => match self.candidates.front() {
                None => self.last_awake,
                Some(first) => {
                    let spare = self.quorum_until.minus(self.ride());
                    spare.max(first.answered.plus(self.ride()))
                }
            },
            Trust::Connection => self.connection_until.minus(self.timeout * 2 / 3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A multiple of all the parts it is cut into.
    const T: u64 = 5_760;

    /// The end of trust that would be `at`, but for the timers.
    fn end(at: u64) -> Moment {
        Moment::at(at.saturating_sub(T / 64))
    }

    fn ledger() -> Ledger {
        Ledger::new(Duration::from_millis(T), Moment::at(0))
    }

    fn exchange(request: Request, sent: u64, answered: u64) -> Exchange {
        Exchange {
            request,
            sent: Moment::at(sent),
            answered: Moment::at(answered),
        }
    }

    /// Keeps a ledger awake up to `end`.
    fn stay_awake(ledger: &mut Ledger, from: u64, end: u64) {
        (from..=end)
            .step_by(100)
            .for_each(|now| ledger.awake(Moment::at(now)));
    }

    #[test]
    fn reads_alone_prove_nothing() {
        let mut ledger = ledger();
        for at in (0..20_000).step_by(500) {
            ledger.answered(exchange(Request::Read, at, at + 1));
        }
        assert_eq!(ledger.until(Trust::Quorum), end(0));
        assert_eq!(ledger.until(Trust::Connection), end(19_500 + T));
    }

    #[test]
    fn first_write_is_trusted_for_half_a_timeout() {
        let mut ledger = ledger();
        ledger.answered(exchange(Request::Write, 100, 110));
        assert_eq!(ledger.until(Trust::Quorum), end(100 + T / 2));
    }

    #[test]
    fn second_write_proves_the_first_after_its_ride() {
        let mut ledger = ledger();
        ledger.answered(exchange(Request::Write, 100, 110));
        stay_awake(&mut ledger, 100, 2_000);
        ledger.answered(exchange(Request::Write, 109 + T / 3, 2_120));
        assert_eq!(
            ledger.until(Trust::Quorum),
            end(109 + T / 3 + T / 2),
            "a millisecond too early"
        );
        ledger.answered(exchange(Request::Write, 110 + T / 3, 2_120));
        assert_eq!(ledger.until(Trust::Quorum), end(100 + T));
    }

    #[test]
    fn after_a_stall_half_a_timeout_is_not_given_away() {
        let mut ledger = ledger();
        ledger.awake(Moment::at(5_500));
        ledger.answered(exchange(Request::Write, 5_600, 5_610));
        assert_eq!(ledger.until(Trust::Quorum), end(0));
        stay_awake(&mut ledger, 5_600, 7_600);
        ledger.answered(exchange(Request::Write, 7_610, 7_620));
        assert_eq!(
            ledger.until(Trust::Quorum),
            end(5_600 + T),
            "a pair still counts"
        );
        stay_awake(&mut ledger, 7_620, 8_500);
        ledger.answered(exchange(Request::Write, 8_700, 8_710));
        assert_eq!(ledger.until(Trust::Quorum), end(8_700 + T / 2));
    }

    #[test]
    fn steady_renewal_never_lets_trust_lapse() {
        for trip in [0, 20, 300, T / 14] {
            let mut ledger = ledger();
            ledger.answered(exchange(Request::Write, 0, trip));
            let mut now = trip;
            for _ in 0..50 {
                let due = (now..).find(|&at| {
                    ledger.awake(Moment::at(at));
                    Moment::at(at) >= ledger.renewal_due(Trust::Quorum)
                });
                let due = due.expect("a renewal comes due");
                now = due + trip;
                assert!(
                    ledger.until(Trust::Quorum) > Moment::at(now),
                    "lapsed at {now} with round trips of {trip}"
                );
                ledger.answered(exchange(Request::Write, due, now));
                assert!(
                    due + T / 3 + 1 >= now - trip,
                    "writes no more often than needed"
                );
            }
        }
    }

    /// The rule as a sentence, over the whole history, without any bookkeeping.
    fn naive(history: &[Exchange], stalls: &[Moment]) -> Moment {
        let timeout = Duration::from_millis(T);
        let writes = || history.iter().filter(|one| one.request == Request::Write);
        let pairs = history.iter().flat_map(|first| {
            let proven = writes().any(|write| first.answered.plus(timeout / 3) <= write.sent);
            proven.then(|| first.sent.plus(timeout))
        });
        let cold = writes().filter_map(|write| {
            let stall = stalls
                .iter()
                .filter(|&&stall| stall <= write.answered)
                .max();
            let awake = stall.is_none_or(|stall| write.sent >= stall.plus(timeout / 2));
            awake.then(|| write.sent.plus(timeout / 2))
        });
        pairs
            .chain(cold)
            .max()
            .unwrap_or(Moment::at(0))
            .minus(timeout / 64)
    }

    #[test]
    fn never_more_than_the_naive_rule_and_hardly_less() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut ledger, mut history, mut stalls) = (ledger(), Vec::new(), Vec::new());
            let (mut now, mut awake) = (0, 0);
            for _ in 0..60 {
                let sent = now + random.u64(0..1_200);
                let answered = sent + random.u64(0..900);
                if answered - awake > T / 4 {
                    stalls.push(Moment::at(answered));
                }
                awake = answered;
                let request = if random.bool() {
                    Request::Read
                } else {
                    Request::Write
                };
                let one = exchange(request, sent, answered);
                ledger.answered(one);
                history.push(one);
                now = answered.max(sent);
                let (found, most) = (ledger.until(Trust::Quorum), naive(&history, &stalls));
                assert!(
                    found <= most,
                    "seed {seed}: {found:?} is more than {most:?}"
                );
                assert!(
                    most.since(found) <= Duration::from_millis(T / 64),
                    "seed {seed}: {found:?} of {most:?}"
                );
            }
        }
    }

    /// A leader and a follower as rule 1 has them: the follower answers pings within a third of the timeout, until
    /// the link between the two breaks; writes need the link.
    #[test]
    fn trust_ends_before_the_leader_may_end_the_session() {
        let mut smallest = u64::MAX;
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let breaks = random.u64(T..4 * T);
            let ride = random.u64(1..=T / 3);
            let mut pings: Vec<u64> = vec![0];
            while pings[pings.len() - 1] < breaks {
                pings.push(pings[pings.len() - 1] + random.u64(1..=ride));
            }
            // What the leader heard: at each ping's answer, all touches until then.
            let mut ledger = ledger();
            let mut touches = vec![0];
            let mut now = 0;
            while now < breaks + T {
                let trip = random.u64(2..400);
                let (arrives, answered) = (now + trip / 2, now + trip);
                let request = if random.u8(0..3) == 0 {
                    Request::Read
                } else {
                    Request::Write
                };
                touches.push(arrives);
                // A write passes the link on its way there; a read is answered by the follower alone.
                if request == Request::Read || arrives <= breaks {
                    ledger.answered(exchange(request, now, answered));
                }
                (now..answered)
                    .step_by(50)
                    .for_each(|at| ledger.awake(Moment::at(at)));
                let pause = random.u64(1..T / 7);
                (answered..answered + pause)
                    .step_by(50)
                    .for_each(|at| ledger.awake(Moment::at(at)));
                now = answered + pause;
            }
            let heard = pings.iter().filter(|&&ping| ping <= breaks);
            let newest = heard
                .filter_map(|&ping| touches.iter().filter(|&&touch| touch <= ping).max())
                .max();
            let ends = newest.copied().unwrap_or(0) + T;
            let trusted = ledger
                .until(Trust::Quorum)
                .plus(Duration::from_millis(T / 64));
            assert!(
                trusted <= Moment::at(ends),
                "seed {seed}: trusted until {trusted:?}, ended at {ends}"
            );
            smallest = smallest.min(Moment::at(ends).since(trusted).as_millis() as u64);
        }
        assert!(smallest < T, "the model must come near the rule");
    }
}
