//! The least load within a stretch of time, for times that only grow.

/// How full a lock was over time.
#[derive(Debug)]
pub(super) struct Loads {
    /// Levels of which each is lower than all after it but the last, which is the present one.
    levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    load: u64,
    /// When it gave way to the next, whichever that was.
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

    /// Notes that the load changes at an instant not before the last.
    pub(super) fn change(&mut self, at: u64, load: u64) {
        if let Some(last) = self.levels.last_mut() {
            last.ended = at;
        }
        // A level that ended earlier and was no lower is no minimum of anything that lasts till now.
        while self.levels.pop_if(|level| level.load >= load).is_some() {}
        self.levels.push(Level { load, ended: u64::MAX });
    }

    /// The least load from an instant, at its very beginning, to the present.
    pub(super) fn least_since(&self, from: u64) -> u64 {
        let first = self.levels.partition_point(|level| level.ended < from);
        self.levels.get(first).map_or(0, |level| level.load)
    }
}
