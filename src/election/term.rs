//! Owns [`CurrentTerm`], the latest leadership of an election's handle.

use std::sync::{Arc, Mutex};

use crate::hold::HoldMonitor;
use crate::locked::locked;

/// The latest leadership that a handle of the election or one of its clones has won. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct CurrentTerm(Arc<Mutex<Option<HoldMonitor>>>);

impl CurrentTerm {
    pub(crate) fn begin(&self, term: HoldMonitor) {
        let before = locked(&self.0).replace(term);
        // Dropping the old term may end its span, which runs the user's code. So the mutex is unlocked before.
        drop(before);
    }

    /// Returns a monitor of the leadership, unless it has ended.
    pub(crate) fn monitor(&self) -> Option<HoldMonitor> {
        let term = locked(&self.0).clone();
        term.filter(|term| !term.state().has_ended())
    }
}
