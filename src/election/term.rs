//! Owns [`Term`], one leadership of a candidate, and [`CurrentTerm`], the latest of an election's handle.

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

/// A warning says after each such time that tasks still run that are to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// One term of a leader, in [`Election::run`](crate::Election::run): a [monitor](HoldMonitor) of the leadership, and the tasks
/// that work in it.
///
/// The next term of the same `run` begins only when the tasks that this term has spawned have ended. After a loss or a panic the
/// candidate is not in the queue until then; after a return it still leads. A warning every 30 s says how many tasks are left, once they
/// are to end. A task that is spawned after the end of the term is not waited for.
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
///     let (monitor, ends) = (term.clone(), Arc::new(AtomicBool::new(false)));
///     let is_asked_to_end = ends.clone();
///     term.spawn_blocking(move || {
///         // A thread cannot be cut off, so it looks.
///         while !is_asked_to_end.load(Relaxed) && !monitor.state().has_ended() {
///             compact(&monitor);
///         }
///     });
///     term.revoke_requested().await;
///     ends.store(true, Relaxed);
/// });
/// leading.await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Term {
    monitor: HoldMonitor,
    /// Each task has a receiver.
    tasks: Arc<watch::Sender<()>>,
}

impl Term {
    pub(super) fn new(monitor: HoldMonitor) -> Self {
        Self { monitor, tasks: Arc::new(watch::Sender::new(())) }
    }

    /// Spawns work of this term. When the leadership ends, the work is dropped at its next `await`, as in
    /// [`Hold::run_until_lost`](crate::Hold::run_until_lost).
    ///
    /// If the term's own future returns, the leadership lasts until the spawned work has ended, too. If it panics, the candidate
    /// resigns, which ends the work. Let work that goes on without end await
    /// [`revoke_requested`](HoldMonitor::revoke_requested).
    ///
    /// # Errors
    ///
    /// The result of the work is the state that the hold has ended with, if it ended first.
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
