//! A history of operations on locks, and judges that decide whether a correct lock can have produced it.
//!
//! A client records when it invoked an operation and how the operation ended. The operation took effect at some instant
//! in between. A judge accepts a history if some choice of these instants satisfies its [`Model`]. So it refuses only
//! histories that no correct lock can produce:
//!
//! * A hold began between the invocation and the success of its acquire. It lasted at least to the invocation of a
//!   successful release, to the instant since which it may have been lost, or to the last check that found it held.
//!   Without any of these it lasted to the end.
//! * After a release that found it lost, or with an unknown outcome, it may have ended at any time since it began.
//! * An acquire that failed, has an unknown outcome or was cut off excludes no other hold.
//! * Events of the same instant may have happened in any order.
//!
//! Under these rules the judges are exact: on small histories they agree with a search through all orders. They process
//! events in sorted order, so a million events take a few seconds in a release build. Histories of several processes of
//! one machine can be merged, because they share its clock.
//!
//! A client must follow three rules. It records every loss as soon as it learns of it, because a hold without a recorded
//! loss is assumed to last; if it may be late, it records since when the lock may have been lost ([`Held::lost_since`]).
//! It confirms its hold from time to time ([`Held::confirm`]), because nothing else is known of a hold whose release
//! fails. And it records each release before it begins, even if a guard is only dropped.
//!
//! # Examples
//!
//! ```
//! use testbed::history::{Acquire, History, Model};
//!
//! let history = History::new();
//! let client = history.process("session-3");
//! let acquire = client.acquire(Acquire::exclusive("/locks/a"));
//! // Call the lock here; 42 is its token.
//! let held = acquire.ok(42);
//! assert!(held.confirm(|| true));
//! let release = held.release();
//! // Release the lock here.
//! release.ok();
//! history.judge(Model::FencedMutex).assert_clean();
//! println!("{}", history.summary());
//! ```

mod attempt;
mod case;
mod event;
mod exclusion;
mod hold;
mod journal;
mod judge;
mod loads;
mod order;
mod recorder;
mod report;
mod summary;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use event::{Acquire, Event, Mode, Step, now};
pub use journal::{Journal, read_journal};
pub use judge::Model;
pub use recorder::{Acquiring, Held, Process, Releasing};
pub use report::Report;
pub use summary::{Gap, Summary, Wait};

/// A history of operations on locks. A clone writes to the same history.
#[derive(Clone, Debug, Default)]
pub struct History {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    events: Vec<Event>,
    /// If set, events go there instead.
    journal: Option<Journal>,
    next_attempt: u64,
}

impl History {
    /// Makes an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a history of recorded events, in any order. Only events of the same attempt and time must be in the
    /// order in which they happened.
    pub fn from_events(events: Vec<Event>) -> Self {
        let next_attempt = events.iter().map(|event| event.attempt.saturating_add(1)).max().unwrap_or_default();
        Self { book: Arc::new(Mutex::new(Book { events, next_attempt, ..Book::default() })) }
    }

    /// Makes a history that is kept only in a journal, to be read when its process is gone.
    ///
    /// Recording panics if the journal cannot be written: a history with gaps would show false violations.
    pub fn to_journal(journal: Journal) -> Self {
        Self { book: Arc::new(Mutex::new(Book { journal: Some(journal), ..Book::default() })) }
    }

    /// Returns a recorder for the process of this name.
    ///
    /// Processes whose histories will be merged must have different names.
    pub fn process(&self, name: impl Into<Arc<str>>) -> Process {
        Process::new(self.clone(), name.into())
    }

    /// Records that a process was killed, or stopped for good: it lost its holds, and cannot record the losses itself.
    ///
    /// Call it after all events of the process were recorded, with an instant of [`now`] from before it was killed.
    pub fn killed(&self, process: &str, at: u64) {
        let mut book = self.lock();
        let losses = attempt::losses_of_killed(&book.events, process, at);
        book.events.extend(losses);
    }

    /// All events, ordered by time.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.lock().events.clone();
        // The sort is stable: events of one client within a tick of the clock keep their order.
        events.sort_by_key(|event| event.at);
        events
    }

    /// Reports the violations of a model. Each object is judged separately.
    pub fn judge(&self, model: Model) -> Report {
        judge::judge(&self.events(), model)
    }

    /// Counts operations and finds the longest waits.
    pub fn summary(&self) -> Summary {
        summary::summarize(&self.events())
    }

    fn append(&self, event: Event) {
        let mut book = self.lock();
        match &book.journal {
            Some(journal) => journal.write(&event).expect("the journal can be written"),
            None => book.events.push(event),
        }
    }

    fn next_attempt(&self) -> u64 {
        let mut book = self.lock();
        let next = book.next_attempt.wrapping_add(1);
        mem::replace(&mut book.next_attempt, next)
    }

    /// A client that panics must not hide the events of the others.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
