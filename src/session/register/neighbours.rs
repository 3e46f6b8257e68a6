//! Owns how the nodes of one session wait for each other, in memory.
//!
//! 1. A waiter that finds its predecessor in the register, and owned, [follows](ServerSession::follow) it: it learns in memory
//!    of its end. While the predecessor itself waits for another node, nobody need watch it: nothing happens to those behind
//!    it before that one's end.
//! 2. Nodes of another `Session` on a clone of the same client are not in the register, so their ends are watched.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::watch;
use uuid::Uuid;

use super::{Entries, State, guid_of};
use crate::error::ZkError;
use crate::session::nodes::OwnNode;
use crate::session::operations::Created;
use crate::session::request::Failure;
use crate::session::server_session::ServerSession;
use crate::session::standing::{Arming, StandingWatch};

/// Where a node is, for those that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// Behind a node of the same session, which it follows.
    Behind,
    /// It may hold the lock, now or at any moment.
    There,
    /// It held the lock, and handed it over.
    HandedOver,
}

impl Entries {
    fn follow(&mut self, guid: Uuid, predecessor: &str) -> Option<(Uuid, watch::Receiver<Front>)> {
        let followed = guid_of(predecessor)?;
        let entry = self.by_guid.get_mut(&followed).filter(|entry| entry.is_owned_as(predecessor))?;
        let is_behind = entry.follows.is_some() || !entry.is_placed;
        let at = if is_behind { Front::Behind } else { Front::There };
        let front = entry.front.get_or_insert_with(|| watch::Sender::new(at)).subscribe();
        entry.followers.push(guid);
        let entry = self.by_guid.get_mut(&guid)?;
        (entry.follows, entry.is_placed) = (Some(followed), true);
        if let Some(front) = &entry.front {
            front.send_replace(Front::Behind);
        }
        Some((followed, front))
    }

    pub(super) fn leave(&mut self, guid: Uuid, hands_over: bool) {
        self.unfollow(guid);
        let Some(entry) = self.by_guid.get_mut(&guid) else {
            return;
        };
        let (followers, front) = (std::mem::take(&mut entry.followers), entry.front.take());
        for follower in followers {
            self.comes_to_front(follower);
        }
        if let Some(front) = front.filter(|_| hands_over) {
            front.send_replace(Front::HandedOver);
        }
    }

    /// Ends that a node follows another.
    fn unfollow(&mut self, guid: Uuid) {
        let followed = self.by_guid.get(&guid).and_then(|entry| entry.follows);
        if let Some(followed) = followed.and_then(|followed| self.by_guid.get_mut(&followed)) {
            followed.followers.retain(|follower| *follower != guid);
        }
        self.comes_to_front(guid);
    }

    pub(super) fn comes_to_front(&mut self, guid: Uuid) {
        if let Some(entry) = self.by_guid.get_mut(&guid) {
            entry.follows = None;
            if let Some(front) = entry.front.as_ref().filter(|_| entry.is_placed) {
                front.send_if_modified(|front| std::mem::replace(front, Front::There) != Front::There);
            }
        }
    }
}

impl ServerSession {
    /// Makes a node of ours follow its predecessor, if that is one of this session, too.
    pub(crate) fn follow(self: &Arc<Self>, node: &OwnNode, predecessor: &str) -> Option<Following> {
        let (followed, front) = self.nodes.lock().follow(node.guid(), predecessor)?;
        Some(Following { zk: self.clone(), guid: node.guid(), followed, front })
    }
}

/// The watch on a node of ours, which is being set, or was; shared by all who need it.
pub(in crate::session) type OwnWatch = Shared<BoxFuture<'static, Watched>>;

/// What became of the watch on a node of ours.
#[derive(Clone, Debug)]
pub(crate) enum Watched {
    Set(StandingWatch),
    /// There is no such node any more.
    Gone,
    /// It was not set.
    Not,
}

impl Watched {
    /// The watch, if it stands.
    pub(crate) fn standing(self) -> Option<StandingWatch> {
        match self {
            Self::Set(watch) => Some(watch).filter(StandingWatch::stands),
            Self::Gone | Self::Not => None,
        }
    }
}

impl ServerSession {
    /// The watch on a node of ours; it is set if there is none, and plenty of room for it.
    pub(crate) async fn watch_of(self: &Arc<Self>, guid: Uuid) -> Watched {
        if self.connected().await.is_err() {
            return Watched::Not;
        }
        match self.share_watch(guid) {
            Some(watch) => watch.await,
            None => Watched::Not,
        }
    }

    fn share_watch(&self, guid: Uuid) -> Option<OwnWatch> {
        let mut entries = self.nodes.lock();
        let entry = entries.by_guid.get_mut(&guid).filter(|entry| matches!(entry.state, State::Owned(_)))?;
        let is_of_use =
            |watch: &OwnWatch| watch.peek().is_none_or(|set| matches!(set, Watched::Set(set) if set.stands()));
        if let Some(watch) = entry.watch.clone().filter(is_of_use) {
            return Some(watch);
        }
        let Created { path, czxid } = entry.created.clone()?;
        let arming = Arming::send(self, &path, self.reserve_spare_watch(path.len())?);
        let set = async move {
            match arming.answered().await {
                Ok((stat, watch)) if stat.czxid == czxid => Watched::Set(watch),
                Ok(_) | Err(Failure::Refused(ZkError::NoNode)) => Watched::Gone,
                Err(_) => Watched::Not,
            }
        };
        let watch = set.boxed().shared();
        let before = entry.watch.replace(watch.clone());
        drop(entries);
        drop(before);
        Some(watch)
    }
}

/// That a node follows its predecessor, which belongs to the same session. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Following {
    zk: Arc<ServerSession>,
    guid: Uuid,
    followed: Uuid,
    front: watch::Receiver<Front>,
}

impl Following {
    /// Waits until the predecessor follows no other node, or has left; returns whether it has this name.
    pub(crate) async fn until_front(&mut self, name: &str) -> bool {
        // An error is its end.
        let _ = self.front.wait_for(|front| *front != Front::Behind).await;
        let entries = self.zk.nodes.lock();
        let created = entries.by_guid.get(&self.followed).and_then(|entry| entry.created.as_ref());
        created.map(Created::name) == Some(name)
    }

    /// Waits until the predecessor has left; returns whether it handed the lock over.
    pub(crate) async fn left(&mut self) -> bool {
        self.front.wait_for(|front| *front == Front::HandedOver).await.is_ok()
    }

    /// The guid of the predecessor.
    pub(crate) fn followed(&self) -> Uuid {
        self.followed
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.zk.nodes.lock().unfollow(self.guid);
    }
}
