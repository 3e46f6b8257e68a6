//! A record of holders for tests that need no more than `enter` and `leave`. A [`History`] judges it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::history::{Event, History, Mode, Model, Step};

/// Records the holders of a lock. A clone writes to the same record.
///
/// The order is that of the calls, and not that of a clock, which may stand still.
#[derive(Clone, Debug)]
pub struct Ledger {
    book: Arc<Mutex<Vec<Event>>>,
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
pub struct Entry {
    ledger: Ledger,
    who: Arc<str>,
    attempt: u64,
}

impl Ledger {
    /// Makes a record that allows one holder at a time, each with a token above all earlier tokens.
    #[allow(clippy::new_without_default, reason = "the constructor names what the ledger allows")]
    pub fn new() -> Self {
        Self { book: Arc::default(), model: Model::FencedMutex }
    }

    /// Makes a record that allows up to `limit` holders at a time, with tokens in any order.
    pub fn with_capacity_limit(limit: u32) -> Self {
        Self { book: Arc::default(), model: Model::Permits(limit) }
    }

    /// Records that `who` entered with `token`. Never panics.
    pub fn enter(&self, who: impl Into<Arc<str>>, token: i64) -> Entry {
        let who = who.into();
        let mode = if matches!(self.model, Model::Permits(_)) { Mode::Permits(1) } else { Mode::Exclusive };
        let mut book = self.lock();
        let attempt = book.len() as u64;
        append(&mut book, &who, attempt, Step::Acquire { mode, owner: None });
        append(&mut book, &who, attempt, Step::Acquired { token });
        Entry { ledger: self.clone(), who, attempt }
    }

    /// All grants in the order in which their holders entered.
    pub fn grants(&self) -> Vec<Grant> {
        let granted = |event: &Event| match event.step {
            Step::Acquired { token } => Some(Grant { who: Arc::clone(&event.process), token }),
            _ => None,
        };
        self.lock().iter().filter_map(granted).collect()
    }

    /// Asserts that there was no breach.
    ///
    /// # Panics
    ///
    /// If there was a breach; the message lists all of them.
    #[track_caller]
    pub fn assert_clean(&self) {
        let events = self.lock().clone();
        History::from_events(events).judge(self.model).assert_clean();
    }

    /// A holder that panics must not hide what the others recorded.
    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn append(book: &mut Vec<Event>, who: &Arc<str>, attempt: u64, step: Step) {
    book.push(Event::new(book.len() as u64, Arc::clone(who), "the lock", attempt, step));
}

impl Entry {
    /// Records that the holder left.
    pub fn leave(self) {}
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut book = self.ledger.lock();
        for step in [Step::Release, Step::Released] {
            append(&mut book, &self.who, self.attempt, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_clean(ledger: &Ledger) -> bool {
        std::panic::catch_unwind(|| ledger.assert_clean()).is_ok()
    }

    #[test]
    fn entry_lasts_until_it_is_dropped() {
        let ledger = Ledger::new();
        ledger.enter("a", 1).leave();
        drop(ledger.clone().enter("b", 2));
        assert!(is_clean(&ledger));
        let names: Vec<_> = ledger.grants().into_iter().map(|grant| grant.who).collect();
        assert_eq!(names, ["a".into(), "b".into()]);
        let dies = ledger.clone();
        let holder = std::thread::spawn(move || {
            let _entry = dies.enter("c", 3);
            panic!("the holder dies");
        });
        assert!(holder.join().is_err());
        ledger.enter("d", 4).leave();
        assert!(is_clean(&ledger));
    }

    #[test]
    fn breaches_are_found() {
        let both = Ledger::new();
        drop([both.enter("a", 1), both.enter("b", 2)]);
        assert!(!is_clean(&both));
        for tokens in [[5, 5], [5, 3]] {
            let falls = Ledger::new();
            tokens.into_iter().for_each(|token| falls.enter("a", token).leave());
            assert!(!is_clean(&falls));
        }
        let permits = Ledger::with_capacity_limit(2);
        let inside = [permits.enter("a", 9), permits.enter("b", 1)];
        assert!(is_clean(&permits));
        permits.enter("c", 2).leave();
        assert!(!is_clean(&permits));
        drop(inside);
    }
}
