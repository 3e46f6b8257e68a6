//! A record of holders for tests that need no more than `enter` and `leave`. A [`History`] judges it.

use std::sync::Arc;

use crate::history::{Acquire, Held, History, Model, Step};

/// Records the holders of a lock. A clone writes to the same record.
#[derive(Clone, Debug)]
pub struct Ledger {
    history: History,
    model: Model,
}

/// One grant.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The name of the holder.
    pub who: Arc<str>,
    /// Its fencing token.
    pub token: i64,
}

/// Represents a holder that is inside; dropping it leaves.
#[derive(Debug)]
#[must_use = "dropping an entry leaves"]
pub struct Entry(Option<Held>);

impl Ledger {
    /// Makes a record that allows one holder at a time, each with a token above all earlier tokens.
    #[allow(clippy::new_without_default, reason = "the constructor names what the ledger allows")]
    pub fn new() -> Self {
        Self { history: History::new(), model: Model::FencedMutex }
    }

    /// Makes a record that allows up to `limit` holders at a time, with tokens in any order.
    pub fn with_capacity_limit(limit: u32) -> Self {
        Self { history: History::new(), model: Model::Permits(limit) }
    }

    /// Records that `who` entered with `token`. Never panics.
    pub fn enter(&self, who: impl Into<Arc<str>>, token: i64) -> Entry {
        let acquire = match self.model {
            Model::Permits(_) => Acquire::permits("the lock", 1),
            _ => Acquire::exclusive("the lock"),
        };
        Entry(Some(self.history.process(who).acquire(acquire).ok(token)))
    }

    /// All grants in the order in which their holders entered.
    pub fn grants(&self) -> Vec<Grant> {
        let granted = |event: crate::history::Event| match event.step {
            Step::Acquired { token } => Some(Grant { who: event.process, token }),
            _ => None,
        };
        self.history.events().into_iter().filter_map(granted).collect()
    }

    /// Asserts that there was no breach.
    ///
    /// # Panics
    ///
    /// If there was a breach; the message lists all of them.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.history.judge(self.model).assert_clean();
    }
}

impl Entry {
    /// Records that the holder left.
    pub fn leave(self) {}
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            held.release().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_lasts_until_it_is_dropped() {
        let ledger = Ledger::new();
        ledger.enter("a", 1).leave();
        drop(ledger.clone().enter("b", 2));
        ledger.assert_clean();
        let names: Vec<_> = ledger.grants().into_iter().map(|grant| grant.who).collect();
        assert_eq!(names, ["a".into(), "b".into()]);
        let permits = Ledger::with_capacity_limit(2);
        let inside = [permits.enter("a", 9), permits.enter("b", 1)];
        permits.assert_clean();
        drop(inside);
    }

    #[test]
    #[should_panic(expected = "was granted while inside")]
    fn two_at_once_are_a_breach() {
        let ledger = Ledger::new();
        let inside = [ledger.enter("a", 1), ledger.enter("b", 2)];
        ledger.assert_clean();
        drop(inside);
    }
}
