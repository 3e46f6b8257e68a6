//! Owns [`Waiting`]: a place in the queue, to be awaited for the hold.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::error::{Loss, Result};
use crate::hold::{Hold, HoldState};
use crate::queue::Queue;
use crate::queue::progress::Progress;

/// A place in a queue. Await it for the guard `G`; drop it to leave the queue.
///
/// It moves on only while it is awaited: a place whose turn has come keeps the others waiting until somebody awaits it,
/// as a guard would.
///
/// It belongs to the runtime on which it was taken.
///
/// # Cancel safety
///
/// It can be awaited by reference (`&mut waiting`), again and again, without losing the place.
///
/// # Panics
///
/// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
#[must_use = "dropping it leaves the queue"]
pub struct Waiting<G> {
    /// Locked for a moment only: it makes the value `Sync`, which the future in it is not.
    way: Mutex<Way>,
    progress: Arc<Progress>,
    queue: Queue,
    guard: fn(Hold) -> G,
}

enum Way {
    Queued(BoxFuture<'static, Result<Hold>>),
    /// It was our turn before anybody asked.
    Admitted(Hold),
    Done,
}

impl<G> Waiting<G> {
    /// Takes a place in `queue`; comes back when it is known.
    pub(crate) async fn enqueue(queue: Queue, guard: fn(Hold) -> G) -> Result<Self> {
        let progress = Arc::new(Progress::new());
        let mut queued = queued(&queue, &progress);
        let way = tokio::select! {
            biased;
            hold = &mut queued => Way::Admitted(hold?),
            () = progress.known() => Way::Queued(queued),
        };
        Ok(Self { way: Mutex::new(way), progress, queue, guard })
    }

    /// How many are ahead and have to leave first, as of the last time that it was woken; 0 when it is our turn.
    ///
    /// Of a place in several queues it is the longest of them. Of one that waits for permits it is the number of
    /// callers ahead, and once there are none, of the permits that have to be given back.
    #[must_use]
    pub fn position(&self) -> usize {
        match *self.way.lock().unwrap_or_else(PoisonError::into_inner) {
            Way::Queued(_) => self.progress.last().unwrap_or_default(),
            Way::Admitted(_) | Way::Done => 0,
        }
    }
}

impl<G> Future for Waiting<G> {
    type Output = Result<G>;

    /// # Panics
    ///
    /// If it is polled again after it has come to its end.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let way = this.way.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut place = match std::mem::replace(way, Way::Done) {
            Way::Queued(place) => place,
            Way::Admitted(hold) => match hold.state() {
                HoldState::Held | HoldState::Suspended => return Poll::Ready(Ok((this.guard)(hold))),
                // As while it waits, the end of the session is no error: it queues again in the renewed one.
                HoldState::Lost(Loss::Expired | Loss::Closed) => queued(&this.queue, &this.progress),
                HoldState::Lost(loss) => return Poll::Ready(Err(loss.into())),
            },
            Way::Done => panic!("a place in the queue was awaited again after its end"),
        };
        let polled = place.as_mut().poll(cx);
        if polled.is_pending() {
            *way = Way::Queued(place);
        }
        polled.map_ok(this.guard)
    }
}

fn queued(queue: &Queue, progress: &Arc<Progress>) -> BoxFuture<'static, Result<Hold>> {
    let (queue, progress) = (queue.clone(), progress.clone());
    async move { queue.hold_with(&progress).await }.boxed()
}

impl<G> fmt::Debug for Waiting<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("position", &self.position()).finish_non_exhaustive()
    }
}
