//! What one contender did in one round.

use std::time::Duration;

/// The work of a round, and its cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) cycles: usize,
    pub(crate) elapsed: Duration,
    /// Of the client's process.
    pub(crate) cpu: Duration,
    /// What the server received.
    pub(crate) requests: u64,
}

impl Sample {
    /// Seconds per cycle.
    pub(crate) fn time(&self) -> f64 {
        self.elapsed.as_secs_f64() / self.cycles as f64
    }

    /// Cycles per second.
    pub(crate) fn rate(&self) -> f64 {
        1.0 / self.time()
    }

    /// Seconds of CPU time per cycle.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu.as_secs_f64() / self.cycles as f64
    }

    /// Requests per cycle.
    pub(crate) fn requests(&self) -> f64 {
        self.requests as f64 / self.cycles as f64
    }
}
