//! A record of what clients did to locks, and judges that say whether a correct lock can have done that.
//!
//! A client writes down when it called and what came of it; the lock did what it did at some instant in between. A
//! judge asks whether there are instants that make the history one of its [`Model`], so it refuses only what no
//! correct lock can produce:
//!
//! * A hold began between the invocation of its acquire and its success. It lasted at least to the invocation of a
//!   release that succeeded, to the instant from which on it may have been lost, or to the last look that found it
//!   held, and to the end if there was none of these.
//! * After a release that found it lost, or with an unknown outcome, it may have ended at any time since it began.
//! * An acquire that failed, has an unknown outcome or was cut off forbids nobody anything.
//! * Events of the same instant may have happened in any order.
//!
//! Within these terms the judges are exact: on small histories they say what a search through all orders says. They
//! sort and sweep, so that a million events take them a few seconds in a release build. Histories of several processes
//! of one machine can be merged, for they share its clock.
//!
//! A client has to keep to three things. It writes down every loss as soon as it is told, for who was told nothing is
//! taken to hold on; where it may be late it says since when ([`Held::lost_since`]). It looks now and then
//! ([`Held::confirm`]), for that is all that is known of a hold whose release ends badly. And it writes down that it
//! releases before it does, which is also true of guards that are dropped.
//!
//! # Examples
//!
//! ```
//! use testbed::history::{Acquire, History, Model};
//!
//! let history = History::new();
//! let client = history.process("session-3");
//! let acquire = client.acquire(Acquire::exclusive("/locks/a"));
//! // Here goes the call of the lock; 42 is its token.
//! let held = acquire.ok(42);
//! assert!(held.confirm(|| true));
//! let release = held.release();
//! // Here goes the call of its release.
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

/// A record of what clients did to locks. A clone writes to the same record.
#[derive(Clone, Debug, Default)]
pub struct History {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    events: Vec<Event>,
    /// Where events go instead.
    journal: Option<Journal>,
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
        Self { book: Arc::new(Mutex::new(Book { events, next_attempt, ..Book::default() })) }
    }

    /// Makes a record that is kept in a journal alone, to be read when its process is gone.
    ///
    /// Writing down panics if the journal cannot be written: a history with gaps would accuse the innocent.
    pub fn to_journal(journal: Journal) -> Self {
        Self { book: Arc::new(Mutex::new(Book { journal: Some(journal), ..Book::default() })) }
    }

    /// Writes down what a process of this name does.
    ///
    /// Names of processes whose histories will be merged have to differ.
    pub fn process(&self, name: impl Into<Arc<str>>) -> Process {
        Process::new(self.clone(), name.into())
    }

    /// Adds that a process was killed, or stopped for good: it lost what it held, and nobody could tell it.
    ///
    /// Call it when all events of the process are there, with an instant of [`now`] from before it was killed.
    pub fn killed(&self, process: &str, at: u64) {
        let mut book = self.lock();
        let losses = attempt::losses_of_killed(&book.events, process, at);
        book.events.extend(losses);
    }

    /// All events in the order of their time.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.lock().events.clone();
        // The sort is stable: what one client did within a tick of the clock stays as it happened.
        events.sort_by_key(|event| event.at);
        events
    }

    /// Says how far the history can not be explained by a model; each object is judged by itself.
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

    /// A client that panics must not hide what the others wrote down.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
