//! Owns what a waiter waits for: the end of its predecessor, or a change of a full queue.
//!
//! 1. Behind a node of this session that itself waits for another one, nothing is watched: see `session/register`.
//! 2. Behind all others, the waiter watches its predecessor, with one watch, for which it keeps the room; if the predecessor is of
//!    this session and has a watch on its own node already, that one serves both.
//! 3. A waiter that may be the next also watches its own node. If that watch stands when its predecessor ends, it need not
//!    list again: it is granted if a holder of this session handed the lock over to it; or if its predecessor, the only one
//!    ahead and of another session, was deleted. Not if that is a reader or a writer, which may take another node for the
//!    deleted one.
//!
//! The hold keeps that watch: an event from before the grant may be under way.
//!
//! Not noticed then: somebody creates a node with an older name by hand, after the waiter listed; or takes READ on the
//! waiter's node from it, and then deletes that.

use std::future::{Future, pending, ready};
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use uuid::Uuid;

use crate::error::{Error, Result, ZkError};
use crate::queue::order::{Kind, Name, Position, update_czxid};
use crate::queue::place::{Place, Waiter, Way};
use crate::queue::{LONGER_NAME, Queue};
use crate::session::{
    Answer, Created, Event, Failure, Following, Interrupt, Reserved, ServerSession, SessionOver, StandingWatch,
    Watched, delete_abandoned,
};

/// The room for the one watch of a waiter. It keeps it from one predecessor to the next, and from one queue to the next, so
/// that no newcomer uses it up.
#[derive(Debug)]
pub(crate) struct Room {
    reserved: Option<Reserved>,
    /// The length of the longest path that it is for.
    longest: usize,
    /// Whether the waiter has waited without it, so that it is not refused any more.
    has_waited: bool,
}

impl Room {
    pub(crate) fn new(longest: usize) -> Self {
        Self { reserved: None, longest, has_waited: false }
    }

