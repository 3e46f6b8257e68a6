//! Owns the durations of a session that follow from its timeout *T*. The durations of locks are in `machine`.

use std::time::Duration;

/// The durations of a session with this timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times(Duration);

impl Times {
    pub(crate) fn of(session_timeout: Duration) -> Self {
        Self(session_timeout)
    }

    /// The interval of listings where no watch is set.
    pub(crate) fn listing_interval(self) -> Duration {
        self.0 / 3
    }

    /// How long a host may be silent before the client tries the next: when it connects, and later. By default it is 0.4 *T*,
    /// longer than a hold is trusted for, so one host that accepts connections and does not answer cost holds.
    /// Not shorter: locks are granted by servers whose answers are up to *T*/6 late.
    pub(crate) fn silence(self) -> Duration {
        self.0 / 5
    }

    /// How long to try a host to find out why it does not answer.
    pub(crate) fn host(self) -> Duration {
        self.0 / 8
    }

    /// How long a close waits for the end of the ZooKeeper session once the client is dropped. Before that, the machine
    /// has deleted nodes for as long at most; see `Machine::close`.
    pub(crate) fn close_ended(self) -> Duration {
        self.0 / 4
    }
}
