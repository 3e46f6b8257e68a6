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
        let grants = events.iter().filter(|event| *event.object == path);
        let grants = grants.filter(|event| matches!(event.step, Step::Acquired { .. }));
        let granted = |times: RangeInclusive<u64>| grants.clone().any(|event| times.contains(&event.at));
        if !granted(0..=course.calm) {
            denied.push(format!("{path}: no grant before the last fault was over"));
        }
        if is_busy && !granted(course.settled..=course.asked) {
            denied.push(format!("{path}: no grant after all faults were healed"));
        }
    }
    denied
}

/// The longest time without a grant, and the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    pub(super) longest: Duration,
    pub(super) object: String,
}

impl Pace {
    /// Considers each object separately, from the end of the last fault until the clients were stopped.
    pub(super) fn of(events: &[Event], course: &Course) -> Self {
        let (begin, end) = (course.calm, course.asked);
        let mut last = BTreeMap::<&str, u64>::new();
        let mut gaps = Vec::new();
        let resting: Vec<_> = Workload::ALL.into_iter().filter(|workload| !workload.is_busy()).collect();
        let resting: Vec<_> = resting.iter().flat_map(|workload| workload.objects()).map(|it| path(it)).collect();
        for event in events.iter().filter(|event| !resting.iter().any(|path| *event.object == **path)) {
            if matches!(event.step, Step::Acquire { .. }) {
                last.entry(&event.object).or_insert(begin);
            }
            if matches!(event.step, Step::Acquired { .. }) && (begin..=end).contains(&event.at) {
                let before = last.insert(&event.object, event.at).unwrap_or(begin);
                gaps.push((event.at - before, &*event.object));
            }
        }
        gaps.extend(last.into_iter().map(|(object, before)| (end.saturating_sub(before), object)));
        let (longest, object) = gaps.into_iter().max().unwrap_or_default();
        Self { longest: Duration::from_nanos(longest), object: object.to_owned() }
    }
}
