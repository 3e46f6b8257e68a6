//! Owns the calls of the user's code that a session makes: log events and metrics.
//!
//! `tracing` layers and `metrics` recorders may call this crate back, block or panic. So what is to be logged or counted under
//! the session's lock, or by its task, is kept here as a report, and a task of its own makes the calls. Tasks that learn of a loss
//! are woken before that task is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::locked::locked;
use crate::telemetry;

type Report = Box<dyn FnOnce() + Send>;

/// While a layer blocks, no more than this is kept for it.
const MOST: usize = 100_000;

/// What is to be logged and counted, in order.
#[derive(Default)]
pub(crate) struct Reports {
    queue: Mutex<Queue>,
    woken: Notify,
}

#[derive(Default)]
struct Queue {
    reports: Vec<Report>,
    /// The names of requests that were sent. They are counted with the next report, or at the next beat.
    requests: Vec<&'static str>,
    /// How many reports were dropped because there were too many.
    dropped: usize,
    /// The task has ended. Reports are made where they arise.
    is_closed: bool,
}

impl Reports {
    /// Keeps a report. No user's code runs until [`settle`](Self::settle), which the caller owes once it has no lock.
    pub(crate) fn push(&self, report: impl FnOnce() + Send + 'static) {
        let mut queue = locked(&self.queue);
        if queue.reports.len() < MOST {
            queue.reports.push(Box::new(report));
        } else {
            queue.dropped += 1;
        }
    }

    /// The same for the count of a request, which may wait for the next beat.
    pub(super) fn requested(&self, name: &'static str) {
        if telemetry::IS_COUNTED {
            locked(&self.queue).requests.push(name);
        }
    }

    /// Has the reports made that were kept.
    pub(crate) fn settle(&self) {
        let queue = locked(&self.queue);
        if queue.reports.is_empty() {
            return;
        }
        let is_closed = queue.is_closed;
        drop(queue);
        if is_closed { self.make() } else { self.woken.notify_one() }
    }

    /// Has the requests counted that were sent since the last beat.
    pub(super) fn beat(&self) {
        if !locked(&self.queue).requests.is_empty() {
            self.woken.notify_one();
        }
    }

    /// Makes the reports until the session's task has ended.
    pub(crate) async fn run(self: Arc<Self>) {
        let closing = Closing(&self);
        while !locked(&self.queue).is_closed {
            self.woken.notified().await;
            // A report may block this thread, so other tasks that were woken on it go first.
            yield_now().await;
            self.make();
        }
        drop(closing);
    }

    /// No task makes reports any more. Those that are kept are made here.
    pub(super) fn close(&self) {
        locked(&self.queue).is_closed = true;
        self.make();
        self.woken.notify_one();
    }

    fn make(&self) {
        let (reports, requests, dropped) = {
            let mut queue = locked(&self.queue);
            (
                std::mem::take(&mut queue.reports),
                std::mem::take(&mut queue.requests),
                std::mem::take(&mut queue.dropped),
            )
        };
        let requests = requests.into_iter().map(|name| -> Report { Box::new(move || telemetry::requested(name)) });
        let dropped = (dropped > 0).then(|| -> Report {
            Box::new(move || {
                tracing::warn!(dropped, "a subscriber or recorder is too slow; log events were dropped")
            })
        });
        for report in requests.chain(reports).chain(dropped) {
            // A layer or a recorder that panics costs this report.
            let _ = catch_unwind(AssertUnwindSafe(report));
        }
    }
}

/// The end of the task that makes reports, also with its runtime.
struct Closing<'a>(&'a Reports);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
