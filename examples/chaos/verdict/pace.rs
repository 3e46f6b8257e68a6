//! How long nobody got anything.

use std::collections::BTreeMap;
use std::time::Duration;

use testbed::history::{Event, Step};

/// The longest time without a grant, and of what.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    pub(super) longest: Duration,
    pub(super) object: String,
}

impl Pace {
    /// Looks at each object by itself, within this time.
    pub(super) fn of(events: &[Event], begin: u64, end: u64) -> Self {
        let mut last = BTreeMap::<&str, u64>::new();
        let mut gaps = Vec::new();
        for event in events {
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
