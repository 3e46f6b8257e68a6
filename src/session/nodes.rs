//! Owns the nodes of a session: [`OwnNodes`], created and deleted together, and the register of all of them.
//!
//! 1. A node is registered before its create is sent, until it is deleted or a search has found none. The register bounds the nodes of a
//!    session, and lets its end find those that their owners do not give up.
//! 2. Dropping [`OwnNodes`], at any moment, deletes what was created, or may have been. See `cleanup`.
//! 3. Listings of the session leave its abandoned nodes out, and delete them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::error::Result;
use crate::options::Options;
use crate::path::LockPath;
use crate::session::budget::{Budget, Reserved};
use crate::session::cleanup::{self, Deletion, LeftNode, Leftover};
use crate::session::operations::{Created, Creation, Draft, Refusal, leaves_doubt};
use crate::session::request::{Answer, Failure};
use crate::session::server_session::ServerSession;

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
    /// The names with this guid that are being deleted for want of an owner.
    deleting: Vec<String>,
}

#[derive(Debug)]
enum State {
    /// Somebody holds it, or waits with it.
    Owned(Reserved),
    /// Nobody wants it any more, and it may be there.
    Abandoned(Reserved),
    /// It may not be deleted, and stays to the end of the session.
    Undeletable,
    Gone,
}

impl Register {
    pub(super) fn new() -> Self {
        Self { budget: Budget::of_nodes(), entries: Mutex::default() }
    }

    fn enter(&self, parent: &LockPath, guid: Uuid, bytes: usize) -> Result<()> {
        let state = State::Owned(self.budget.reserve(bytes)?);
        self.lock().by_guid.insert(guid, Entry { parent: parent.clone(), state, deleting: Vec::new() });
        Ok(())
    }

    /// Notes that nobody wants a node any more, which may be there. The caller deletes the one with this name, so nobody else
    /// is to: a second delete would find it gone.
    fn abandon(&self, guid: Uuid, name: Option<&str>) {
        if let Some(entry) = self.lock().by_guid.get_mut(&guid) {
            entry.deleting.extend(name.map(str::to_owned));
            entry.state = match std::mem::replace(&mut entry.state, State::Gone) {
                State::Owned(reserved) => State::Abandoned(reserved),
                state => state,
            };
        }
    }

    /// Removes a node that never was there.
    fn remove(&self, guid: Uuid) {
        self.lock().by_guid.remove(&guid);
    }

    /// Notes that a node is gone, or that no more is to be done about it.
    pub(super) fn gone(&self, guid: Uuid) {
        let mut entries = self.lock();
        let Some(entry) = entries.by_guid.get_mut(&guid) else {
            return;
        };
        if matches!(entry.state, State::Owned(_) | State::Abandoned(_)) {
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
                State::Owned(reserved) | State::Abandoned(reserved) => {
                    reserved.keep();
                    State::Undeletable
                }
                state => state,
            };
            // It may be allowed one day.
            entry.deleting.clear();
        }
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
            .filter(|(_, entry)| matches!(entry.state, State::Owned(_) | State::Abandoned(_)));
        left.map(|(guid, entry)| (entry.parent.clone(), *guid)).collect()
    }

    /// Splits names into those of nodes that were abandoned and all others.
    pub(super) fn split_abandoned(&self, names: Vec<String>) -> (Vec<String>, Vec<String>) {
        let entries = self.lock();
        let is_abandoned = |name: &String| {
            let entry = guid_of(name).and_then(|guid| entries.by_guid.get(&guid));
            entry.is_some_and(|entry| !matches!(entry.state, State::Owned(_)))
        };
        names.into_iter().partition(is_abandoned)
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

/// One of our nodes: `_c_<guid><suffix><number>`.
#[derive(Debug)]
pub(crate) struct OwnNode {
    guid: Uuid,
    parent: LockPath,
    draft: Arc<Draft>,
    created: Option<Created>,
    /// What to delete together with the node, where that leaves it empty.
    removes: Arc<[LockPath]>,
}

impl OwnNode {
    /// What it is searched for by: its parent and its guid.
    pub(crate) fn wanted(&self) -> (LockPath, Uuid) {
        (self.parent.clone(), self.guid)
    }

    /// The node, once it is known to be there.
    pub(crate) fn created(&self) -> Option<&Created> {
        self.created.as_ref()
    }

    /// Whether another node with our guid has this name.
    pub(crate) fn is_doubled_by(&self, name: &str) -> bool {
        self.created().is_some_and(|created| created.name() != name) && carries(name, self.guid)
    }

    /// The full path, or what it would begin with.
    pub(crate) fn path(&self) -> &str {
        self.created().map_or(&self.draft.path, |created| &created.path)
    }
}

/// A node that is to be prepared.
pub(crate) struct NewNode<'a> {
    pub(crate) parent: &'a LockPath,
    pub(crate) suffix: &'a str,
    /// What to delete together with the node, if the options ask for it and nothing is in it.
    pub(crate) removes: &'a Arc<[LockPath]>,
}

/// One node or several of one session, created and deleted in one transaction. Dropping it, at any moment, deletes them.
pub(crate) struct OwnNodes {
    zk: Arc<ServerSession>,
    nodes: Vec<OwnNode>,
    creating: Option<Answer<Creation>>,
    /// Whether a create had an unknown outcome, so that second nodes of ours may turn up.
    uncertain: bool,
}

