//! Owns [`Meter`], which reports the metrics of a member. Without the feature `metrics` it reports nothing.

use crate::metrics::{self, CUTS, MOVES, OWNED, PLAN_NODE_REFUSED, RETURNED, UNASSIGNED};

/// The gauges of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauges {
    pub(crate) owned: usize,
    pub(crate) unassigned: usize,
    pub(crate) is_plan_node_refused: bool,
}

/// Reports the metrics of a member. Dropping it takes its numbers out of the gauges.
#[derive(Debug)]
pub(crate) struct Meter {
    group: String,
    last: Gauges,
}

impl Meter {
    pub(crate) fn new(group: &str) -> Self {
        let meter = Self { group: group.to_owned(), last: Gauges::default() };
        // Creates each series before its first change.
        meter.shift(Gauges::default());
        [MOVES, CUTS, RETURNED].into_iter().for_each(|name| meter.count(name, 0));
        meter
    }

    pub(crate) fn measure(&mut self, now: Gauges) {
        if now != self.last {
            self.shift(now);
            self.last = now;
        }
    }

    /// Adds to a counter.
    pub(crate) fn count(&self, name: &'static str, by: u64) {
        metrics::count(name, &self.group, by);
    }

    fn shift(&self, now: Gauges) {
        let by = |now: usize, last: usize| now as i64 - last as i64;
        metrics::shift(OWNED, &self.group, by(now.owned, self.last.owned));
        metrics::shift(UNASSIGNED, &self.group, by(now.unassigned, self.last.unassigned));
        let refused = by(now.is_plan_node_refused.into(), self.last.is_plan_node_refused.into());
        metrics::shift(PLAN_NODE_REFUSED, &self.group, refused);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.measure(Gauges::default());
    }
}
