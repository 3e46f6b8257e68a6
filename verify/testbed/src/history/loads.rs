//! The least load within an interval, for times that only grow.

/// The load of a lock over time.
#[derive(Debug)]
pub(super) struct Loads {
    /// Levels in ascending order; the last one is the present load.
    levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    load: u64,
    /// When the load changed to the next level.
    ended: u64,
}

impl Loads {
    pub(super) fn new() -> Self {
        Self { levels: vec![Level { load: 0, ended: u64::MAX }] }
    }

    /// The present load.
    pub(super) fn now(&self) -> u64 {
        self.levels.last().map_or(0, |level| level.load)
    }

    /// Records that the load changes at an instant, not before the last one.
    pub(super) fn change(&mut self, at: u64, load: u64) {
        if let Some(last) = self.levels.last_mut() {
            last.ended = at;
        }
        // An earlier level that is not lower cannot be the minimum of an interval that ends now.
        while self.levels.pop_if(|level| level.load >= load).is_some() {}
        self.levels.push(Level { load, ended: u64::MAX });
    }

    /// The least load from the beginning of an instant to the present.
    pub(super) fn least_since(&self, from: u64) -> u64 {
        let first = self.levels.partition_point(|level| level.ended < from);
        self.levels.get(first).map_or(0, |level| level.load)
    }
}
