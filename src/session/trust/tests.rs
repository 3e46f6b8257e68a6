//! The rule of trust, by example, against a naive twin, and against a model of a leader and a follower.

use super::*;

/// A multiple of all the parts it is cut into.
const T: u64 = 5_760;

/// What an answered write alone is worth.
const COLD: u64 = T * 9 / 20;

/// The end of trust that would be `at`, but for the timers.
fn end(at: u64) -> Moment {
    Moment::at(at.saturating_sub(T / 64))
}

fn ledger() -> Ledger {
    Ledger::new(Duration::from_millis(T), Moment::at(0))
}

fn exchange(request: Request, sent: u64, answered: u64) -> Exchange {
    Exchange { request, sent: Moment::at(sent), answered: Moment::at(answered) }
}

/// Keeps a ledger awake up to `end`.
fn stay_awake(ledger: &mut Ledger, from: u64, end: u64) {
    (from..=end).step_by(100).for_each(|now| ledger.awake(Moment::at(now)));
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
fn first_write_is_trusted_for_less_than_half_a_timeout() {
    let mut ledger = ledger();
    ledger.answered(exchange(Request::Write, 100, 110));
    assert_eq!(ledger.until(Trust::Quorum), end(100 + COLD));
}

#[test]
fn second_write_proves_the_first_after_its_ride() {
    let mut ledger = ledger();
    ledger.answered(exchange(Request::Write, 100, 110));
    stay_awake(&mut ledger, 100, 2_000);
    ledger.answered(exchange(Request::Write, 109 + T / 3, 2_120));
    assert_eq!(ledger.until(Trust::Quorum), end(109 + T / 3 + COLD), "a millisecond too early");
    ledger.answered(exchange(Request::Write, 110 + T / 3, 2_120));
    assert_eq!(ledger.until(Trust::Quorum), end(100 + T));
}

#[test]
fn after_a_stall_a_write_alone_is_not_trusted() {
    let mut ledger = ledger();
    ledger.awake(Moment::at(5_500));
    ledger.answered(exchange(Request::Write, 5_600, 5_610));
    assert_eq!(ledger.until(Trust::Quorum), end(0));
    stay_awake(&mut ledger, 5_600, 7_600);
    ledger.answered(exchange(Request::Write, 7_610, 7_620));
    assert_eq!(ledger.until(Trust::Quorum), end(5_600 + T), "a pair still counts");
    stay_awake(&mut ledger, 7_620, 9_400);
    ledger.answered(exchange(Request::Write, 9_500, 9_510));
    assert_eq!(ledger.until(Trust::Quorum), end(9_500 + COLD), "half a timeout later it is again");
}

#[test]
fn steady_renewal_never_lets_trust_lapse() {
    for trip in [0, 20, 300, 600, T / 6] {
        let mut ledger = ledger();
        ledger.answered(exchange(Request::Write, 0, trip));
        let (mut now, mut writes) = (trip, 0);
        while now < 50 * T {
            assert!(
                ledger.until(Trust::Quorum) > Moment::at(now),
                "lapsed before {now} with round trips of {trip}"
            );
            let due = (now..).find(|&at| {
                ledger.awake(Moment::at(at));
                Moment::at(at) >= ledger.renewal_due(Trust::Quorum)
            });
            let due = due.expect("a renewal comes due");
            // Reads are faster than writes.
            let (read, write) = (due + trip / 10, due + trip);
            ledger.answered(exchange(Request::Read, due, read));
            stay_awake(&mut ledger, read, write);
            assert!(
                ledger.until(Trust::Quorum) > Moment::at(write),
                "lapsed by {write} with round trips of {trip}"
            );
            ledger.answered(exchange(Request::Write, due, write));
            (now, writes) = (write, writes + 1);
        }
        let most = if trip <= 300 { 160 } else { 250 };
        assert!((130..=most).contains(&writes), "{writes} writes in 50 timeouts with round trips of {trip}");
    }
}

#[test]
fn renewals_after_a_stall_keep_their_distance() {
    let mut ledger = ledger();
    ledger.answered(exchange(Request::Write, 0, 10));
    let mut now = 4 * T;
    ledger.awake(Moment::at(now));
    let mut writes = 0;
    while ledger.until(Trust::Quorum) <= Moment::at(now) {
        if Moment::at(now) >= ledger.renewal_due(Trust::Quorum) {
            ledger.answered(exchange(Request::Read, now, now + 1));
            ledger.answered(exchange(Request::Write, now, now + 2));
            writes += 1;
        }
        now += 3;
        ledger.awake(Moment::at(now));
    }
    assert!(writes <= 3, "{writes} writes");
    assert!(now <= 4 * T + T / 3 + 30, "trusted as soon as can be, not after {} ms", now - 4 * T);
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
        let stall = stalls.iter().filter(|&&stall| stall <= write.answered).max();
        let awake = stall.is_none_or(|stall| write.sent >= stall.plus(timeout / 2));
        awake.then(|| write.sent.plus(timeout * 9 / 20))
    });
    pairs.chain(cold).max().unwrap_or(Moment::at(0)).minus(timeout / 64)
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
            let request = if random.bool() { Request::Read } else { Request::Write };
            let one = exchange(request, sent, answered);
            ledger.answered(one);
            history.push(one);
            now = answered.max(sent);
            let (found, most) = (ledger.until(Trust::Quorum), naive(&history, &stalls));
            assert!(found <= most, "seed {seed}: {found:?} is more than {most:?}");
            assert!(most.since(found) <= Duration::from_millis(T / 64), "seed {seed}: {found:?} of {most:?}");
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
            let request = if random.u8(0..3) == 0 { Request::Read } else { Request::Write };
            touches.push(arrives);
            // A write passes the link on its way there; a read is answered by the follower alone.
            if request == Request::Read || arrives <= breaks {
                ledger.answered(exchange(request, now, answered));
            }
            (now..answered).step_by(50).for_each(|at| ledger.awake(Moment::at(at)));
            let pause = random.u64(1..T / 7);
            (answered..answered + pause).step_by(50).for_each(|at| ledger.awake(Moment::at(at)));
            now = answered + pause;
        }
        let heard = pings.iter().filter(|&&ping| ping <= breaks);
        let newest = heard.filter_map(|&ping| touches.iter().filter(|&&touch| touch <= ping).max()).max();
        let ends = newest.copied().unwrap_or(0) + T;
        let trusted = ledger.until(Trust::Quorum).plus(Duration::from_millis(T / 64));
        assert!(trusted <= Moment::at(ends), "seed {seed}: trusted until {trusted:?}, ended at {ends}");
        smallest = smallest.min(Moment::at(ends).since(trusted).as_millis() as u64);
    }
    assert!(smallest < T, "the model must come near the rule");
}

