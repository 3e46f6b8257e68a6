//! What happened in a world, in its order.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use machine::{Action, Event};
use simulation::Request;

use crate::compare;

thread_local! {
    static WORLD: RefCell<Record> = RefCell::default();
}

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A machine was given an event.
    Given(usize, Event),
    /// A machine asked for something.
    Asked(usize, Action),
    /// The driver has broken a rule.
    Wrong(String),
    /// A connection belongs to a session.
    Connected { connection: usize, session: u64 },
    /// The client has sent a request.
    Sent { connection: usize, xid: i32, request: Arc<Request> },
    /// The client has read an answer. `errors`: of the parts of a transaction that was refused.
    Answered { connection: usize, xid: i32, err: i32, errors: Vec<i32> },
    /// The client has read the event of a watch.
    Fired { connection: usize, event: i32, path: String },
}

/// The record of the world of a thread. Its clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    machines: usize,
    connections: usize,
    entries: Vec<(Instant, Entry)>,
}

impl Record {
    pub(crate) fn of_world() -> Self {
        WORLD.with_borrow(Self::clone)
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, entry: Entry) {
        self.lock().entries.push((Instant::now(), entry));
    }

    pub(crate) fn next_machine(&self) -> usize {
        let mut recorded = self.lock();
        recorded.machines += 1;
        recorded.machines
    }

    pub(crate) fn next_connection(&self) -> usize {
        let mut recorded = self.lock();
        recorded.connections += 1;
        recorded.connections
    }
}

/// Ends the record of this thread's world. Returns each difference between what the machines asked for, or were given, and
/// what crossed the network, and how many requests were compared.
pub fn differences() -> (Vec<String>, usize) {
    let record = WORLD.take();
    let entries = std::mem::take(&mut record.lock().entries);
    compare::compare(&entries)
}
