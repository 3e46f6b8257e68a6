//! Owns the telemetry: a span for each acquisition and each hold, and the metrics if the feature `metrics` is on.
//!
//! The span of a hold is a sibling of its acquisition's span: both are children of the caller's span.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tracing::field::{Empty, display};
use tracing::{Instrument, Span, info_span};

use crate::error::{Loss, Result};
use crate::fencing_token::FencingToken;
#[cfg(feature = "metrics")]
use crate::metrics;

/// The labels of a lock in spans and metrics.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    /// The kind of contender, or `several` for a lock of several queues.
    pub(crate) kind: &'static str,
    /// The label that the function given to `metrics::label_locks_by` returns for the lock.
    #[cfg(feature = "metrics")]
    pub(crate) lock: metrics::Label,
}

impl Labels {
    fn new(kind: &'static str, _path: &str) -> Self {
        Self {
            kind,
            #[cfg(feature = "metrics")]
            lock: metrics::label_of(_path),
        }
    }
}

/// The span of an acquisition, from the call to its end. A drop before the end means that the acquisition was cancelled.
#[derive(Debug)]
pub(crate) struct AcquireSpan {
    caller: Span,
    span: Span,
    labels: Labels,
    began: Instant,
    /// The highest czxid among the session's grants when the acquisition began.
    pub(crate) after: i64,
    /// The outcome; unset until the acquisition ends.
    outcome: OnceLock<&'static str>,
}

impl AcquireSpan {
    /// Begins the span. `after`: the highest czxid among the session's grants.
    pub(crate) fn begin(kind: &'static str, path: &str, after: i64) -> Self {
        let span = info_span!(
            "lock.acquire",
            lock.path = path,
            lock.kind = kind,
            lock.token = Empty,
            lock.waited_ms = Empty,
            lock.outcome = Empty,
        );
        let (caller, labels) = (Span::current(), Labels::new(kind, path));
        #[cfg(feature = "metrics")]
        metrics::shift_of(&labels, metrics::WAITING, 1.0);
        Self { caller, span, labels, began: Instant::now(), after, outcome: OnceLock::new() }
    }

    /// Runs `acquire` in the span. `token` returns the fencing token of a grant, or `None` if the lock was contended.
    pub(crate) async fn run<T>(
        &self,
        acquire: impl Future<Output = Result<T>>,
        token: impl FnOnce(&T) -> Option<FencingToken>,
    ) -> Result<T> {
        let result = acquire.instrument(self.span.clone()).await;
        let outcome = match result.as_ref().map(token) {
            Ok(Some(token)) => {
                self.span.record("lock.token", token.get());
                "granted"
            }
            Ok(None) => "contended",
            Err(error) => error.kind(),
        };
        self.outcome.get_or_init(|| outcome);
        result
    }

    /// Begins the span of the hold that was granted.
    pub(crate) fn hold(&self, path: &str, token: FencingToken) -> Held {
        let span = info_span!(
            parent: &self.caller,
            "lock.hold",
            lock.path = path,
            lock.kind = self.labels.kind,
            lock.token = token.get(),
            lock.held_ms = Empty,
            lock.ended = Empty,
        );
        #[cfg(feature = "metrics")]
        metrics::shift_of(&self.labels, metrics::HOLDS, 1.0);
        Held {
            span,
            #[cfg(feature = "metrics")]
            labels: self.labels.clone(),
            began: Instant::now(),
        }
    }
}

impl Drop for AcquireSpan {
    fn drop(&mut self) {
        let (outcome, waited) = (self.outcome.get().unwrap_or(&"cancelled"), self.began.elapsed());
        self.span.record("lock.waited_ms", millis(waited));
        self.span.record("lock.outcome", outcome);
        #[cfg(feature = "metrics")]
        metrics::acquired(&self.labels, outcome, waited);
    }
}

/// The span of a hold, from its grant to its end.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) span: Span,
    #[cfg(feature = "metrics")]
    labels: Labels,
    began: Instant,
}

impl Held {
    /// Records the end of the hold: its loss, or `None` for its release. Call this once.
    pub(crate) fn ended(&self, loss: Option<Loss>) {
        let held = self.began.elapsed();
        self.span.record("lock.held_ms", millis(held));
        match loss {
            None => self.span.record("lock.ended", "released"),
            Some(loss) => self.span.record("lock.ended", display(loss)),
        };
        #[cfg(feature = "metrics")]
        metrics::ended(&self.labels, loss, held);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Runs `log`, which logs an event. If a `tracing` layer panics, only this event is lost.
pub(crate) fn guarded(log: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(log));
}

/// Whether metrics are compiled in.
pub(crate) const IS_COUNTED: bool = cfg!(feature = "metrics");

/// Reports the metrics of a new lock as 0.
pub(crate) fn lock_begins(_kind: &'static str, _path: &str) {
    #[cfg(feature = "metrics")]
    metrics::lock_begins(&Labels::new(_kind, _path));
}

/// Reports the metric of a new job as 0, for each of the outcomes and for a failure.
pub(crate) fn job_begins(_path: &str, _outcomes: &[&'static str]) {
    #[cfg(feature = "metrics")]
    _outcomes.iter().chain(&[FAILED]).for_each(|outcome| metrics::job_ended(_path, outcome, 0));
}

/// Counts an ended fire of a job. The outcome is `None` if the fire has failed.
pub(crate) fn job_ended(_path: &str, _outcome: Option<&'static str>) {
    #[cfg(feature = "metrics")]
    metrics::job_ended(_path, _outcome.unwrap_or(FAILED), 1);
}

/// The causes of a candidate's pause, as labels of the metric.
pub(crate) const RETURNED: &str = "returned";
pub(crate) const PANICKED: &str = "panicked";

/// Reports the metric of a new candidate as 0, for each cause of a pause.
pub(crate) fn candidate_begins(_path: &str) {
    #[cfg(feature = "metrics")]
    [RETURNED, PANICKED].iter().for_each(|cause| metrics::candidate_pauses(_path, cause, 0));
}

/// Counts a pause of a candidate after a term that has failed.
pub(crate) fn candidate_pauses(_path: &str, _cause: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::candidate_pauses(_path, _cause, 1);
}

/// The outcome of a failed fire, as a label of the metric.
#[cfg(feature = "metrics")]
const FAILED: &str = "failed";

/// The metrics of sessions. Without the feature `metrics`, these functions do nothing.
#[cfg(feature = "metrics")]
pub(crate) use crate::metrics::{connected, renewed, requested, session_begins, tokens_fell};
#[cfg(not(feature = "metrics"))]
pub(crate) use silent::{connected, renewed, requested, session_begins, tokens_fell};

#[cfg(not(feature = "metrics"))]
mod silent {
    pub(crate) fn session_begins() {}
    pub(crate) fn connected(_is_up: bool) {}
    pub(crate) fn requested(_request: &'static str, _count: u64) {}
    pub(crate) fn renewed() {}
    pub(crate) fn tokens_fell() {}
}
