//! Owns the [`Register`] of all nodes that a session has or may have.
//!
//! 1. A node is registered before its create is sent, until it is deleted or a search has found none. The register bounds the
//!    nodes of a session, and lets its end find those that their owners do not give up.
//! 2. Listings of the session leave its abandoned nodes out, and delete them.
//! 3. Waiters find their predecessors here, and wait for them in memory: see [`neighbours`].

mod neighbours;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::error::Result;
use crate::path::LockPath;
use crate::session::budget::{Budget, Reserved};
use crate::session::operations::Created;
use crate::telemetry::InCleanup;

use self::neighbours::Front;

pub(crate) use self::neighbours::Following;

pub(super) use self::neighbours::OwnWatch;
pub(crate) use self::neighbours::Watched;

/// How many nodes that are gone are remembered: a listing that is under way may still show one, and a server may apply a
/// lost create late.
const MAX_GONE: usize = 8192;

/// All nodes that a session has or may have, by the guids in their names.
#[derive(Debug)]
pub(super) struct Register {
    budget: Budget,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_guid: HashMap<Uuid, Entry>,
    /// Those that are gone, oldest first.
    gone: VecDeque<Uuid>,
}

#[derive(Debug)]
struct Entry {
    parent: LockPath,
    state: State,
    /// The node, once it is known to be there.
    created: Option<Created>,
    /// The names with this guid that are being deleted for want of an owner.
    deleting: Vec<String>,
    /// The watch on the node, if a waiter behind it, or it itself, has needed one.
    watch: Option<OwnWatch>,
    /// Whether it was granted, or once followed another node.
    is_placed: bool,
    /// The node that this one follows.
    follows: Option<Uuid>,
    /// The nodes that follow this one.
    followers: Vec<Uuid>,
    /// Where this node is, for those that follow it; made for the first of them.
    front: Option<watch::Sender<Front>>,
}

#[derive(Debug)]
enum State {
    /// Somebody holds it, or waits with it.
    Owned(Reserved),
    /// Nobody wants it any more, and it may be there.
    Abandoned(Reserved, InCleanup),
    /// It may not be deleted, and stays to the end of the session.
    Undeletable,
    Gone,
}

impl Entry {
    /// Whether it belongs to somebody, and has this name as far as is known. (After a create with an unknown outcome there may
    /// be a second node.)
    fn is_owned_as(&self, name: &str) -> bool {
        matches!(self.state, State::Owned(_)) && self.created.as_ref().is_none_or(|created| created.name() == name)
    }
}

impl Register {
    pub(super) fn new() -> Self {
        Self { budget: Budget::of_nodes(), entries: Mutex::default() }
    }

    pub(super) fn enter(&self, parent: &LockPath, guid: Uuid, bytes: usize) -> Result<()> {
        let entry = Entry {
            parent: parent.clone(),
            state: State::Owned(self.budget.reserve(bytes)?),
            created: None,
            deleting: Vec::new(),
            watch: None,
            is_placed: false,
            follows: None,
            followers: Vec::new(),
            front: None,
        };
        self.lock().by_guid.insert(guid, entry);
        Ok(())
    }

    /// Notes that nobody wants a node any more, which may be there. The caller deletes the one with this name, so nobody else
    /// is to: a second delete would find it gone. Returns the watch on it, which the event of its deletion uses up.
    pub(super) fn abandon(&self, guid: Uuid, name: Option<&str>) -> Option<OwnWatch> {
        let mut entries = self.lock();
        let entry = entries.by_guid.get_mut(&guid)?;
        entry.deleting.extend(name.map(str::to_owned));
        entry.state = match std::mem::replace(&mut entry.state, State::Gone) {
            State::Owned(reserved) => State::Abandoned(reserved, InCleanup::begin()),
            state => state,
        };
        entry.watch.take()
    }

    /// Notes that a node is known to be there.
    pub(super) fn created(&self, guid: Uuid, created: &Created) {
        if let Some(entry) = self.lock().by_guid.get_mut(&guid) {
            entry.created = Some(created.clone());
        }
    }

    /// Notes that a node is granted, or that its owner waits in another queue first.
    pub(super) fn placed(&self, guid: Uuid) {
        let mut entries = self.lock();
        if let Some(entry) = entries.by_guid.get_mut(&guid) {
            entry.is_placed = true;
        }
        entries.comes_to_front(guid);
    }

    /// Removes a node that is certainly not there.
    pub(super) fn remove(&self, guid: Uuid) {
        let mut entries = self.lock();
        entries.leave(guid, false);
        entries.by_guid.remove(&guid);
    }

    /// Makes those that followed a node look again; or hands the lock over to them, when the request that deletes the node was
    /// sent.
    pub(super) fn leave(&self, guid: Uuid, hands_over: bool) {
        self.lock().leave(guid, hands_over);
    }

