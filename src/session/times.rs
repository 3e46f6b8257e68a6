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
    pub(crate) fn look(self) -> Duration {
        self.0 / 3
    }

    /// How long to try a host to find out why it does not answer.
    pub(crate) fn host(self) -> Duration {
        self.0 / 8
    }

    // A close takes at most *T*. Until *T*/4, nodes are deleted one by one; see `Machine::close`.

    /// The time after the start of a close by which kept nodes must be deleted and a quorum must have answered.
    pub(crate) fn close_answered(self) -> Duration {
        self.0 * 3 / 8
    }

    /// How long to wait for the end of the session once a quorum has answered. If the session does not end, a clone of the
    /// client keeps it open.
    /// keeps it.
    pub(crate) fn close_kept(self) -> Duration {
        self.0 / 3
    }

    /// The time after the start of a close at which waiting for the end of the session stops.
    pub(crate) fn close_ended(self) -> Duration {
        self.0 * 7 / 8
    }
}
