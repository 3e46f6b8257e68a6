//! A plan of faults, made from a seed.

use std::time::Duration;

use fastrand::Rng;

use super::fault::{Fault, Kind, Stream};

/// Faults ordered by their begin. The same seed and arguments make the same plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    faults: Vec<Fault>,
}

impl Plan {
    /// Plans faults of these kinds, all of which end within `duration`.
    ///
    /// Their durations depend on the session timeout: some are a bit shorter than a session lives without its client,
    /// some a bit longer. Kinds with the same targets (servers, connections, processes or nodes) are about equally
    /// frequent.
    pub fn random(seed: u64, kinds: &[Kind], duration: Duration, session: Duration) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut faults = Vec::new();
        for stream in Stream::ALL {
            let kinds: Vec<_> = kinds.iter().copied().filter(|kind| kind.stream() == stream).collect();
            add(&mut faults, stream, &kinds, duration, session, &mut random.fork());
        }
        faults.sort_by_key(|fault| fault.begin);
        Self { faults }
    }

    /// The faults, ordered by their begin.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

fn add(
    faults: &mut Vec<Fault>,
    stream: Stream,
    kinds: &[Kind],
    duration: Duration,
    session: Duration,
    random: &mut Rng,
) {
    let mut between = |(least, most): (f64, f64)| least + (most - least) * random.f64();
    let timeouts = duration.as_secs_f64() / session.as_secs_f64();
    let mut begin = between((0.0, 1.0));
    let mut deck = Vec::new();
    loop {
        if deck.is_empty() {
            deck = kinds.to_vec();
            deck.sort_by_cached_key(|_| (between((0.0, 1.0)) * 1e9) as u64);
        }
        let Some(kind) = deck.pop() else { return };
        let end = begin + between(kind.lasts());
        if end > timeouts {
            return;
        }
        let [at, over] = [begin, end].map(|at| session.mul_f64(at));
        let dice = (between((0.0, 1.0)) * 1e15) as u64;
        faults.push(Fault { kind, begin: at, end: over, dice });
        begin = (end + between(stream.pause())).max(begin + 0.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const SESSION: Duration = Duration::from_secs(2);

    #[test]
    fn same_seed_makes_the_same_plan() {
        let plan = |seed| Plan::random(seed, &Kind::ALL, MINUTE, SESSION);
        assert_eq!(plan(7), plan(7));
        assert_ne!(plan(7), plan(8));
    }

    #[test]
    fn ten_minutes_have_all_kinds_and_a_minute_has_most() {
        for seed in 0..50 {
            let count = |duration| {
                let plan = Plan::random(seed, &Kind::ALL, duration, SESSION);
                Kind::ALL.iter().filter(|kind| plan.faults().iter().any(|fault| fault.kind == **kind)).count()
            };
            assert_eq!(count(10 * MINUTE), Kind::ALL.len());
            assert!(count(MINUTE) > Kind::ALL.len() * 2 / 3, "seed {seed}");
        }
    }

    #[test]
    fn faults_overlap_and_end_in_time() {
        let plan = Plan::random(1, &Kind::ALL, MINUTE, SESSION);
        let faults = plan.faults();
        assert!(faults.iter().all(|fault| fault.begin <= fault.end && fault.end <= MINUTE));
        assert!(faults.is_sorted_by_key(|fault| fault.begin));
        assert!(faults.windows(2).any(|pair| pair[1].begin < pair[0].end));
    }

    #[test]
    fn plan_has_only_the_requested_kinds() {
        let kinds = [Kind::Flapping, Kind::LeaderKill];
        let plan = Plan::random(3, &kinds, MINUTE, SESSION);
        assert!(plan.faults().iter().all(|fault| kinds.contains(&fault.kind)));
        assert!(Plan::random(3, &[], MINUTE, SESSION).faults().is_empty());
    }
}