    /// Notes that a node is gone, or that no more is to be done about it.
    pub(super) fn gone(&self, guid: Uuid) {
        let mut entries = self.lock();
        let Some(entry) = entries.by_guid.get_mut(&guid) else {
            return;
        };
        if matches!(entry.state, State::Owned(_) | State::Abandoned(..)) {
            entry.state = State::Gone;
            // One that turns up after this is deleted again.
            entry.deleting.clear();
            entries.gone.push_back(guid);
        }
        if entries.gone.len() > MAX_GONE
            && let Some(oldest) = entries.gone.pop_front()
        {
            entries.by_guid.remove(&oldest);
        }
    }

    /// Notes that a node may not be deleted: it takes its room to the end of the session.
    pub(super) fn stays(&self, guid: Uuid) {
        if let Some(entry) = self.lock().by_guid.get_mut(&guid) {
            entry.state = match std::mem::replace(&mut entry.state, State::Gone) {
                State::Owned(reserved) | State::Abandoned(reserved, _) => {
                    reserved.keep();
                    State::Undeletable
                }
                state => state,
            };
            // It may be allowed one day.
            entry.deleting.clear();
        }
    }

    /// The paths of at most `count` nodes that are known to have been created, and are not `gone`.
    pub(super) fn created_except(&self, gone: &HashSet<String>, count: usize) -> Vec<String> {
        let entries = self.lock();
        let created = |entry: &Entry| match entry.state {
            State::Owned(_) => entry.created.as_ref().map(|created| created.path.clone()),
            State::Abandoned(..) | State::Undeletable | State::Gone => None,
        };
        entries.by_guid.values().filter_map(created).filter(|path| !gone.contains(path)).take(count).collect()
    }

    /// Waits until no node is left that can be deleted.
    pub(super) async fn emptied(&self) {
        self.budget.emptied().await;
    }

    /// The nodes that may be there and can be deleted.
    pub(super) fn left(&self) -> Vec<(LockPath, Uuid)> {
        let entries = self.lock();
        let left = entries
            .by_guid
            .iter()
            .filter(|(_, entry)| matches!(entry.state, State::Owned(_) | State::Abandoned(..)));
        left.map(|(guid, entry)| (entry.parent.clone(), *guid)).collect()
    }

    /// Splits names into those of nodes that were abandoned and all others.
    pub(super) fn split_abandoned(&self, names: Vec<String>) -> (Vec<String>, Vec<String>) {
        let entries = self.lock();
        let is_abandoned = |name: &String| {
            let entry = guid_of(name).and_then(|guid| entries.by_guid.get(&guid));
            entry.is_some_and(|entry| !matches!(entry.state, State::Owned(_)))
        };
        // Mostly there are none, and a listing is long.
        if names.iter().any(is_abandoned) {
            names.into_iter().partition(is_abandoned)
        } else {
            (Vec::new(), names)
        }
    }

    /// Whether nobody is deleting the node `name` with this guid; then the caller is, until
    /// [`end_deletion`](Self::end_deletion).
    pub(super) fn begin_deletion(&self, guid: Uuid, name: &str) -> bool {
        match self.lock().by_guid.get_mut(&guid) {
            Some(entry) if !entry.deleting.iter().any(|deleting| deleting == name) => {
                entry.deleting.push(name.to_owned());
                true
            }
            _ => false,
        }
    }

    pub(super) fn end_deletion(&self, guid: Uuid, name: &str) {
        if let Some(entry) = self.lock().by_guid.get_mut(&guid) {
            entry.deleting.retain(|deleting| deleting != name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The guid in a name that is one of Curator's or ours.
pub(super) fn guid_of(name: &str) -> Option<Uuid> {
    let guid = name.strip_prefix("_c_")?.get(..36)?;
    Uuid::try_parse(guid).ok()
}

/// Whether a name carries `guid`, and a number: all others are none of ours.
pub(super) fn carries(name: &str, guid: Uuid) -> bool {
    let digits = name.bytes().rev().take(9);
    guid_of(name) == Some(guid) && digits.len() == 9 && digits.clone().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: &str = "6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e";

    #[test]
    fn node_is_not_deleted_by_others_while_its_owner_releases_it() {
        let (register, guid) = (Register::new(), Uuid::new_v4());
        let [released, double] = [7, 8].map(|number| format!("_c_{guid}-lock-{number:010}"));
        register.enter(&LockPath::new("/lock").expect("a path"), guid, 100).expect("room");
        register.abandon(guid, Some(&released));
        assert_eq!(register.split_abandoned(vec![released.clone()]), (vec![released.clone()], Vec::new()));
        assert!(!register.begin_deletion(guid, &released), "its owner would find it deleted");
        assert!(register.begin_deletion(guid, &double), "of this one nobody knows");
        register.gone(guid);
        assert!(register.begin_deletion(guid, &released), "it has turned up again");
    }

    #[test]
    fn guid_is_that_of_a_curator_name() {
        let guid = guid_of(&format!("_c_{GUID}-lock-0000000017"));
        assert_eq!(guid.map(|guid| guid.to_string()).as_deref(), Some(GUID));
        assert_eq!(guid_of("_c_üüüüüüüüüüüüüüüüüüüüüüüü-lock-0000000017"), None);
    }
}