    /// Reserves it, for a path of this length at least; returns whether there is any.
    fn reserve(&mut self, zk: &ServerSession, path_bytes: usize) -> Result<bool> {
        if path_bytes > self.longest + LONGER_NAME {
            return Ok(false);
        }
        match zk.reserve_watch(&mut self.reserved, path_bytes.max(self.longest)) {
            Ok(()) => Ok(true),
            Err(Error::SessionFull { .. }) if self.has_waited => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What a waiter was woken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// The predecessor, of the same session, has handed the lock over.
    HandedOver,
    /// The predecessor, of another session, was deleted.
    Deleted,
    /// Something has changed, or may have.
    Changed,
}

impl Place<'_> {
    /// Waits until the predecessor is gone, or may be, or a full queue has changed.
    pub(crate) async fn wait(&mut self, room: &mut Room) -> Result<(), Interrupt> {
        let zk = self.zk().clone();
        let waits = |waiter: &Waiter<'_>| !matches!(waiter.position, None | Some(Position::Granted));
        let Some(at) = self.waiters.iter().position(waits) else {
            return Ok(());
        };
        match self.waiters[at].position.clone() {
            Some(Position::Behind { predecessor, ahead }) => {
                if let Some((way, watch)) = self.wait_behind(at, &predecessor, ahead, room).await? {
                    self.nodes.granted_by(watch);
                    self.set_position(at, Position::Granted);
                    self.way = way;
                }
                Ok(())
            }
            Some(Position::Full { excess }) => permits(&zk, self.waiters[at].queue, excess, room).await,
            Some(Position::Granted) | None => Ok(()),
        }
    }

    /// Waits until the predecessor is gone, or may be, or turns out to be another node than the one that is known. Returns
    /// by what it is our turn, if it is, and the watch on our own node that shows it.
    async fn wait_behind(
        &mut self,
        at: usize,
        predecessor: &str,
        ahead: usize,
        room: &mut Room,
    ) -> Result<Option<(Way, StandingWatch)>, Interrupt> {
        let zk = self.zk().clone();
        let Some(node) = (0..self.nodes.as_slice().len()).find(|node| self.queue_of(*node) == at) else {
            return Ok(None);
        };
        let (is_only, seen_since) = (self.waiters.len() == 1, self.connection.clone());
        let Self { nodes, waiters, .. } = self;
        let (own, Waiter { queue, czxids, .. }) = (&nodes.as_slice()[node], &mut waiters[at]);
        let path = queue.path.child(predecessor);
        let own_name = own.created().map(Created::name);
        let unchanged = || match Name::parse(predecessor) {
            // A name at the end of the counter may be given again.
            Some(name) if name.is_in_zone() => ready(Ok(false)).left_future(),
            _ => zk
                .list_together(&queue.path)
                .map(|listing| {
                    let names = listing?;
                    Ok(names.contains(predecessor) && own_name.is_none_or(|own| names.contains(own)))
                })
                .right_future(),
        };
        let mut following = zk.follow(own, predecessor);
        if let Some(following) = &mut following {
            let mut is_there = false;
            let front = following.until_front(predecessor).map(|is_it| {
                is_there = is_it;
                Ok(Event::Changed)
            });
            if until(&zk, front, unchanged).await?.is_none() || !is_there {
                return Ok(None);
            }
            room.has_waited = true;
        }
        let followed = following.as_ref().map(Following::followed);
        let turn = Turn::of(own.created().map(Created::name), predecessor, is_only);
        let may_be_next = match &following {
            Some(_) => turn.by_handover,
            None => turn.by_deletion && ahead == 1,
        };
        // In boxes, because of thousands of waiters in memory hardly any needs the room for them.
        let is_known = |czxid| update_czxid(czxids, predecessor, czxid);
        let mut end = Box::pin(ended(&zk, &path, followed, room, is_known, unchanged));
        let mut arming =
            Box::pin(async { if may_be_next { zk.watch_of(own.guid()).await } else { Watched::Not } });
        let mut own_watch = None;
        let woken = loop {
            tokio::select! {
                biased;
                woken = left(following.as_mut()) => break woken,
                woken = &mut end => break woken?,
                watched = &mut arming, if own_watch.is_none() => match watched {
                    // Somebody has deleted it.
                    Watched::Gone => break Woken::Changed,
                    watched => own_watch = Some(watched.standing()),
                },
                () = fired(own_watch.as_ref()) => break Woken::Changed,
            }
        };
        let way = match woken {
            Woken::HandedOver => Way::HandedOver,
            Woken::Deleted if seen_since.is_some_and(|connection| connection.stands()) => Way::Deleted,
            Woken::Deleted | Woken::Changed => return Ok(None),
        };
        if !may_be_next || !zk.is_trusted_for_long() {
            return Ok(None);
        }
        let own_watch = match own_watch {
            Some(watch) => watch,
            None => arming.await.standing(),
        };
        // Noted before the watch is looked at: another connection may take its place at any moment.
        let connection = zk.connection();
        let granted = own_watch.filter(StandingWatch::stands).map(|watch| (way, watch));
        if granted.is_some() {
            self.connection = Some(connection);
        }
        Ok(granted)
    }
}

/// By what a contender may be granted its turn without another listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Turn {
    by_handover: bool,
    by_deletion: bool,
}

impl Turn {
    /// Of a contender that waits in this queue alone, or not.
    fn of(own: Option<&str>, predecessor: &str, is_only: bool) -> Self {
        let (Some(own), Some(predecessor)) = (own.and_then(Name::parse), Name::parse(predecessor)) else {
            return Self::default();
        };
        // Names at the end of the counter may be given again.
        if !is_only || own.is_in_zone() || predecessor.is_in_zone() {
            return Self::default();
        }
        // A reader or a writer may take another node for the one that it deletes.
        let is_plain = |kind| !matches!(kind, Kind::Read | Kind::Write);
        Self {
            // Readers share the lock with others, and so do the leases of a semaphore.
            by_handover: !matches!(predecessor.kind, Kind::Read | Kind::Lease),
            by_deletion: is_plain(own.kind) && is_plain(predecessor.kind),
        }
    }
}

/// Waits until the predecessor, of the same session, has left.
async fn left(following: Option<&mut Following>) -> Woken {
    match following {
        Some(following) => {
            if following.left().await {
                Woken::HandedOver
            } else {
                Woken::Changed
            }
        }
        None => pending().await,
    }
}

