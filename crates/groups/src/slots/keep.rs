//! Owns [`KeptSlot`]: a number held in the background, across losses and sessions.

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use zookeeper_recipes::{Error, HoldMonitor, Result};

use crate::kept_node::PAUSE;
use crate::request::is_over;
use crate::slots::Slots;

type Held = Result<Option<(u32, HoldMonitor)>>;

/// A number that a background task holds, from [`Slots::keep`]. Dropping this value releases the number in the background.
///
/// After a loss or in a new session, the number may be another one. Follow it with [`changed`](Self::changed), and do the work
/// with a number in [`HoldMonitor::run_until_lost`](zookeeper_recipes::HoldMonitor::run_until_lost). If an operator revokes the
/// number, or the session is drained, the task releases it at once, without waiting for the work. To finish the work first, hold
/// a [`Slot`](crate::slots::Slot) yourself.
///
/// # Examples
///
/// ```no_run
/// # async fn example(slots: zookeeper_groups::Slots) -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_recipes::Error;
///
/// # async fn work(number: u32, token: zookeeper_recipes::FencingToken) {}
/// let mut kept = slots.keep();
/// loop {
///     match kept.changed().await {
///         Ok(Some((number, monitor))) => _ = monitor.run_until_lost(work(number, monitor.fencing_token())).await,
///         Ok(None) => println!("no number"),
///         Err(error @ (Error::Closed | Error::SessionEnded { .. })) => return Err(error),
///         Err(error) => eprintln!("{error}; it is retried"),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it releases the number"]
pub struct KeptSlot {
    held: watch::Receiver<Held>,
    task: AbortHandle,
}

impl KeptSlot {
    pub(super) fn new(slots: Slots) -> Self {
        let (sender, held) = watch::channel(Ok(None));
        Self { held, task: tokio::spawn(keep(slots, sender)).abort_handle() }
    }

    /// Returns the number held at this moment. Checks the clock, so the result is right even directly after a pause of the
    /// process.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let held = self.held.borrow().clone();
        held.ok()?.filter(|(_, monitor)| !monitor.state().has_ended()).map(|(number, _)| number)
    }

    /// Waits for the next change, and returns the number held then, with a monitor of its hold: `None` after a loss or a release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// The servers' error, such as [`Error::NoAuth`], if they refuse a request. The claim is retried every second: call this again.
    /// [`Error::Closed`] and [`Error::SessionEnded`] if the session is over: no number comes any more.
    pub async fn changed(&mut self) -> Result<Option<(u32, HoldMonitor)>> {
        self.held.changed().await.map_err(|_| Error::Closed)?;
        self.held.borrow_and_update().clone()
    }
}

impl Drop for KeptSlot {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Holds a number until the session is over.
async fn keep(mut slots: Slots, held: watch::Sender<Held>) {
    loop {
        match slots.claim().await {
            Ok(slot) => {
                _ = held.send_replace(Ok(Some((slot.number(), slot.monitor()))));
                tokio::select! {
                    _ = slot.ended() => slots = slots.with_preferred(slot.number()),
                    () = slot.revoke_requested() => {}
                }
                _ = held.send_replace(Ok(None));
                // Its work may go on until the release is sent, so its rest begins with the next claim.
                _ = slot.into_guard().release().await;
            }
            Err(error) if is_over(&error) => {
                _ = held.send_replace(Err(error));
                return;
            }
            Err(error) => {
                _ = held.send_replace(Err(error));
                sleep(PAUSE).await;
            }
        }
    }
}
