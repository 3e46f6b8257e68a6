//! How long locks were free while somebody waited for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use testbed::history::Step;

use super::facts::Facts;
use crate::line::What;

/// The longest time that a lock may be free while somebody waits for it, if nothing is wrong with machine and servers.
pub(super) const LIMIT: u64 = 1_000_000_000;

type Attempt = (Arc<str>, u64);

/// A stretch in which a lock, or a family of them, had no holder and was waited for.
#[derive(Debug)]
pub(super) struct Free {
    pub(super) lock: String,
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Without the time in which a session that is over stood in the queue, or the machine or the servers stood still.
    pub(super) time: u64,
    /// Who waited at its end.
    pub(super) waiters: Vec<Attempt>,
}

/// The state of one lock, or of those that are taken together.
#[derive(Debug, Default)]
struct Desk {
    waiters: BTreeSet<Attempt>,
    holders: BTreeSet<Attempt>,
    /// Since when it is free and waited for.
    free: Option<u64>,
    /// Who waited before the last event.
    last: Vec<Attempt>,
}

/// Of each lock the stretches from `calm` to `end`.
pub(super) fn of(facts: &Facts, calm: u64, end: u64) -> Vec<Free> {
    let last = last_steps(facts);
    let mut desks = BTreeMap::<&str, Desk>::new();
    let mut all = Vec::new();
    for event in &facts.events {
        let lock = family(&event.object);
        let desk = desks.entry(lock).or_default();
        let attempt = (Arc::clone(&event.process), event.attempt);
        match &event.step {
            Step::Acquire { .. } => drop(desk.waiters.insert(attempt)),
            Step::Acquired { .. } => {
                desk.waiters.remove(&attempt);
                desk.holders.insert(attempt);
            }
            Step::AcquireFailed | Step::AcquireUnknown => drop(desk.waiters.remove(&attempt)),
            Step::Lost { .. } | Step::Released | Step::ReleaseLost | Step::ReleaseUnknown => {
                desk.holders.remove(&attempt);
            }
            // The guard was dropped.
            Step::Release if last.get(&attempt) == Some(&event.at) => drop(desk.holders.remove(&attempt)),
            _ => {}
        }
        desk.turn(facts, lock, calm, event.at.min(end), &mut all);
    }
    for (lock, desk) in &mut desks {
        desk.close(facts, lock, calm, end, &mut all);
    }
    all
}

impl Desk {
    /// Begins or ends a stretch after an event.
    fn turn(&mut self, facts: &Facts, lock: &str, calm: u64, at: u64, all: &mut Vec<Free>) {
        if !self.holders.is_empty() || self.waiters.is_empty() {
            self.close(facts, lock, calm, at, all);
            self.last.clear();
        } else {
            self.free.get_or_insert(at);
            self.last = self.waiters.iter().cloned().collect();
        }
    }

    fn close(&mut self, facts: &Facts, lock: &str, calm: u64, at: u64, all: &mut Vec<Free>) {
        let Some(begin) = self.free.take().map(|begin| begin.max(calm)).filter(|begin| *begin < at) else {
            return;
        };
        let waiters = std::mem::take(&mut self.last);
        let time = at - begin - explained(facts, lock, &waiters, begin, at);
        all.push(Free { lock: lock.to_owned(), begin, end: at, time, waiters });
    }
}

/// The last step of each attempt.
fn last_steps(facts: &Facts) -> BTreeMap<Attempt, u64> {
    facts.events.iter().map(|event| ((Arc::clone(&event.process), event.attempt), event.at)).collect()
}

/// Locks that are taken together are one: of those that wait for several, one has its turn in all.
fn family(object: &str) -> &str {
    let together = "/chaos/multi";
    if object.starts_with(together) { together } else { object }
}

/// How much of a stretch is explained by stalls, and by nodes of sessions that are over.
fn explained(facts: &Facts, lock: &str, waiters: &[Attempt], begin: u64, end: u64) -> u64 {
    let mut covered = Vec::new();
    for mark in &facts.marks {
        let since = match &mark.what {
            What::Dead { object, since } if family(object) == lock => *since,
            What::Stalled { since }
                if ["machine", "servers"].contains(&&*mark.process)
                    || waiters.iter().any(|(waiter, _)| *waiter == mark.process) =>
            {
                *since
            }
            _ => continue,
        };
        let (since, until) = (since.max(begin), mark.at.min(end));
        if since < until {
            covered.push((since, until));
        }
    }
    covered.sort_unstable();
    let (mut sum, mut reached) = (0, begin);
    for (since, until) in covered {
        sum += until.saturating_sub(since.max(reached));
        reached = reached.max(until);
    }
    sum
}

