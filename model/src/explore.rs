//! Owns the exploration of a case, from its first state to its last.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::cases::{Case, Expected};
use crate::model::{Action, Queue};
use crate::state::State;

/// How much may be explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Steps that lead to a state, known or new.
    pub(crate) steps: usize,
    pub(crate) time: Duration,
}

impl Limits {
    pub(crate) const LONG: Self = Self { steps: 400_000_000, time: Duration::from_secs(590) };
}

/// The states of a way, each with the step that follows.
pub(crate) type Steps = Vec<(State, Option<Action>)>;

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) seconds: f64,
    /// The property that fails, and the shortest way to it.
    pub(crate) failed: Option<(&'static str, Steps)>,
    /// Whether no bound was reached.
    pub(crate) complete: bool,
}

/// Explores all states of a case, or as many as lead to a failure.
pub(crate) fn explore(case: &Case, limits: Limits) -> Found {
    let began = Instant::now();
    let rules = case.off.iter().fold(case.rules, |rules, rule| rules.without(rule));
    let builder = |readable| {
        let queue = Queue { scenario: case.scenario, rules, readable };
        let checker = queue.checker().threads(1).finish_when(HasDiscoveries::Any);
        checker.target_state_count(limits.steps).timeout(limits.time)
    };
    // Depth first needs less memory, and can exchange equal sessions; breadth first finds the shortest way to a failure.
    if matches!(case.expected, Expected::Holds | Expected::NotNeeded(_)) {
        let found = match case.scenario.is_symmetric() {
            true => found(&builder(false).symmetry().spawn_dfs().join(), began, limits),
            false => found(&builder(false).spawn_dfs().join(), began, limits),
        };
        if found.failed.is_none() {
            return found;
        }
    }
    let mut shortest = found(&builder(true).spawn_bfs().join(), began, limits);
    // The checker reports the last of the ways that it finds in one go, which may be a little longer than the first.
    while let Some((_, path)) = &shortest.failed {
        let shorter = found(&builder(true).target_max_depth(path.len()).spawn_bfs().join(), began, limits);
        if shorter.failed.is_none() {
            break;
        }
        shortest.failed = shorter.failed;
    }
    shortest
}

fn found(checker: &impl Checker<Queue>, began: Instant, limits: Limits) -> Found {
    let paths = checker.discoveries().into_iter().map(|(name, path)| (name, path.into_vec()));
    let seconds = began.elapsed();
    Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        seconds: seconds.as_secs_f64(),
        failed: paths.min_by_key(|(_, path)| path.len()),
        complete: checker.state_count() < limits.steps && seconds < limits.time,
    }
}
