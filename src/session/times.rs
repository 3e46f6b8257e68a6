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

    // A close takes at most *T*. In the first *T*/4 the machine deletes the nodes; see `Machine::close`. Then, or as soon as
    // all nodes are gone, the ZooKeeper session is ended, and the servers delete any nodes that are left.

    /// The time after the start of a close at which it stops waiting for kept nodes to be deleted (see `Session::keeping`),
    /// and for a quorum to answer a check.
    pub(crate) fn close_answered(self) -> Duration {
        self.0 * 3 / 8
    }

    /// How long calls that run may take to let the client go, once the session has given it up.
    pub(crate) fn close_let_go(self) -> Duration {
        self.0 / 16
    }

    /// How long to wait for the end of the session once a quorum has answered, or nothing is left to delete. If it has not ended
    /// by then, a clone of the client keeps it open, or no server answers.
    pub(crate) fn close_kept(self) -> Duration {
        self.0 / 3
    }

    /// The time after the start of a close at which waiting for the end of the session stops.
    pub(crate) fn close_ended(self) -> Duration {
        self.0 * 7 / 8
    }
}
