//! Owns [`Progress`]: what a waiter tells of its way through the queue.

use tokio::sync::watch;

/// How many are ahead, as far as is known; told by whoever queues to whoever wants to know.
#[derive(Debug)]
pub(crate) struct Progress(watch::Sender<Option<usize>>);

impl Progress {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Tells that so many are ahead.
    pub(super) fn ahead(&self, count: usize) {
        self.0.send_replace(Some(count));
    }

    /// How many were ahead when it was last looked; `None` before anybody was seen.
    pub(crate) fn last(&self) -> Option<usize> {
        *self.0.borrow()
    }

    /// Waits until it is known how many are ahead.
    pub(crate) async fn known(&self) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }
}
