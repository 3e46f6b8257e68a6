//! Owns [`Progress`], which publishes how many contenders are ahead of a waiter.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// The last known number of contenders ahead of a waiter; `None` until it is known.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    ahead: watch::Sender<Option<usize>>,
    /// The waiter keeps its place, and does not take a grant yet.
    only_queues: AtomicBool,
}

impl Progress {
    /// Creates the progress of a waiter that takes no grant until [`takes`](Self::takes) is called.
    pub(crate) fn that_only_queues() -> Self {
        Self { only_queues: AtomicBool::new(true), ..Self::default() }
    }

    /// Lets the waiter take its grant, from its next poll on.
    pub(crate) fn takes(&self) {
        self.only_queues.store(false, Ordering::Relaxed);
    }

    pub(crate) fn only_queues(&self) -> bool {
        self.only_queues.load(Ordering::Relaxed)
    }

    /// Publishes how many contenders are ahead.
    pub(crate) fn ahead(&self, count: usize) {
        self.ahead.send_replace(Some(count));
    }

    /// Whether the waiter has had contenders ahead. For one that only queues: whether its position is known.
    pub(crate) fn has_waited(&self) -> bool {
        self.last().is_some()
    }

    /// Waits until the waiter has contenders ahead. For one that only queues: until its position is known.
    pub(crate) async fn waits(&self) {
        self.left(None).await;
    }

    /// Returns the last known number of contenders ahead.
    pub(crate) fn last(&self) -> Option<usize> {
        *self.ahead.borrow()
    }

    /// Waits until the number differs from `last`.
    pub(crate) async fn left(&self, last: Option<usize>) {
        // The sender lives in `self`.
        let _ = self.ahead.subscribe().wait_for(|ahead| *ahead != last).await;
    }
}
