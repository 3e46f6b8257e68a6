//! Owns [`Reports`]: the log events and metrics of a session, which run the user's code.
//!
//! `tracing` layers and `metrics` recorders may call back into this crate, block or panic. So code under the session's lock,
//! and the session's task, only queue reports here. A second task makes the reports. Tasks that wait for the loss of a hold
//! are woken before the loss is reported.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tracing::Level;
use tracing::level_filters::LevelFilter;

use crate::locked::locked;
use crate::telemetry;

type Report = Box<dyn FnOnce() + Send>;

/// The most reports that are queued while a layer blocks. Later reports are dropped.
const MAX_REPORTS: usize = 100_000;

/// The longest time that a close waits for the last reports.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);

/// The log events and metrics of a session that are still to be reported.
#[derive(Default)]
pub(crate) struct Reports {
    queue: Mutex<Pending>,
    woken: Notify,
    ended: Notify,
}

#[derive(Default)]
struct Pending {
    reports: Vec<Report>,
    /// The number of requests since the last report, by name. The names are few, so the map needs no limit.
    requests: BTreeMap<&'static str, u64>,
    /// How many reports were dropped because the queue was full.
    dropped: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Open,
    /// The session has ended. The task makes the remaining reports.
    Ending,
    /// The task has ended. Each report is made by the code that flushes it.
    Ended,
}

impl Reports {
    /// Queues a report. The caller must call [`flush`](Self::flush) after it has released its locks.
    pub(crate) fn push(&self, report: impl FnOnce() + Send + 'static) {
        let mut queue = locked(&self.queue);
        if queue.reports.len() < MAX_REPORTS {
            queue.reports.push(Box::new(report));
        } else {
            queue.dropped += 1;
        }
    }

    /// Counts a request. The recorder gets the count with the next reports, which [`beat`](Self::beat) causes at the latest.
    pub(super) fn requested(&self, name: &'static str) {
        if telemetry::IS_COUNTED {
            *locked(&self.queue).requests.entry(name).or_default() += 1;
        }
    }

    /// Wakes the task to make the queued reports, or makes them here after the task has ended.
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

    /// Wakes the task if requests were counted since the last report.
    pub(super) fn beat(&self) {
        if !locked(&self.queue).requests.is_empty() {
            self.woken.notify_one();
        }
    }

    /// Makes the reports until the session has ended.
    pub(crate) async fn run(self: Arc<Self>) {
        let ended = Ended(&self);
        while locked(&self.queue).stage == Stage::Open {
            self.woken.notified().await;
            // A report may block this thread, so let other tasks that were woken on this thread run first.
            yield_now().await;
            self.make();
        }
        drop(ended);
    }

    /// Ends the task after it has made the remaining reports.
    pub(super) fn end(&self) {
        let mut queue = locked(&self.queue);
        if queue.stage == Stage::Open {
            queue.stage = Stage::Ending;
        }
        drop(queue);
        self.woken.notify_one();
    }

    /// Ends the task and waits for its end, but not for long, because a layer may block.
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
        let (reports, requests, dropped) = {
            let mut queue = locked(&self.queue);
            let Pending { reports, requests, dropped, .. } = &mut *queue;
            (std::mem::take(reports), std::mem::take(requests), std::mem::take(dropped))
        };
        let requests = requests
            .into_iter()
            .map(|(name, count)| -> Report { Box::new(move || telemetry::requested(name, count)) });
        let dropped = (dropped > 0).then(|| -> Report {
            Box::new(move || tracing::warn!(dropped, "a subscriber is too slow; log events were dropped"))
        });
        for report in requests.chain(reports).chain(dropped) {
            // If a layer or a recorder panics, only this report is lost.
            let _ = catch_unwind(AssertUnwindSafe(report));
        }
    }
}

/// Whether any subscriber may want trace events. Runs no user code.
pub(super) fn is_traced() -> bool {
    LevelFilter::current() >= Level::TRACE
}

/// On drop, marks the end of the reports' task, and makes the last reports. So this happens even if the runtime drops the task.
struct Ended<'a>(&'a Reports);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        locked(&self.0.queue).stage = Stage::Ended;
        self.0.make();
        self.0.ended.notify_one();
    }
}
