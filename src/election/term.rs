//! Owns [`Term`], one leadership of a candidate, and [`CurrentTerm`], the latest leadership of an election handle.

use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn, spawn_blocking};
use tokio::time::timeout;

use crate::hold::{HoldMonitor, HoldState};
use crate::locked::locked;

/// The time between two warnings about tasks that should have ended and still run.
const PATIENCE: Duration = Duration::from_secs(30);

/// One term of a leader, in [`Election::run`](crate::Election::run): a [monitor](HoldMonitor) of the leadership, and the tasks
/// that work in it.
///
/// The next term of the same `run` begins only after all tasks of this term have ended. If the term returned, the candidate leads until
/// then. After a loss or a panic it is not in the queue. Once the tasks should end, because the leadership was lost or asked back, a
/// warning every 30 s says how many still run. Do not spawn after the end of the term: such a task may outlive it.
///
/// # Examples
///
/// ```no_run
/// # async fn serve() {}
/// # fn compact(monitor: &zookeeper_recipes::HoldMonitor) {}
/// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use std::sync::Arc;
///
/// let leading = election.run(|term| async move {
///     term.spawn(serve());
///     let (monitor, stop) = (term.clone(), Arc::new(AtomicBool::new(false)));
///     let stopped = stop.clone();
///     term.spawn_blocking(move || {
///         // A thread cannot be cut off, so it checks.
///         while !stopped.load(Relaxed) && !monitor.state().has_ended() {
///             compact(&monitor);
///         }
///     });
///     term.revoke_requested().await;
///     stop.store(true, Relaxed);
/// });
/// leading.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Term {
    monitor: HoldMonitor,
    /// Each task keeps a receiver, so `closed` resolves when all have ended.
    tasks: Arc<watch::Sender<()>>,
}

impl Term {
    pub(super) fn new(monitor: HoldMonitor) -> Self {
        Self { monitor, tasks: Arc::new(watch::Sender::new(())) }
    }

    /// Spawns work of this term. When the leadership ends, the work is dropped at its next `await`, as in
    /// [`Hold::run_until_lost`](crate::Hold::run_until_lost).
    ///
    /// When the future of the term returns, the leadership lasts until the spawned work has ended, too. When it panics, the candidate
    /// resigns, which ends the work. Let work that goes on without end await [`revoke_requested`](HoldMonitor::revoke_requested). A
    /// panic of the work shows only in its `JoinHandle`.
    ///
    /// # Errors
    ///
    /// The handle returns the state with which the hold ended, if it ended before the work.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn spawn<F>(&self, work: F) -> JoinHandle<Result<F::Output, HoldState>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let (monitor, task) = (self.monitor.clone(), self.tasks.subscribe());
        spawn(async move {
            // Declared first, so dropped after the work.
            let _task = task;
            monitor.run_until_lost(work).await
        })
    }

    /// Runs work of this term on a thread for blocking work. A thread cannot be cut off: look at the
    /// [state](HoldMonitor::state) before each step, and send the [token](HoldMonitor::fencing_token) with each write.
    ///
    /// As with [`spawn`](Self::spawn), the leadership lasts until the work has ended, unless it is lost, or the term panics.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn spawn_blocking<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        let task = self.tasks.subscribe();
        spawn_blocking(move || {
            let _task = task;
            work()
        })
    }

    /// Waits until all tasks have ended.
    pub(super) async fn finished(&self) {
        while timeout(PATIENCE, self.tasks.closed()).await.is_err() {
            let is_revoked = self.monitor.revoke_requested().now_or_never().is_some();
            if is_revoked || self.monitor.state().has_ended() {
                let (path, tasks) = (self.monitor.path(), self.tasks.receiver_count());
                tracing::warn!(path, tasks, "tasks of a term still run; its end and the next term wait for them");
            }
        }
    }
}

impl Deref for Term {
    type Target = HoldMonitor;

    fn deref(&self) -> &HoldMonitor {
        &self.monitor
    }
}

/// The latest leadership that a handle of the election or one of its clones has won. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct CurrentTerm(Arc<Mutex<Option<HoldMonitor>>>);

impl CurrentTerm {
    pub(crate) fn begin(&self, term: HoldMonitor) {
        let before = locked(&self.0).replace(term);
        // Dropping the old term may end its span, which runs the user's code. So the mutex is unlocked before.
        drop(before);
    }

    /// Returns a monitor of the leadership, unless it has ended.
    pub(crate) fn monitor(&self) -> Option<HoldMonitor> {
        let term = locked(&self.0).clone();
        term.filter(|term| !term.state().has_ended())
    }
}
