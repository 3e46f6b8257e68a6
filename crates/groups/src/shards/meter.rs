//! Owns [`Meter`], which reports the metrics of a member. Without the feature `metrics` it reports nothing.

#[cfg(feature = "metrics")]
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
        meter.count(0, 0, 0);
        meter
    }

    pub(crate) fn measure(&mut self, now: Gauges) {
        if now != self.last {
            self.shift(now);
            self.last = now;
        }
    }

    pub(crate) fn moves(&self, moves: u64) {
        self.count(moves, 0, 0);
    }

    pub(crate) fn cut(&self) {
        self.count(0, 1, 0);
    }

    pub(crate) fn returned(&self) {
        self.count(0, 0, 1);
    }

    #[cfg(feature = "metrics")]
    fn shift(&self, now: Gauges) {
        let by = |now: usize, last: usize| now as i64 - last as i64;
        metrics::shift(OWNED, &self.group, by(now.owned, self.last.owned));
        metrics::shift(UNASSIGNED, &self.group, by(now.unassigned, self.last.unassigned));
        let refused = by(now.is_plan_node_refused.into(), self.last.is_plan_node_refused.into());
        metrics::shift(PLAN_NODE_REFUSED, &self.group, refused);
    }

    #[cfg(feature = "metrics")]
    fn count(&self, moves: u64, cuts: u64, returned: u64) {
        metrics::count(MOVES, &self.group, moves);
        metrics::count(CUTS, &self.group, cuts);
        metrics::count(RETURNED, &self.group, returned);
    }

    #[cfg(not(feature = "metrics"))]
    fn shift(&self, _: Gauges) {
        _ = &self.group;
    }

    #[cfg(not(feature = "metrics"))]
    fn count(&self, _: u64, _: u64, _: u64) {}
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.measure(Gauges::default());
    }
}