/// The events of a lock, what was done to its nodes, and what happened to the servers and to these processes.
pub(super) fn excerpt(facts: &Facts, lock: &str, is_named: impl Fn(&str) -> bool) -> Vec<(u64, String)> {
    let events = facts.events.iter().filter(|event| family(&event.object) == lock).map(|event| {
        (event.at, format!("{} {} attempt {}: {:?}", event.process, event.object, event.attempt, event.step))
    });
    let about = format!("\"{lock}");
    let marks = facts.marks.iter().filter_map(|mark| {
        let is_session = matches!(mark.what, What::Session { .. }) && is_named(&mark.process);
        let text = format!("{}: {:?}", mark.process, mark.what);
        (is_session || text.contains(&about)).then_some((mark.at, text))
    });
    let faults = facts.faults.iter().filter(|struck| struck.clients.is_empty() || is_named(&struck.target));
    let faults = faults.map(|struck| {
        let millis = (struck.end - struck.begin) / 1_000_000;
        (struck.begin, format!("{}: {} for {millis} ms", struck.target, struck.fault))
    });
    let mut all: Vec<_> = events.chain(marks).chain(faults).collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MS: u64 = 1_000_000;

    fn step(process: &str, at: u64, what: Value) -> Value {
        let mut line = json!({"at": at * MS, "process": process, "object": "/chaos/mutex", "attempt": 0});
        line.as_object_mut().expect("an object").extend(what.as_object().expect("an object").clone());
        line
    }

    /// One holds from 0 to 500, and another asks at 100. All faults end at 200, and the record at 3,000.
    fn lines() -> Vec<Value> {
        vec![
            step("c1.1", 0, json!({"step": "acquire", "mode": "exclusive"})),
            step("c1.1", 0, json!({"step": "acquired", "token": 1})),
            step("c2.1", 100, json!({"step": "acquire", "mode": "exclusive"})),
            step("c1.1", 500, json!({"step": "release"})),
        ]
    }

    fn longest(lines: Vec<Value>) -> u64 {
        let lines = lines.into_iter().map(|line| serde_json::from_value(line).expect("a line"));
        let stretches = of(&Facts::of(lines.collect()), 200 * MS, 3_000 * MS);
        stretches.iter().map(|free| free.time / MS).max().unwrap_or_default()
    }

    #[test]
    fn waiter_that_never_gets_a_free_lock_is_found() {
        assert_eq!(longest(lines()), 2_500);
        let granted = step("c2.1", 700, json!({"step": "acquired", "token": 2}));
        assert_eq!(longest([lines(), vec![granted]].concat()), 200);
    }

    #[test]
    fn lock_that_is_held_or_not_waited_for_is_not_free() {
        let mut held = lines();
        held.pop();
        assert_eq!(longest(held), 0);
        let failed = step("c2.1", 400, json!({"step": "acquire_failed"}));
        assert_eq!(longest([lines(), vec![failed]].concat()), 0);
    }

    #[test]
    fn only_stalls_and_dead_sessions_that_concern_the_lock_explain_the_time() {
        let mark = |process: &str, at: u64, what: Value| {
            let mut line = json!({"at": at * MS, "process": process});
            line.as_object_mut().expect("an object").extend(what.as_object().expect("an object").clone());
            line
        };
        let stalled = json!({"mark": "stalled", "since": 900 * MS});
        let dead = |object: &str| json!({"mark": "dead", "object": object, "since": 400 * MS});
        let with = |marks: Vec<Value>| longest([lines(), marks].concat());
        assert_eq!(with(vec![mark("c2.1", 1_000, stalled.clone())]), 2_400);
        assert_eq!(with(vec![mark("servers", 1_000, stalled.clone())]), 2_400);
        assert_eq!(with(vec![mark("c3.1", 1_000, stalled.clone())]), 2_500);
        assert_eq!(with(vec![mark("operator", 1_500, dead("/chaos/mutex"))]), 1_500);
        assert_eq!(with(vec![mark("operator", 1_500, dead("/chaos/again"))]), 2_500);
        let both = vec![mark("operator", 1_500, dead("/chaos/mutex")), mark("machine", 1_000, stalled)];
        assert_eq!(with(both), 1_500);
    }
}