impl OwnNodes {
    /// Prepares sequential nodes. Nothing is sent.
    pub(crate) fn prepare<'a>(
        zk: &Arc<ServerSession>,
        options: &Options,
        new: impl Iterator<Item = NewNode<'a>>,
    ) -> Result<Self> {
        let mut nodes = Self { zk: zk.clone(), nodes: Vec::new(), creating: None, uncertain: false };
        for NewNode { parent, suffix, removes } in new {
            let removes = if options.path_removal() { removes.clone() } else { Arc::default() };
            nodes.add(parent.clone(), suffix, true, options.clone(), removes)?;
        }
        Ok(nodes)
    }

    /// Prepares the node that takes the place of the only one: with the same parent, and a suffix that has the number.
    pub(crate) fn successor(&self, suffix: &str) -> Result<Self> {
        let mut nodes = Self { zk: self.zk.clone(), nodes: Vec::new(), creating: None, uncertain: false };
        let OwnNode { parent, draft, removes, .. } = &self.nodes[0];
        nodes.add(parent.clone(), suffix, false, draft.options.clone(), removes.clone())?;
        Ok(nodes)
    }

    fn add(
        &mut self,
        parent: LockPath,
        suffix: &str,
        is_sequential: bool,
        options: Options,
        removes: Arc<[LockPath]>,
    ) -> Result<()> {
        let guid = Uuid::new_v4();
        let path = format!("{parent}/_c_{guid}{suffix}");
        let number = if is_sequential { "0123456789".len() } else { 0 };
        self.zk.nodes.enter(&parent, guid, self.zk.cost(path.len() + number))?;
        let draft = Arc::new(Draft { path, is_sequential, options });
        self.nodes.push(OwnNode { guid, parent, draft, created: None, removes });
        Ok(())
    }

    pub(crate) fn zk(&self) -> &Arc<ServerSession> {
        &self.zk
    }

    pub(crate) fn as_slice(&self) -> &[OwnNode] {
        &self.nodes
    }

    /// Whether second nodes of ours may turn up.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// The paths of the nodes, and the transactions that created them.
    pub(crate) fn paths(&self) -> Vec<(String, i64)> {
        self.nodes.iter().filter_map(|node| Some((node.path().to_owned(), node.created()?.czxid))).collect()
    }

    /// Takes over the nodes of another.
    pub(crate) fn append(&mut self, other: &mut Self) {
        debug_assert!(self.creating.is_none() && other.creating.is_none(), "both are created");
        self.nodes.append(&mut other.nodes);
        self.uncertain |= other.uncertain;
    }

    /// Sends the creates of all nodes, and of the containers before them, of which there are several guesses.
    pub(crate) fn create(&mut self, guesses: Vec<Vec<String>>) {
        let drafts = self.nodes.iter().map(|node| node.draft.clone()).collect();
        self.creating = Some(self.zk.create(guesses, drafts));
    }

    /// Sends the create of the only node, which deletes another, if that still has this version.
    pub(crate) fn create_instead_of(&mut self, old: &str, version: i32) {
        self.creating = Some(self.zk.replace(self.nodes[0].draft.clone(), old, version));
    }

    /// Waits for the answer to the creates; the inner error has the reason of each transaction that was refused.
    ///
    /// # Cancel safety
    ///
    /// The answer stays with the nodes until it has come.
    pub(crate) async fn created(&mut self) -> Result<Result<(), Vec<Refusal>>, Failure> {
        let Some(creating) = &mut self.creating else {
            return Ok(Ok(()));
        };
        let creation = creating.await;
        self.creating = None;
        self.uncertain |= leaves_doubt(&creation);
        match creation {
            Ok(Ok(created)) => {
                self.nodes.iter_mut().zip(created).for_each(|(node, created)| node.created = Some(created));
                Ok(Ok(()))
            }
            Ok(Err(refusals)) => Ok(Err(refusals)),
            Err(Failure::Refused(error)) => Ok(Err(vec![Refusal { index: 0, error }])),
            Err(failure) => Err(failure),
        }
    }

    /// Takes a node that was found for one of ours.
    pub(crate) fn adopt(&mut self, index: usize, found: Created) {
        self.nodes[index].created = Some(found);
    }

    /// Forgets a node that is certainly gone.
    pub(crate) fn forget(&mut self, index: usize) {
        self.nodes[index].created = None;
    }

    /// Deletes the nodes; the future returns how that ended for the worst of them. Dropping it stops nothing.
    pub(crate) fn release(mut self) -> impl Future<Output = Deletion> + Send + use<> {
        let left = self.take_leftover();
        cleanup::release(&self.zk, left)
    }

    /// Takes out what has to be cleaned up.
    fn take_leftover(&mut self) -> Leftover {
        let (creating, uncertain) = (self.creating.take(), std::mem::take(&mut self.uncertain));
        let (mut nodes, mut removes) = (Vec::new(), Vec::new());
        for node in self.nodes.drain(..) {
            let name = node.created().map(Created::name);
            if name.is_some() || creating.is_some() || uncertain {
                self.zk.nodes.abandon(node.guid, name);
                let path = node.created.map(|created| created.path);
                removes.extend(node.removes.iter().cloned());
                nodes.push(LeftNode { parent: node.parent, guid: node.guid, path });
            } else {
                self.zk.nodes.remove(node.guid);
            }
        }
        removes.dedup();
        Leftover { nodes, removes, creating, uncertain }
    }
}

impl Drop for OwnNodes {
    fn drop(&mut self) {
        let leftover = self.take_leftover();
        if !leftover.nodes.is_empty() {
            drop(cleanup::release(&self.zk, leftover));
        }
    }
}

impl fmt::Debug for OwnNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnNodes")
            .field("nodes", &self.nodes)
            .field("uncertain", &self.uncertain)
            .finish_non_exhaustive()
    }
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
