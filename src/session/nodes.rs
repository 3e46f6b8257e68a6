//! Owns the nodes of an acquisition: [`OwnNodes`], created and deleted together.
//!
//! Dropping [`OwnNodes`], at any moment, deletes what was created, or may have been. See `cleanup`.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::options::Options;
use crate::path::LockPath;
use crate::session::cleanup::{self, Deletion, LeftNode, Leftover};
use crate::session::operations::{Created, Creation, Draft, Refusal, leaves_doubt};
use crate::session::register::carries;
use crate::session::request::{Answer, Failure};
use crate::session::server_session::ServerSession;
use crate::session::standing::{Event, StandingWatch};
use crate::session::undisturbed::Alone;

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

    pub(crate) fn guid(&self) -> Uuid {
        self.guid
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
    /// What is known of the only one, if it was alone in its path when it was granted.
    alone: Option<Alone>,
    /// The watch on the only one that stood when it was granted without another listing.
    own_watch: Option<StandingWatch>,
    /// Whether they hold the lock when they are released.
    hold: bool,
}

impl OwnNodes {
    /// Prepares sequential nodes. Nothing is sent.
    pub(crate) fn prepare<'a>(
        zk: &Arc<ServerSession>,
        options: &Options,
        new: impl Iterator<Item = NewNode<'a>>,
    ) -> Result<Self> {
        let mut nodes = Self::none(zk);
        for NewNode { parent, suffix, removes } in new {
            let removes = if options.path_removal() { removes.clone() } else { Arc::default() };
            nodes.add(parent.clone(), suffix, true, options.clone(), removes)?;
        }
        Ok(nodes)
    }

    /// Prepares the node that takes the place of the only one: with the same parent, and a suffix that has the number.
    pub(crate) fn successor(&self, suffix: &str) -> Result<Self> {
        let mut nodes = Self::none(&self.zk);
        let OwnNode { parent, draft, removes, .. } = &self.nodes[0];
        nodes.add(parent.clone(), suffix, false, draft.options.clone(), removes.clone())?;
        Ok(nodes)
    }

    fn none(zk: &Arc<ServerSession>) -> Self {
        Self {
            zk: zk.clone(),
            nodes: Vec::new(),
            creating: None,
            uncertain: false,
            alone: None,
            own_watch: None,
            hold: false,
        }
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

    /// Notes that the only node is alone in its path.
    pub(crate) fn is_alone(&mut self, alone: Alone) {
        self.alone = Some(alone);
    }

    /// Notes the watch on the only node that stood when it was granted.
    pub(crate) fn granted_by(&mut self, own_watch: StandingWatch) {
        self.own_watch = Some(own_watch);
    }

    /// What the watch has seen on which the grant was based, if there is one and it has fired. On the lock path or on the node, it
    /// is an event from before the grant that was late, or one of the hold.
    pub(crate) fn seen_since_grant(&self) -> Option<Event> {
        let of_path = self.alone.as_ref().and_then(Alone::watch_of_guess);
        of_path.or(self.own_watch.as_ref()).and_then(StandingWatch::seen)
    }

    /// What created the path of a node that was granted without a look at it.
    pub(crate) fn path_unseen(&self) -> Option<(&LockPath, i64)> {
        Some((&self.nodes.first()?.parent, self.alone.as_ref()?.path_czxid()?))
    }

    /// The paths of the nodes, and the transactions that created them.
    pub(crate) fn paths(&self) -> Vec<(String, i64)> {
        self.nodes.iter().filter_map(|node| Some((node.path().to_owned(), node.created()?.czxid))).collect()
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
                created.into_iter().enumerate().for_each(|(index, created)| self.adopt(index, created));
                Ok(Ok(()))
            }
            Ok(Err(refusals)) => Ok(Err(refusals)),
            Err(Failure::Refused(error)) => Ok(Err(vec![Refusal { index: 0, error }])),
            Err(failure) => Err(failure),
        }
    }

    /// Takes a node that was found for one of ours.
    pub(crate) fn adopt(&mut self, index: usize, found: Created) {
        let node = &mut self.nodes[index];
        self.zk.nodes.created(node.guid, &found);
        node.created = Some(found);
    }

    /// Notes, before they are released, that they hold the lock, in a session that is trusted: the release may hand it over to
    /// nodes that follow one of these, and the next node may count on what is known of this one.
    pub(crate) fn still_hold(&mut self) {
        self.hold = true;
    }

    /// Notes that a node is granted, or waits for another one in another queue.
    pub(crate) fn placed(&self, index: usize) {
        self.zk.nodes.placed(self.nodes[index].guid);
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
                let watch = self.zk.nodes.abandon(node.guid, name);
                let path = node.created.map(|created| created.path);
                removes.extend(node.removes.iter().cloned());
                nodes.push(LeftNode { parent: node.parent, guid: node.guid, path, _watch: watch });
            } else {
                self.zk.nodes.remove(node.guid);
            }
        }
        removes.dedup();
        let is_plain = self.hold && !uncertain && nodes.len() == 1 && removes.is_empty();
        let alone = self.alone.take().filter(|_| is_plain);
        let hands_over = is_plain && !alone.as_ref().is_some_and(Alone::is_guess);
        Leftover { nodes, removes, creating, uncertain, alone, hands_over }
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
