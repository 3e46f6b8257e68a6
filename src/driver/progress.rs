//! Owns [`Progress`], which publishes how many contenders are ahead of a waiter.

use tokio::sync::watch;

/// The last known number of contenders ahead of a waiter; `None` until it is known.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    ahead: watch::Sender<Option<usize>>,
}

impl Progress {
    /// Forgets the number of an earlier acquisition.
    pub(crate) fn begins(&self) {
        self.ahead.send_replace(None);
    }

    /// Publishes how many contenders are ahead.
    pub(crate) fn ahead(&self, count: usize) {
        self.ahead.send_replace(Some(count));
    }

    /// Whether the waiter has had contenders ahead.
    pub(crate) fn has_waited(&self) -> bool {
        self.last().is_some()
    }

    /// Waits until the waiter has contenders ahead.
    pub(crate) async fn waits(&self) {
        self.left(None).await;
    }

    /// Returns the last known number of contenders ahead.
    pub(crate) fn last(&self) -> Option<usize> {
        *self.ahead.borrow()
    }

    /// Waits until the number differs from `last`.
    pub(crate) async fn left(&self, last: Option<usize>) {
        // This does not fail, because the sender lives in `self`.
        let _ = self.ahead.subscribe().wait_for(|ahead| *ahead != last).await;
    }
}
