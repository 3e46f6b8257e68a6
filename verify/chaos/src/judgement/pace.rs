//! Whether every lock was granted, and the longest time without a grant.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use testbed::history::{Event, Step};

use super::Course;
use crate::workload::{Workload, path};

/// The locks which were never granted although somebody always waits for them, one sentence each.
pub(super) fn denied(events: &[Event], course: &Course) -> Vec<String> {
    let mut denied = Vec::new();
    let objects = |workload: &Workload| {
        let is_busy = workload.is_busy();
        workload.objects().iter().map(move |object| (*object, is_busy))
    };
    for (object, is_busy) in course.workloads.iter().flat_map(objects) {
        let path = path(object);
        let grants = events.iter().filter(|event| matches!(event.step, Step::Acquired { .. }));
        let granted = |is_it: &dyn Fn(&str) -> bool, times: RangeInclusive<u64>| {
            grants.clone().any(|event| is_it(&event.object) && times.contains(&event.at))
        };
        if !granted(&|object| object == path, 0..=course.calm) {
            denied.push(format!("{path}: no grant before the last fault was over"));
        }
        if is_busy && !granted(&|object| awaited(object) == awaited(&path), course.settled..=course.asked) {
            denied.push(format!("{path}: no grant after all faults were healed"));
        }
    }
    denied
}

/// What the one that acquires waits for: a claim takes any number that is free, so nobody waits for a certain one.
fn awaited(object: &str) -> &str {
    let slots = path("slots");
    object.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| *parent == slots).unwrap_or(object)
}

/// The longest time without a grant, and the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    pub(super) longest: Duration,
    pub(super) object: String,
}

impl Pace {
    /// Considers what is awaited, from the end of the last fault until the clients were stopped.
    pub(super) fn of(events: &[Event], times: RangeInclusive<u64>) -> Self {
        let (begin, end) = (*times.start(), *times.end());
        let mut last = BTreeMap::<&str, u64>::new();
        let mut gaps = Vec::new();
        let resting: Vec<_> = Workload::ALL.into_iter().filter(|workload| !workload.is_busy()).collect();
        let resting: Vec<_> = resting.iter().flat_map(|workload| workload.objects()).map(|it| path(it)).collect();
        for event in events.iter().filter(|event| !resting.iter().any(|path| *event.object == **path)) {
            if matches!(event.step, Step::Acquire { .. }) {
                last.entry(awaited(&event.object)).or_insert(begin);
            }
            if matches!(event.step, Step::Acquired { .. }) && times.contains(&event.at) {
                let before = last.insert(awaited(&event.object), event.at).unwrap_or(begin);
                gaps.push((event.at - before, awaited(&event.object)));
            }
        }
        gaps.extend(last.into_iter().map(|(object, before)| (end.saturating_sub(before), object)));
        let (longest, object) = gaps.into_iter().max().unwrap_or_default();
        Self { longest: Duration::from_nanos(longest), object: object.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn longest(lines: &[(&str, u64, Value)]) -> Duration {
        let event = |(object, at, step): &(&str, u64, Value)| {
            let mut line = json!({ "at": at, "process": "c1.1", "object": path(object), "attempt": at });
            line.as_object_mut().expect("an object").extend(step.as_object().expect("an object").clone());
            serde_json::from_value(line).expect("an event")
        };
        Pace::of(&lines.iter().map(event).collect::<Vec<Event>>(), 0..=100).longest
    }

    #[test]
    fn number_that_no_claim_takes_is_not_waited_for() {
        let acquired = |token: u64| json!({ "step": "acquired", "token": token });
        let lines = |one, other| [(one, 10, acquired(1)), (one, 20, acquired(2)), (other, 90, acquired(3))];
        assert_eq!(longest(&lines("mutex", "again")), Duration::from_nanos(90));
        assert_eq!(longest(&lines("slots/0", "slots/1")), Duration::from_nanos(70));
    }
}
