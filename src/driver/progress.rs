//! Owns [`Progress`]: how many contenders are ahead of a waiter, for those that want to know.

use tokio::sync::watch;

/// The number of predecessors at the last look; `None` before the first.
#[derive(Debug, Default)]
pub(crate) struct Progress(watch::Sender<Option<usize>>);

impl Progress {
    /// Notes how many are ahead.
    pub(crate) fn ahead(&self, count: usize) {
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