/// A cold session: the client pings every fifth of a timeout, and sends one write at any moment before the link breaks.
#[test]
fn first_write_is_not_trusted_for_longer_than_the_pings_allow() {
    let mut smallest = u64::MAX;
    for seed in 0..5_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let write = random.u64(T..2 * T);
        let mut touches = vec![0];
        while touches[touches.len() - 1] < write {
            touches.push(touches[touches.len() - 1] + T / 5);
        }
        // The follower answers the leader's pings as late as it may, and the link breaks right after the write.
        let mut pings = vec![random.u64(0..T / 3)];
        while pings[pings.len() - 1] < 3 * T {
            pings.push(pings[pings.len() - 1] + T / 3);
        }
        let heard = pings.iter().filter(|&&ping| ping <= write);
        let newest = heard.filter_map(|&ping| touches.iter().filter(|&&touch| touch <= ping).max()).max();
        let ends = newest.copied().unwrap_or(0) + T;
        let mut ledger = ledger();
        stay_awake(&mut ledger, 0, write);
        ledger.answered(exchange(Request::Write, write, write + 2));
        let trusted = ledger.until(Trust::Quorum);
        assert!(trusted <= Moment::at(ends), "seed {seed}: trusted until {trusted:?}, ended at {ends}");
        smallest = smallest.min(Moment::at(ends).since(trusted).as_millis() as u64);
    }
    assert!(smallest < T / 16, "the model must come near the rule, not {smallest} ms");
}
