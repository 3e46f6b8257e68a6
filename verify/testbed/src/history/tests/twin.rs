//! The naive twin of the judges. It tries all orders of operations that can explain the events (Wing and Gong's search,
//! with a memo of visited states).

use std::collections::{BTreeMap, HashSet};

use super::super::{Event, Mode, Model, Step};

/// Whether any order of the lock's operations explains the events, which are about one object.
pub(super) fn explains(events: &[Event], model: Model) -> bool {
    let attempts = attempts(events);
    let mut search = Search { model, tenures: tenures(&attempts, model), ops: Vec::new(), seen: HashSet::new() };
    search.ops = ops(&attempts, &search.tenures);
    assert!(search.ops.len() <= 64, "the history is too large for the twin");
    search.run(0, &State::default())
}

type Attempt<'a> = Vec<&'a Event>;

/// The granted attempts; the others constrain nothing.
fn attempts(events: &[Event]) -> Vec<Attempt<'_>> {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by_key(|event| event.at);
    let mut attempts = BTreeMap::<_, Attempt<'_>>::new();
    for event in events {
        attempts.entry((&event.process, event.attempt)).or_default().push(event);
    }
    attempts.into_values().filter(|attempt| token(attempt).is_some()).collect()
}

fn find<T>(attempt: &Attempt<'_>, pick: impl Fn(&Step) -> Option<T>) -> Option<(u64, T)> {
    attempt.iter().find_map(|event| Some((event.at, pick(&event.step)?)))
}

fn token(attempt: &Attempt<'_>) -> Option<(u64, i64)> {
    find(attempt, |step| if let Step::Acquired { token } = step { Some(*token) } else { None })
}

fn at(attempt: &Attempt<'_>, step: &Step) -> Option<u64> {
    find(attempt, |other| (other == step).then_some(())).map(|(at, ())| at)
}

/// The time from a grant to its end, which several attempts of one owner may share.
struct Tenure {
    members: Vec<usize>,
    mode: Mode,
    token: i64,
}

fn tenures(attempts: &[Attempt<'_>], model: Model) -> Vec<Tenure> {
    let mut tenures = BTreeMap::<_, Tenure>::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let Step::Acquire { mode, owner } = &attempt[0].step else { panic!("an attempt begins with its acquire") };
        let (_, token) = token(attempt).expect("granted");
        let reenters = matches!(model, Model::ReentrantMutex | Model::Fifo) && *mode == Mode::Exclusive;
        let key = match owner {
            Some(owner) if reenters => (attempt[0].process.to_string(), owner.to_string(), token, 0),
            _ => (String::new(), String::new(), 0, index),
        };
        tenures.entry(key).or_insert(Tenure { members: Vec::new(), mode: *mode, token }).members.push(index);
    }
    tenures.into_values().collect()
}

/// An operation of the lock, or an observation of a client, at an instant from `from` to `to`.
struct Op {
    from: u64,
    to: u64,
    optional: bool,
    tenure: usize,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Enqueue,
    Grant,
    /// A client observed that it held the lock.
    See,
    Downgrade,
    /// A client learned that it no longer held the lock.
    Learn,
    Release,
    Lose,
}

fn ops(attempts: &[Attempt<'_>], tenures: &[Tenure]) -> Vec<Op> {
    let mut ops = Vec::new();
    for (tenure, of) in tenures.iter().enumerate() {
        let members: Vec<_> = of.members.iter().map(|member| &attempts[*member]).collect();
        let mut may = |what, from| ops.push(Op { from, to: u64::MAX, optional: true, tenure, what });
        let begin = members.iter().map(|member| member[0].at).min().expect("not empty");
        let lost = members.iter().filter_map(|member| {
            find(member, |step| if let Step::Lost { since } = step { Some(*since) } else { None })
        });
        let (learned, since): (Vec<_>, Vec<_>) = lost.unzip();
        let answers: Vec<_> = members.iter().filter_map(|member| at(member, &Step::ReleaseLost)).collect();
        let open = members.iter().any(|member| at(member, &Step::Release).is_none());
        let unknown = members
            .iter()
            .any(|member| at(member, &Step::Release).is_some() && at(member, &Step::Released).is_none());
        match since.iter().zip(&learned).map(|(since, learned)| since.min(learned)).min() {
            Some(since) => may(What::Lose, *since),
            None if !answers.is_empty() || (unknown && !open) => may(What::Lose, begin),
            None => {}
        }
        for member in &members {
            if let (Some(release), None) = (at(member, &Step::Release), at(member, &Step::Released)) {
                may(What::Release, release);
            }
            if let Some(downgrade) = at(member, &Step::Downgrade).filter(|_| of.members.len() == 1) {
                may(What::Downgrade, downgrade);
            }
        }
        let mut must = |what, from, to| ops.push(Op { from, to, optional: false, tenure, what });
        if let Some(learned) = learned.iter().chain(&answers).min() {
            must(What::Learn, *learned, *learned);
        }
        must(What::Enqueue, begin, members.iter().map(|member| placed(member)).min().expect("not empty"));
        for member in members {
            must(What::Grant, member[0].at, token(member).expect("granted").0);
            for event in member.iter().filter(|event| event.step == Step::Confirmed) {
                must(What::See, event.at, event.at);
            }
            if let (Some(release), Some(released)) = (at(member, &Step::Release), at(member, &Step::Released)) {
                must(What::Release, release, released);
            }
        }
    }
    ops
}

fn placed(attempt: &Attempt<'_>) -> u64 {
    let (granted, token) = token(attempt).expect("granted");
    let numbered = at(attempt, &Step::Enqueued { place: Some(token) });
    let mut places = attempt.iter().rev().filter(|event| matches!(event.step, Step::Enqueued { .. }));
    let last = places.next().filter(|event| event.step == Step::Enqueued { place: None }).map(|event| event.at);
    numbered.or(last).unwrap_or(granted).min(granted)
}

/// The state of the lock between operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    /// For each tenure that holds the lock, how often, and whether exclusively.
    inside: BTreeMap<usize, (usize, bool)>,
    /// The tenures whose clients have learned of their loss.
    lost: Vec<usize>,
    queue: Vec<usize>,
    granted: Vec<usize>,
    largest: Option<i64>,
    largest_exclusive: Option<i64>,
}

