//! Owns the durations of a session that follow from its timeout *T*, with their reasons. Those of locks are in
//! `machine`.

use std::time::Duration;

/// The durations of a session with this timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times(Duration);

impl Times {
    pub(crate) fn of(session_timeout: Duration) -> Self {
        Self(session_timeout)
    }

    /// How often to look where no watch is set.
    pub(crate) fn look(self) -> Duration {
        self.0 / 3
    }

    /// How long to try a host for the reason why it does not answer.
    pub(crate) fn host(self) -> Duration {
        self.0 / 8
    }

    // The close, which takes at most *T*. Until a quarter of it nodes are deleted one by one; see `Machine::close`.

    /// How long after the start of a close the kept nodes must be deleted and a quorum must have answered.
    pub(crate) fn close_answered(self) -> Duration {
        self.0 * 3 / 8
    }

    /// How long servers that answer take to confirm the end. If they do not, a clone of the client keeps the session.
    pub(crate) fn close_kept(self) -> Duration {
        self.0 / 3
    }

    /// Until then the end of the session is waited for.
    pub(crate) fn close_ended(self) -> Duration {
        self.0 * 7 / 8
    }
}
