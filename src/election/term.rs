//! Owns [`Term`]: a leadership as [`Election::lead`](crate::Election::lead) hands it out, which holds nothing.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::error::Result;
use crate::hold::HoldMonitor;

/// One term of a leader: a [monitor](HoldMonitor) of the leadership that [`Election::lead`](crate::Election::lead) keeps.
///
/// It holds nothing, so ignoring or keeping it is harmless.
#[derive(Clone, Debug)]
pub struct Term {
    monitor: HoldMonitor,
    resign: Arc<Notify>,
}

impl Term {
    pub(super) fn new(monitor: HoldMonitor) -> Self {
        Self { monitor, resign: Arc::default() }
    }

    pub(super) fn resign_wanted(&self) -> Arc<Notify> {
        self.resign.clone()
    }

    /// Ends the term: its future is dropped at its next `await`, the leadership is resigned, and `lead` campaigns again.
    ///
    /// After the end of the term it does nothing.
    pub fn resign(&self) {
        self.resign.notify_one();
    }

    /// Shows observers something else in place of the identifier. See
    /// [`Leadership::proclaim`](crate::Leadership::proclaim).
    ///
    /// # Cancel safety
    ///
    /// After dropping the future it may have been written or not.
    ///
    /// # Errors
    ///
    /// As [`Leadership::proclaim`](crate::Leadership::proclaim).
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        self.monitor.proclaim(data.into()).await
    }
}

impl Deref for Term {
    type Target = HoldMonitor;

    fn deref(&self) -> &HoldMonitor {
        &self.monitor
    }
}
