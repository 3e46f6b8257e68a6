//! A record of what clients did to locks, and when.

mod event;
mod recorder;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use event::{Acquire, Event, Mode, Step, now};
pub use recorder::{Acquiring, Held, Process, Releasing};

/// A record of what clients did to locks. A clone writes to the same record.
#[derive(Clone, Debug, Default)]
pub struct History {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    events: Vec<Event>,
    next_attempt: u64,
}

impl History {
    /// Makes an empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a record of what others wrote down, in any order but that the events of one attempt which have the same
    /// time stand as they happened.
    pub fn from_events(events: Vec<Event>) -> Self {
        let next_attempt = events.iter().map(|event| event.attempt.saturating_add(1)).max().unwrap_or_default();
        Self { book: Arc::new(Mutex::new(Book { events, next_attempt })) }
    }

    /// Writes down what a process of this name does.
    ///
    /// Names of processes whose histories will be merged have to differ.
    pub fn process(&self, name: impl Into<Arc<str>>) -> Process {
        Process::new(self.clone(), name.into())
    }

    /// All events in the order of their time.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.lock().events.clone();
        // The sort is stable: what one client did within a tick of the clock stays as it happened.
        events.sort_by_key(|event| event.at);
        events
    }

    fn append(&self, event: Event) {
        self.lock().events.push(event);
    }

    fn next_attempt(&self) -> u64 {
        let mut book = self.lock();
        let next = book.next_attempt.wrapping_add(1);
        mem::replace(&mut book.next_attempt, next)
    }

    /// A client that panics must not hide what the others wrote down.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
