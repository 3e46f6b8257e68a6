//! Which faults are armed, and when one of them is due.

use std::time::Duration;

use crate::relay::Closing;

/// Where a connection is closed; `k` counts from 1 since the last reset, over all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// Instead of forwarding the k-th request.
    BeforeRequest(usize),
    /// As soon as the k-th request was forwarded to the server: it is executed, and its answer
    /// never comes.
    AfterRequest(usize),
    /// Instead of forwarding the k-th answer, which the server has given.
    BeforeAnswer(usize),
    /// As soon as the k-th answer was forwarded.
    AfterAnswer(usize),
}

/// What a hook wants to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Forward it.
    Forward,
    /// Swallow it silently; what comes after it is forwarded.
    Drop,
    /// Close the connection instead of forwarding it.
    Cut,
    /// Keep it, and all requests behind it on this connection, until the proxy is healed. Pings go
    /// on.
    Hold,
}

/// The faults that are armed.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) cut_fired: bool,
    pub(super) hole_after: Option<usize>,
    pub(super) delay: Duration,
    pub(super) closing: Closing,
    cut: Option<Cut>,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self { cut_fired: false, hole_after: None, delay: Duration::ZERO, closing: Closing::Fin, cut: None }
    }

    pub(super) fn arm(&mut self, at: Cut) {
        self.cut = Some(at);
        self.cut_fired = false;
    }

    pub(super) fn disarm(&mut self) {
        self.cut = None;
        self.hole_after = None;
    }

    /// Whether the armed cut is this one; it is spent then.
    pub(super) fn is_due(&mut self, cut: Cut) -> bool {
        let due = self.cut == Some(cut);
        if due {
            self.cut = None;
            self.cut_fired = true;
        }
        due
    }

    /// Whether the black hole begins after this request; it is spent then.
    pub(super) fn hole_is_due(&mut self, k: usize) -> bool {
        self.hole_after.take_if(|at| *at == k).is_some()
    }
}
