//! Owns the blocking [`Waiting`]: a waiter in the queue, for a thread that also does other things.

use std::time::Duration;

use crate::blocking::{Guard, Runtime};
use crate::error::{Error, Result};

/// A waiter in a queue, for a guard `G`. Drop it to leave the queue.
///
/// A thread in `lock()` can be woken early only by the end of the session. A thread that also does other things joins
/// the queue by `enqueue`, and waits in steps. The waiter keeps its position between the steps.
///
/// Once a waiter is granted the lock, it counts as a hold, like the async [`Waiting`](crate::Waiting): other contenders
/// wait for it. If the hold is lost before a thread waits, that wait returns [`Error::Lost`].
///
/// # Examples
///
/// ```no_run
/// # fn example(mutex: zookeeper_recipes::blocking::Mutex) -> Result<(), zookeeper_recipes::Error> {
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
///
/// static CANCELLED: AtomicBool = AtomicBool::new(false);
///
/// let mut waiting = mutex.enqueue()?;
/// while !CANCELLED.load(Ordering::Relaxed) {
///     if let Some(guard) = waiting.wait_for(Duration::from_millis(100))? {
///         println!("it is our turn, with token {}", guard.fencing_token());
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it leaves the queue"]
pub struct Waiting<G> {
    /// The async waiter. `None` once it has returned its guard or an error.
    waiting: Option<crate::lock::Waiting<G>>,
    // Dropped after `waiting`, whose drop deletes the waiter's node on this runtime.
    runtime: Runtime,
}

impl<G> Waiting<G> {
    /// Joins a queue: waits for `enqueue`, which returns the async waiter.
    pub(super) fn join(
        runtime: &Runtime,
        enqueue: impl Future<Output = Result<crate::lock::Waiting<G>>>,
    ) -> Result<Self> {
        Ok(Self { waiting: Some(runtime.block_on(enqueue)?), runtime: runtime.clone() })
    }

    /// Waits for the guard, for as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::blocking::Mutex::lock), and [`Error::InvalidInput`] after [`wait_for`](Self::wait_for) has
    /// returned the guard or an error.
    pub fn wait(mut self) -> Result<Guard<G>> {
        let waiting = self.waiting.take().ok_or_else(over)?;
        self.runtime.block_on(waiting).map(|guard| Guard::new(guard, &self.runtime))
    }

    /// Waits for the guard for at most `limit`. Returns `None` if it is not our turn yet, or if no server answers. The waiter
    /// keeps its position.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<Guard<G>>> {
        let waiting = self.waiting.as_mut().ok_or_else(over)?;
        let Ok(ended) = self.runtime.block_on(async { tokio::time::timeout(limit, waiting).await }) else {
            return Ok(None);
        };
        self.waiting = None;
        ended.map(|guard| Some(Guard::new(guard, &self.runtime)))
    }

    /// Returns how many contenders ahead must leave first, as of the last wait; 0 when it is our turn. See
    /// [`position`](crate::Waiting::position) of the async waiter.
    #[must_use]
    pub fn position(&self) -> usize {
        self.waiting.as_ref().map_or(0, crate::lock::Waiting::position)
    }
}

fn over() -> Error {
    Error::invalid("waiter", "it has returned its guard or an error already; enqueue another")
}
