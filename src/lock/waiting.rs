//! Owns [`Waiting`]: a waiter in the queue, to be awaited for the guard.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{self, Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::driver::Progress;
use crate::error::Result;
use crate::hold::Hold;
use crate::lock::Lock;

/// A waiter in a queue. Await it for the guard `G`; drop it to leave the queue.
///
/// A waiter keeps its position while it is not awaited. Once it is granted the lock, it counts as a hold: its
/// [limit](crate::Options::with_stall_limit) runs, and a [drain](crate::Session::drain) waits for it. If the hold is lost
/// before the waiter is awaited, the await returns [`Error::Lost`](crate::Error::Lost). If the ZooKeeper session expires
/// before the grant, the waiter queues again in the next session. See [Futures](crate#futures).
///
/// A waiter belongs to the runtime on which it joined the queue.
///
/// # Cancel safety
///
/// A waiter can be awaited by reference (`&mut waiting`), again and again, without losing its position.
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
#[clippy::has_significant_drop]
#[must_use = "dropping it leaves the queue"]
pub struct Waiting<G> {
    /// The future of the guard. The mutex is never locked. It only makes this type `Sync`.
    place: Mutex<BoxFuture<'static, Result<G>>>,
    progress: Arc<Progress>,
}

impl<G> Waiting<G> {
    /// Joins the queue of `lock`. Returns once the position is known.
    pub(crate) async fn enqueue(lock: Lock, guard: impl FnOnce(Hold) -> G + Send + 'static) -> Result<Self> {
        let progress = Arc::<Progress>::default();
        let ahead = progress.clone();
        let mut place = async move { lock.acquire_with(Some(&ahead), false).await }.boxed();
        let granted = tokio::select! {
            biased;
            held = &mut place => Some(held?),
            () = progress.waits() => None,
        };
        let place = async move {
            let hold = match granted {
                Some(hold) => hold.state().loss().map_or(Ok(hold), |loss| Err(loss.into())),
                None => place.await,
            };
            hold.map(guard)
        };
        Ok(Self { place: Mutex::new(place.boxed()), progress })
    }

    /// Returns how many contenders ahead must leave first, as of the last poll; 0 if none must.
    ///
    /// With several queues, this is the largest of their numbers. For permits, it is the number of callers ahead. Once no
    /// caller is ahead, it is the number of permits that must be released.
    #[must_use]
    pub fn position(&self) -> usize {
        self.progress.last().unwrap_or_default()
    }
}

impl<G> Future for Waiting<G> {
    type Output = Result<G>;

    /// # Panics
    ///
    /// Panics if it is polled again after it has returned.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let place = self.place.get_mut().unwrap_or_else(PoisonError::into_inner);
        let guard = task::ready!(place.poll_unpin(cx));
        self.progress.ahead(0);
        Poll::Ready(guard)
    }
}

impl<G> fmt::Debug for Waiting<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("position", &self.position()).finish_non_exhaustive()
    }
}
