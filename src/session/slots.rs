//! Owns the slots of local queues: how many waiters of a session have nodes in a queue, where their options bound that.
//!
//! 1. The others wait in memory, in the order in which they came. Of several paths a waiter takes the slots at once, or none:
//!    its turn has come when it is the first at each of them and each has a free slot. So two waiters never hold what the
//!    other one needs.
//! 2. A slot is taken from before the node is created until the place is granted or given up.
//! 3. A reader that waits for other queues, too, takes none here. It may have its share long before it is granted the rest,
//!    and keeps no reader out meanwhile: neither by a slot, nor by a place before the others in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::path::LockPath;
use crate::session::server_session::ServerSession;

/// The local queues of a session, by path.
#[derive(Debug, Default)]
pub(super) struct Slots(Mutex<HashMap<LockPath, Local>>);

#[derive(Debug, Default)]
struct Local {
    taken: usize,
    waiting: VecDeque<Arc<Ticket>>,
}

/// Whom a waiter excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// All but others with shared access.
    Shared,
    /// Everybody.
    Exclusive,
}

/// What a waiter has, or waits for.
#[derive(Debug)]
struct Ticket {
    paths: Vec<(LockPath, Access)>,
    /// How many slots its options allow.
    most: usize,
    has_slots: AtomicBool,
    admitted: Notify,
}

/// The slots of a waiter, or its place among those that wait for them. Dropping it gives them up.
#[derive(Debug)]
pub(crate) struct Slot {
    zk: Arc<ServerSession>,
    ticket: Arc<Ticket>,
}

impl ServerSession {
    /// Asks for a slot at each of the paths, of which there are `most`.
    pub(crate) fn slot(self: &Arc<Self>, paths: Vec<(LockPath, Access)>, most: usize) -> Slot {
        let ticket = Arc::new(Ticket { paths, most, has_slots: AtomicBool::new(false), admitted: Notify::new() });
        let mut locals = self.slots.lock();
        for (path, _) in &ticket.paths {
            locals.entry(path.clone()).or_default().waiting.push_back(ticket.clone());
        }
        admit(&mut locals, &ticket);
        drop(locals);
        Slot { zk: self.clone(), ticket }
    }

    /// How many waiters in memory, for a slot at this path, exclude one with this access.
    pub(crate) fn ahead_in_memory(&self, path: &LockPath, access: Access) -> usize {
        let excludes = |ticket: &&Arc<Ticket>| {
            let exclusive = Access::Exclusive;
            let here = ticket.paths.iter().find(|(other, _)| other == path);
            here.is_some_and(|(_, other)| access == exclusive || *other == exclusive)
        };
        self.slots.lock().get(path).map_or(0, |local| local.waiting.iter().filter(excludes).count())
    }
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, HashMap<LockPath, Local>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Whether it has its slots.
    pub(crate) fn is_taken(&self) -> bool {
        self.ticket.has_slots.load(Ordering::Acquire)
    }

    /// Waits for the slots.
    pub(crate) async fn taken(&self) {
        while !self.is_taken() {
            self.ticket.admitted.notified().await;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let ticket = &self.ticket;
        let mut locals = self.zk.slots.lock();
        for (path, _) in &ticket.paths {
            if let Some(local) = locals.get_mut(path) {
                if self.is_taken() {
                    local.taken -= 1;
                } else {
                    local.waiting.retain(|other| !Arc::ptr_eq(other, ticket));
                }
            }
        }
        admit(&mut locals, ticket);
    }
}

/// Gives their slots to those whose turn has come, now that one has come or gone at its paths.
fn admit(locals: &mut HashMap<LockPath, Local>, changed: &Arc<Ticket>) {
    let mut changed = vec![changed.clone()];
    while let Some(at) = changed.pop() {
        for (path, _) in &at.paths {
            while let Some(ticket) = next_at(locals, path) {
                for (path, _) in &ticket.paths {
                    if let Some(local) = locals.get_mut(path) {
                        local.waiting.pop_front();
                        local.taken += 1;
                    }
                }
                ticket.has_slots.store(true, Ordering::Release);
                ticket.admitted.notify_one();
                // It is not the first any more at its other paths, either.
                changed.push(ticket);
            }
            if locals.get(path).is_some_and(|local| local.taken == 0 && local.waiting.is_empty()) {
                locals.remove(path);
            }
        }
    }
}

/// The first that waits at this path, if its turn has come at all its paths.
fn next_at(locals: &HashMap<LockPath, Local>, path: &LockPath) -> Option<Arc<Ticket>> {
    let ticket = locals.get(path)?.waiting.front()?;
    let has_turn = ticket.paths.iter().all(|(path, _)| {
        locals.get(path).is_some_and(|local| {
            let is_first = local.waiting.front().is_some_and(|first| Arc::ptr_eq(first, ticket));
            is_first && local.taken < ticket.most
        })
    });
    has_turn.then(|| ticket.clone())
}
