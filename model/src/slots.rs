//! Owns the model of the local queue (item 5): tasks of one process that need a slot in each of several queues before they
//! create their nodes. Slots are memory, so there are no faults: only the order in which tasks take and wait.

use stateright::{Checker, Model, Property};

/// The queues that each task locks, in its order.
const TASKS: [[usize; 2]; 2] = [[0, 1], [1, 0]];

/// One slot in each queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// A task takes the slots of all its queues at once, or none.
    pub(crate) all_or_none: bool,
}

/// How many slots each task has; and whether it is done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    taken: [usize; 2],
    done: [bool; 2],
}

/// A task takes what it needs next, or releases all when it has all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Take(usize),
    Release(usize),
}

impl State {
    fn is_free(&self, queue: usize) -> bool {
        !(0..TASKS.len()).any(|task| TASKS[task][..self.taken[task]].contains(&queue))
    }
}

impl Model for Slots {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { taken: [0; 2], done: [false; 2] }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (task, queues) in TASKS.iter().enumerate() {
            let next = &queues[state.taken[task]..];
            let wanted = if self.all_or_none { next } else { &next[..next.len().min(1)] };
            if next.is_empty() {
                actions.push(Action::Release(task));
            } else if !state.done[task] && wanted.iter().all(|queue| state.is_free(*queue)) {
                actions.push(Action::Take(task));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Take(task) => {
                next.taken[task] = if self.all_or_none { TASKS[task].len() } else { next.taken[task] + 1 }
            }
            Action::Release(task) => (next.taken[task], next.done[task]) = (0, true),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("all are served", |model: &Self, state: &State| {
            let mut actions = Vec::new();
            model.actions(state, &mut actions);
            !actions.is_empty() || state.done == [true; 2]
        })]
    }
}

/// The steps to a deadlock, if there is one.
pub(crate) fn deadlock(all_or_none: bool) -> Option<Vec<Action>> {
    let checker = Slots { all_or_none }.checker().threads(1).spawn_bfs().join();
    checker.discovery("all are served").map(|path| path.into_actions())
}

/// Prints both cases; `false` if one is not as expected.
pub(crate) fn report() -> bool {
    let (with, without) = (deadlock(true), deadlock(false));
    let line = |off: &str, result: &str| {
        println!("{:7} | {off:34} | {:38} | {result}", "item 5", "{A, B} and {B, A}, 1 slot each")
    };
    line("", if with.is_none() { "holds" } else { "NOT EXPECTED: a deadlock" });
    let steps = without.as_ref().map(|steps| format!("all are served fails: {steps:?}"));
    line("all_or_none", steps.as_deref().unwrap_or("NOT EXPECTED: holds"));
    with.is_none() && without.is_some()
}