/// Waits until our own watch has fired, if there is one.
async fn fired(watch: Option<&Option<StandingWatch>>) {
    match watch {
        Some(Some(watch)) => drop(watch.fired().await),
        Some(None) | None => pending().await,
    }
}

/// Waits until the predecessor is gone, or may be. One that we follow has a watch, which all who wait for it share.
async fn ended<F: Future<Output = Result<bool, Failure>>>(
    zk: &Arc<ServerSession>,
    path: &str,
    followed: Option<Uuid>,
    room: &mut Room,
    is_known: impl FnOnce(i64) -> bool,
    unchanged: impl FnMut() -> F,
) -> Result<Woken, Interrupt> {
    if let Some(followed) = followed
        && let Some(watch) = zk.watch_of(followed).await.standing()
    {
        until(zk, watch.fired(), unchanged).await?;
        return Ok(Woken::Changed);
    }
    if !room.reserve(zk, path.len())? {
        return Ok(look_later(zk).await);
    }
    let Some((_, stat, watch)) = set(zk, path, || zk.watch_children(path)).await? else {
        return Ok(Woken::Changed);
    };
    if !is_known(stat.czxid) {
        return Ok(Woken::Changed);
    }
    let is_foreign = stat.ephemeral_owner != zk.id().0;
    match until(zk, watch.fired(), unchanged).await? {
        Some(Event::Deleted) if is_foreign => Ok(Woken::Deleted),
        Some(_) | None => Ok(Woken::Changed),
    }
}

/// Waits, where there is no room for a watch, until it is time to look.
async fn look_later(zk: &ServerSession) -> Woken {
    tokio::time::sleep(zk.times().look()).await;
    Woken::Changed
}

/// Waits until a queue with `excess` more nodes than permits has changed.
async fn permits(zk: &Arc<ServerSession>, queue: &Queue, excess: usize, room: &mut Room) -> Result<(), Interrupt> {
    let path = queue.path.as_str();
    if !room.reserve(zk, path.len())? {
        look_later(zk).await;
        return Ok(());
    }
    let Some((names, _, watch)) = set(zk, path, || zk.watch_children(path)).await? else {
        return Ok(());
    };
    // If some have left since we looked, our turn is nearer than was reported.
    let names = zk.without_abandoned(names);
    delete_abandoned(zk, &queue.path, &names);
    if queue.excess(names.as_slice().len()) >= excess {
        // To look again costs no more than to look whether that is needed.
        until(zk, watch.fired(), || ready(Ok(false))).await?;
    }
    Ok(())
}

/// Sets a watch; `None` if there is nothing to watch.
async fn set<T>(zk: &ServerSession, path: &str, send: impl FnMut() -> Answer<T>) -> Result<Option<T>, Interrupt> {
    match zk.retry(send).await? {
        Ok(seen) => Ok(Some(seen)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(Error::refused("watch", path, error).into()),
    }
}

/// Waits until a watch has fired. Now and then it asks whether all is `unchanged`, because an event may never come: servers send
/// none to a client that the ACLs of the moment deny the node.
async fn until<F: Future<Output = Result<bool, Failure>>>(
    zk: &ServerSession,
    fired: impl Future<Output = Result<Event, SessionOver>>,
    mut unchanged: impl FnMut() -> F,
) -> Result<Option<Event>, Interrupt> {
    let mut fired = pin!(fired);
    loop {
        tokio::select! {
            fired = &mut fired => return Ok(Some(fired?)),
            () = zk.slow_look() => {}
        }
        // Rare, so not every waiter keeps the room for it.
        let looked = Box::pin(unchanged());
        tokio::select! {
            fired = &mut fired => return Ok(Some(fired?)),
            looked = looked => match looked {
                Ok(true) | Err(Failure::Unknown) => {}
                // What is refused here is refused to the next look, too, which reports it.
                Ok(false) | Err(Failure::Refused(_)) => return Ok(None),
                Err(Failure::SessionOver) => return Err(SessionOver.into()),
            },
        }
    }
}
