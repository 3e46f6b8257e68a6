//! Explores every order of steps of a case.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::client::User;
use crate::machine::{Admission, Kind, Moment, Path, Spec};
use crate::trust::Bit;
use crate::world::{Act, Budget, World};

/// Users of some sessions, and the faults that they meet.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) sessions: Vec<Vec<User>>,
    pub(crate) budget: Budget,
}

fn user_of(spec: Spec, times: u8) -> User {
    let downgrades = matches!(spec.queues.as_slice(), [(_, Kind::Write)]);
    User { spec: Arc::new(spec), downgrades, keeps: 0, done_at: Moment(0), left: times, count: 0, op: None }
}

/// A user that locks this many times.
pub(crate) fn user(kind: Kind, times: u8) -> User {
    user_of(
        Spec {
            queues: vec![(0, kind)],
            admission: Admission::First,
            waits: true,
            stall_limit: None,
            may_count: true,
        },
        times,
    )
}

/// A user that does not queue.
pub(crate) fn trying(kind: Kind) -> User {
    user_of(
        Spec {
            queues: vec![(0, kind)],
            admission: Admission::First,
            waits: false,
            stall_limit: None,
            may_count: true,
        },
        1,
    )
}

/// A user that locks several paths together.
pub(crate) fn together(paths: &[Path]) -> User {
    mixed(paths.iter().map(|path| (*path, Kind::Lock)))
}

/// A user that locks several paths together, each in its own kind.
pub(crate) fn mixed(queues: impl IntoIterator<Item = (Path, Kind)>) -> User {
    let queues = queues.into_iter().collect();
    user_of(Spec { queues, admission: Admission::First, waits: true, stall_limit: None, may_count: true }, 1)
}

/// A user that takes some permits of a semaphore. Path 1 is that of the turns.
pub(crate) fn permits(count: usize, limit: u32) -> User {
    let admission = Admission::Permits { limit, turn: Some(1) };
    user_of(
        Spec { queues: vec![(0, Kind::Lease); count], admission, waits: true, stall_limit: None, may_count: true },
        1,
    )
}

/// The same, but it does not queue.
pub(crate) fn trying_permits(count: usize, limit: u32) -> User {
    let mut user = permits(count, limit);
    Arc::make_mut(&mut user.spec).waits = false;
    user
}

impl Model for Case {
    type State = World<Bit>;
    type Action = Act;

    fn init_states(&self) -> Vec<Self::State> {
        vec![World::new(&self.sessions, self.budget, false, 0, Bit::new)]
    }

    fn actions(&self, state: &Self::State, acts: &mut Vec<Act>) {
        state.acts(acts);
    }

    fn next_state(&self, state: &Self::State, act: Act) -> Option<Self::State> {
        let mut next = state.clone();
        next.step(act);
        next.skip();
        Some(next.canonical())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("rules", |_, world: &World<Bit>| world.broken.is_none()),
            Property::always("no waiter sleeps", |_, world: &World<Bit>| !world.sleeps()),
            Property::always("nothing is left", |_, world: &World<Bit>| !world.has_left()),
        ]
    }
}

/// What was found in a case.
pub(crate) enum Found {
    /// All states were visited.
    Holds,
    /// There was not enough time.
    Unfinished,
    Broken(String),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds => f.write_str("holds"),
            Self::Unfinished => f.write_str("UNFINISHED"),
            Self::Broken(why) => write!(f, "BROKEN: {why}"),
        }
    }
}

/// Explores a case, and prints what was found.
pub(crate) fn explore(case: &Case, limit: Duration, shows: bool) -> Found {
    let began = Instant::now();
    let builder = case.clone().checker().threads(2).finish_when(HasDiscoveries::Any).timeout(limit);
    let checker = builder.spawn_bfs().join();
    let paths = checker.discoveries().into_iter().map(|(name, path)| (name, path.into_vec()));
    let found = match paths.min_by_key(|(_, path)| path.len()) {
        Some((name, path)) => {
            let why = path.last().and_then(|(world, _)| world.broken).unwrap_or(name);
            if shows {
                for (_, act) in &path {
                    println!("    {act:?}");
                }
                println!("{:#?}", path.last());
            }
            Found::Broken(format!("{why}, after {} steps", path.len() - 1))
        }
        None if checker.is_done() && began.elapsed() < limit => Found::Holds,
        None => Found::Unfinished,
    };
    let took = began.elapsed().as_secs_f64();
    println!(
        "{:<44} {:>9} states, depth {:>3}, {took:>6.1} s  {found}",
        case.name,
        checker.unique_state_count(),
        checker.max_depth()
    );
    found
}
