//! Owns the durations of a session that follow from its timeout *T*. The durations of locks are in `machine`.

use std::time::Duration;

/// The durations of a session with this timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times(Duration);

impl Times {
    pub(crate) fn of(session_timeout: Duration) -> Self {
        Self(session_timeout)
    }

    /// How long a host may be silent, while the client connects and afterwards, before the client tries the next one.
    /// With the client's own value, 0.4 *T*, one host that accepts connections and never answers could outlast the trust
    /// in a hold. With a value shorter than *T*/5 the client would leave servers whose answers are up to *T*/6 late.
    pub(crate) fn silence(self) -> Duration {
        self.0 / 5
    }

    /// How long to try a host to find out why it does not answer.
    pub(crate) fn host(self) -> Duration {
        self.0 / 8
    }

    /// How long a close waits for the end of the ZooKeeper session after it has dropped its client. The nodes are deleted
    /// before that, with a limit of the same length; see `Machine::close`.
    pub(crate) fn close_ended(self) -> Duration {
        self.0 / 4
    }
}
