//! Owns [`KeptSlot`]: a number that is held over losses and sessions.

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use zookeeper_recipes::{Error, HoldMonitor, Result};

use crate::kept_node::PAUSE;
use crate::request::is_over;
use crate::slots::Slots;

type Held = Result<Option<(u32, HoldMonitor)>>;

/// A number that a task holds, from [`Slots::keep`]. Dropping it releases the number in the background.
///
/// After a loss, or in a new session, another number may be held: follow it with [`changed`](Self::changed), and do the work with a number in
/// [`HoldMonitor::run_until_lost`](zookeeper_recipes::HoldMonitor::run_until_lost). A number that an operator asks back, or that a drain of the
/// session asks back, is released at once, without waiting for that work: hold a [`Slot`](crate::slots::Slot) yourself to finish it first.
///
/// # Examples
///
/// ```no_run
/// # async fn example(slots: zookeeper_groups::Slots) -> Result<(), zookeeper_recipes::Error> {
/// let mut kept = slots.keep();
/// loop {
///     match kept.changed().await? {
///         Some((number, monitor)) => println!("worker {number}, token {}", monitor.fencing_token()),
///         None => println!("no number; pause the work"),
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

    /// Returns the number that is held right now. It compares clocks, so it is right directly after a pause of the process.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let held = self.held.borrow().clone();
        held.ok()?.filter(|(_, monitor)| !monitor.state().has_ended()).map(|(number, _)| number)
    }

    /// Waits for the next change, and returns the number that is held then, with its hold: `None` after a loss.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// What the servers refuse, such as [`Error::NoAuth`]: it is tried again every second. [`Error::Closed`] and [`Error::SessionEnded`] if
    /// the session is over.
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
