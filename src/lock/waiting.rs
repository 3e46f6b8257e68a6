//! Owns [`Waiting`]: a waiter in the queue, to be awaited for the guard; and [`Progress`], how many are ahead.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::error::{Loss, Result};
use crate::hold::Hold;
use crate::lock::Lock;

/// The number of predecessors at the last look; `None` before the first.
#[derive(Debug, Default)]
pub(crate) struct Progress(watch::Sender<Option<usize>>);

impl Progress {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Notes how many are ahead.
    pub(super) fn ahead(&self, count: usize) {
        self.0.send_replace(Some(count));
    }

    /// Whether the waiter had a predecessor.
    pub(crate) fn has_waited(&self) -> bool {
        self.last().is_some()
    }

    /// Waits until the waiter has a predecessor.
    pub(crate) async fn waits(&self) {
        self.left(None).await;
    }

    /// The number of predecessors at the last look.
    pub(crate) fn last(&self) -> Option<usize> {
        *self.0.borrow()
    }

    /// Waits until that is another than `last`.
    pub(crate) async fn left(&self, last: Option<usize>) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|ahead| *ahead != last).await;
    }
}

/// A waiter in a queue. Await it for the guard `G`; drop it to leave the queue.
///
/// It makes progress only while it is awaited. Once it is first in the queue, or a task of the same session has handed the
/// lock over to it, it keeps the others waiting until it is awaited, as a guard would.
///
/// It belongs to the runtime on which it joined the queue.
///
/// # Cancel safety
///
/// It can be awaited by reference (`&mut waiting`), again and again, without losing its position.
///
/// # Panics
///
/// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
/// use std::time::Duration;
///
/// use tokio::time::timeout;
///
/// let mut waiting = mutex.enqueue().await?;
/// let guard = loop {
///     match timeout(Duration::from_secs(1), &mut waiting).await {
///         Ok(guard) => break guard?,
///         Err(_) => println!("{} are ahead", waiting.position()),
///     }
/// };
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it leaves the queue"]
pub struct Waiting<G> {
    /// Locked for a moment only: it makes the value `Sync`, which the future in it is not.
    state: Mutex<State>,
    progress: Arc<Progress>,
    lock: Lock,
    guard: Arc<dyn Fn(Hold) -> G + Send + Sync>,
}

enum State {
    Queued(BoxFuture<'static, Result<Hold>>),
    /// It was our turn before anybody asked.
    Admitted(Hold),
    Done,
}

impl<G> Waiting<G> {
    /// Takes a place in the queue of `lock`; comes back when it is known.
    pub(crate) async fn enqueue(lock: Lock, guard: impl Fn(Hold) -> G + Send + Sync + 'static) -> Result<Self> {
        let progress = Arc::new(Progress::new());
        let mut queued = queued(&lock, &progress);
        let state = tokio::select! {
            biased;
            hold = &mut queued => State::Admitted(hold?),
            () = progress.waits() => State::Queued(queued),
        };
        Ok(Self { state: Mutex::new(state), progress, lock, guard: Arc::new(guard) })
    }

    /// How many contenders ahead have to leave first, as of the last time that it was woken; 0 when it is our turn.
    ///
    /// In several queues it is the largest number. Of a waiter for permits it is the number of callers ahead, and once
    /// there are none, the number of permits that have to be released.
    #[must_use]
    pub fn position(&self) -> usize {
        match *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Queued(_) => self.progress.last().unwrap_or_default(),
            State::Admitted(_) | State::Done => 0,
        }
    }
}

impl<G> Future for Waiting<G> {
    type Output = Result<G>;

    /// # Panics
    ///
    /// If it is polled again after it has returned.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let state = this.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut place = match std::mem::replace(state, State::Done) {
            State::Queued(place) => place,
            State::Admitted(hold) => match hold.state().loss() {
                None => return Poll::Ready(Ok((this.guard)(hold))),
                // As while it waits, the end of the session is no error: it queues again in the renewed one.
                Some(Loss::Expired | Loss::Closed) => queued(&this.lock, &this.progress),
                Some(loss) => return Poll::Ready(Err(loss.into())),
            },
            State::Done => panic!("a place in the queue was awaited again after its end"),
        };
        let polled = place.as_mut().poll(cx);
        if polled.is_pending() {
            *state = State::Queued(place);
        }
        polled.map_ok(&*this.guard)
    }
}

fn queued(lock: &Lock, progress: &Arc<Progress>) -> BoxFuture<'static, Result<Hold>> {
    let (lock, progress) = (lock.clone(), progress.clone());
    async move { lock.acquire_with(Some(&progress)).await }.boxed()
}

impl<G> fmt::Debug for Waiting<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("position", &self.position()).finish_non_exhaustive()
    }
}