struct Search {
    model: Model,
    tenures: Vec<Tenure>,
    ops: Vec<Op>,
    seen: HashSet<(u64, State)>,
}

impl Search {
    fn run(&mut self, done: u64, state: &State) -> bool {
        let left: Vec<_> = (0..self.ops.len()).filter(|op| done & (1 << op) == 0).collect();
        let deadline = left.iter().filter(|op| !self.ops[**op].optional).map(|op| self.ops[*op].to).min();
        let Some(deadline) = deadline else { return true };
        if !self.seen.insert((done, state.clone())) {
            return false;
        }
        // An operation that ended before another began comes before it.
        let next = left.into_iter().filter(|op| self.ops[*op].from <= deadline);
        let next: Vec<_> = next.filter_map(|op| Some((op, self.apply(&self.ops[op], state)?))).collect();
        next.into_iter().any(|(op, state)| self.run(done | 1 << op, &state))
    }

    fn is_exclusive(&self, tenure: usize) -> bool {
        match self.model {
            Model::ReadWrite | Model::Permits(_) | Model::Fifo => self.tenures[tenure].mode == Mode::Exclusive,
            _ => true,
        }
    }

    fn apply(&self, op: &Op, before: &State) -> Option<State> {
        let mut state = before.clone();
        let Op { tenure, what, .. } = *op;
        let holds = before.inside.contains_key(&tenure);
        let believes = !before.lost.contains(&tenure);
        let right = match what {
            What::Enqueue => {
                state.queue.push(tenure);
                self.may_enqueue(tenure, before)
            }
            What::Grant if holds => {
                state.inside.get_mut(&tenure)?.0 += 1;
                believes
            }
            What::Grant => {
                let (exclusive, token) = (self.is_exclusive(tenure), Some(self.tenures[tenure].token));
                state.inside.insert(tenure, (1, exclusive));
                state.granted.push(tenure);
                state.granted.sort_unstable();
                state.largest = state.largest.max(token);
                state.largest_exclusive = state.largest_exclusive.max(token.filter(|_| exclusive));
                believes && self.may_enter(tenure, before)
            }
            What::See => holds && believes,
            What::Downgrade => {
                state.inside.get_mut(&tenure)?.1 = !matches!(self.model, Model::ReadWrite | Model::Fifo);
                true
            }
            What::Learn => {
                state.lost.push(tenure);
                state.lost.sort_unstable();
                true
            }
            What::Release => {
                let count = &mut state.inside.get_mut(&tenure)?.0;
                *count -= 1;
                if *count == 0 {
                    state.inside.remove(&tenure);
                }
                believes || op.optional
            }
            What::Lose => state.inside.remove(&tenure).is_some(),
        };
        right.then_some(state)
    }

    fn conflict(&self, one: usize, other: usize) -> bool {
        one != other && (self.is_exclusive(one) || self.is_exclusive(other))
    }

    fn may_enqueue(&self, tenure: usize, state: &State) -> bool {
        let behind = |other: usize| self.tenures[tenure].token > self.tenures[other].token;
        self.model != Model::Fifo
            || state.queue.iter().all(|other| !self.conflict(tenure, *other) || behind(*other))
    }

    fn may_enter(&self, tenure: usize, state: &State) -> bool {
        let token = Some(self.tenures[tenure].token);
        let grows =
            if self.is_exclusive(tenure) { token > state.largest } else { token > state.largest_exclusive };
        let fits = match self.model {
            Model::Permits(limit) => {
                let takes = |tenure: usize, exclusive: bool| match self.tenures[tenure].mode {
                    _ if exclusive => limit,
                    Mode::Permits(permits) => permits,
                    _ => 1,
                };
                let held: u32 = state.inside.iter().map(|(other, (_, exclusive))| takes(*other, *exclusive)).sum();
                return held + takes(tenure, self.is_exclusive(tenure)) <= limit;
            }
            _ => state.inside.values().all(|(_, exclusive)| !exclusive && !self.is_exclusive(tenure)),
        };
        let turn = || {
            let ahead = state.queue.iter().take_while(|other| **other != tenure);
            let waiting = ahead.filter(|other| !state.granted.contains(other));
            state.queue.contains(&tenure) && waiting.into_iter().all(|other| !self.conflict(tenure, *other))
        };
        match self.model {
            Model::Mutex => fits,
            Model::Fifo => fits && grows && turn(),
            _ => fits && grows,
        }
    }
}
