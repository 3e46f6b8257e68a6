//! Owns the calls of the user's code that a session makes: log events and metrics.
//!
//! `tracing` layers and `metrics` recorders may call this crate back, block or panic. So what is to be logged or counted under
//! the session's lock, or by its task, is kept here as a report, and a task of its own makes the calls. Tasks that learn of a loss
//! are woken before that task is.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::locked::locked;
use crate::telemetry;

type Report = Box<dyn FnOnce() + Send>;

/// The target of the journal: all that the machine is given and asks for, in order, which `replay` plays again.
pub(super) const JOURNAL: &str = "zookeeper_recipes::machine";

/// While a layer blocks, no more log events than this are kept for it.
const MAX_REPORTS: usize = 100_000;

/// How long a close waits for the last reports.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);

/// What is to be logged and counted, in order.
#[derive(Default)]
pub(crate) struct Reports {
    queue: Mutex<Pending>,
    woken: Notify,
    ended: Notify,
    /// A subscriber wants the journal. That is asked by the task, because it runs the user's code.
    is_journaled: AtomicBool,
}

#[derive(Default)]
struct Pending {
    reports: Vec<Report>,
    counts: Counts,
    /// How many reports were dropped because there were too many.
    dropped: usize,
    stage: Stage,
}

/// Numbers are added up, so they need no limit.
#[derive(Default)]
struct Counts {
    requests: BTreeMap<&'static str, u64>,
    connected: i64,
    in_cleanup: i64,
    trusted_for: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The session has ended. The task makes the reports that are left.
    Ending,
    /// The task has ended. Reports are made where they arise.
    Ended,
}

impl Counts {
    fn is_empty(&self) -> bool {
        let Self { requests, connected, in_cleanup, trusted_for } = self;
        requests.is_empty() && *connected == 0 && *in_cleanup == 0 && trusted_for.is_none()
    }

    fn report(self) {
        self.requests.into_iter().for_each(|(name, count)| telemetry::requested(name, count));
        if self.connected != 0 {
            telemetry::connected(self.connected);
        }
        if self.in_cleanup != 0 {
            telemetry::in_cleanup(self.in_cleanup);
        }
        if let Some(left) = self.trusted_for {
            telemetry::trusted_for(left);
        }
    }
}

impl Reports {
    /// Keeps a report. The caller must call [`flush`](Self::flush) after it has released its locks.
    pub(crate) fn push(&self, report: impl FnOnce() + Send + 'static) {
        let mut queue = locked(&self.queue);
        if queue.reports.len() < MAX_REPORTS {
            queue.reports.push(Box::new(report));
        } else {
            queue.dropped += 1;
        }
    }

    /// Counts a request. The recorder learns of it at the next beat.
    pub(super) fn requested(&self, name: &'static str) {
        self.count(|counts| *counts.requests.entry(name).or_default() += 1);
    }

    pub(super) fn connected(&self, sessions: i64) {
        self.count(|counts| counts.connected += sessions);
    }

    pub(super) fn in_cleanup(&self, nodes: i64) {
        self.count(|counts| counts.in_cleanup += nodes);
    }

    pub(super) fn trusted_for(&self, left: Duration) {
        self.count(|counts| counts.trusted_for = Some(left));
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        if telemetry::IS_COUNTED {
            count(&mut locked(&self.queue).counts);
        }
    }

    /// Has the kept reports made.
    pub(crate) fn flush(&self) {
        let (is_empty, stage) = {
            let queue = locked(&self.queue);
            (queue.reports.is_empty(), queue.stage)
        };
        match stage {
            Stage::Ended => self.make(),
            _ if is_empty => {}
            Stage::Open | Stage::Ending => self.woken.notify_one(),
        }
    }

    /// Has the numbers reported that have changed since the last beat.
    pub(super) fn beat(&self) {
        if !locked(&self.queue).counts.is_empty() {
            self.woken.notify_one();
        }
    }

    /// Whether a subscriber wants the journal, as far as that was asked.
    pub(super) fn is_journaled(&self) -> bool {
        is_traced() && self.is_journaled.load(Ordering::Relaxed)
    }

    /// Asks whether a subscriber wants the journal. This runs the user's code.
    pub(crate) fn ask_for_journal(&self) {
        let asked = || tracing::event_enabled!(target: JOURNAL, Level::TRACE);
        let is_journaled = is_traced() && catch_unwind(asked).unwrap_or_default();
        self.is_journaled.store(is_journaled, Ordering::Relaxed);
    }

    /// Makes the reports until the session has ended.
    pub(crate) async fn run(self: Arc<Self>) {
        let ended = Ended(&self);
        while locked(&self.queue).stage == Stage::Open {
            self.woken.notified().await;
            // A report may block this thread, so other tasks that were woken on it go first.
            yield_now().await;
            self.ask_for_journal();
            self.make();
        }
        drop(ended);
    }

    /// The session has ended: the task makes the reports that are left, and ends.
    pub(super) fn end(&self) {
        let mut queue = locked(&self.queue);
        if queue.stage == Stage::Open {
            queue.stage = Stage::Ending;
        }
        drop(queue);
        self.woken.notify_one();
    }

    /// The same; waits for it, unless a layer blocks.
    pub(super) async fn ended(&self) {
        self.end();
        let ended = async {
            while locked(&self.queue).stage != Stage::Ended {
                self.ended.notified().await;
            }
        };
        let _ = tokio::time::timeout(LONGEST_FLUSH, ended).await;
    }

    fn make(&self) {
        let (reports, counts, dropped) = {
            let mut queue = locked(&self.queue);
            let Pending { reports, counts, dropped, .. } = &mut *queue;
            (std::mem::take(reports), std::mem::take(counts), std::mem::take(dropped))
        };
        let counts = (!counts.is_empty()).then(|| -> Report { Box::new(move || counts.report()) });
        let dropped = (dropped > 0).then(|| -> Report {
            Box::new(move || tracing::warn!(dropped, "a subscriber is too slow; log events were dropped"))
        });
        for report in counts.into_iter().chain(reports).chain(dropped) {
            // A layer or a recorder that panics costs this report.
            let _ = catch_unwind(AssertUnwindSafe(report));
        }
    }
}

/// Whether any subscriber may want events at this level. This runs no code of the user's.
pub(super) fn is_traced() -> bool {
    LevelFilter::current() >= Level::TRACE
}

/// The end of the task that makes reports, also with its runtime.
struct Ended<'a>(&'a Reports);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        locked(&self.0.queue).stage = Stage::Ended;
        self.0.make();
        self.0.ended.notify_one();
    }
}
