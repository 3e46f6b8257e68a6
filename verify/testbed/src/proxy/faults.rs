//! The armed faults, and when each is due.

use std::time::Duration;

use crate::relay::Closing;

/// The frame at which a connection is closed; `k` counts from 1 since the last reset, over all
/// connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// Instead of forwarding the k-th request.
    BeforeRequest(usize),
    /// As soon as the k-th request was forwarded to the server: it is executed, but its answer never
    /// arrives.
    AfterRequest(usize),
    /// Instead of forwarding the k-th answer of the server.
    BeforeAnswer(usize),
    /// As soon as the k-th answer was forwarded.
    AfterAnswer(usize),
}

/// A hook's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Forward it.
    Forward,
    /// Drop it silently; later requests are forwarded.
    Drop,
    /// Close the connection instead of forwarding it.
    Cut,
    /// Hold it, and all later requests on this connection, until the proxy is healed. Pings still
    /// pass.
    Hold,
}

/// The armed faults.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) cut_fired: bool,
    pub(super) hole_after: Option<usize>,
    pub(super) delay: Duration,
    pub(super) no_events: bool,
    pub(super) new_sessions: bool,
    pub(super) no_set_watches: bool,
    pub(super) closing: Closing,
    cut: Option<Cut>,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            cut_fired: false,
            hole_after: None,
            delay: Duration::ZERO,
            no_events: false,
            new_sessions: false,
            no_set_watches: false,
            closing: Closing::Fin,
            cut: None,
        }
    }

    pub(super) fn arm(&mut self, at: Cut) {
        self.cut = Some(at);
        self.cut_fired = false;
    }

    pub(super) fn disarm(&mut self) {
        self.cut = None;
        self.hole_after = None;
    }

    /// Whether this cut is armed; if so, disarms it.
    pub(super) fn is_due(&mut self, cut: Cut) -> bool {
        let due = self.cut == Some(cut);
        if due {
            self.cut = None;
            self.cut_fired = true;
        }
        due
    }

    /// Whether the black hole begins after this request; if so, disarms it.
    pub(super) fn hole_is_due(&mut self, k: usize) -> bool {
        self.hole_after.take_if(|at| *at == k).is_some()
    }
}
