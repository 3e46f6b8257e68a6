//! Owns [`Lock`]: what all recipes acquire, and how.
//!
//! 1. A lock is held by one place in one or several queues, taken in one transaction. Before it a semaphore takes a turn,
//!    which is given up when the lock is held. A place is owned by a value with `Drop` before its nodes are created, so the
//!    future may be dropped anywhere.
//! 2. A waiter watches one node, its predecessor, with one watch, for which it keeps the room. One that has several nodes
//!    also watches these: the loss of one is the loss of all.
//! 3. When the session ends, the waiter queues again, at the tail, in the renewed one.
//! 4. A hold whose trust has passed is never returned; nor one whose nodes were last seen long ago, or on another connection.

mod wait;
mod waiting;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, try_join_all};

use crate::error::{Error, Result};
use crate::fencing_token::FencingToken;
use crate::hold::{Hold, REVOKE};
use crate::lock::wait::{check_several, lost, trusted, wait, wait_shortly};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::{Kind, MAX_REQUEST_BYTES, Place, Position, Queue, Room};
use crate::session::{Connection, Interrupt, ServerSession, Session, delete_late_doubles};
use crate::telemetry::{self, Acquisition};

pub use self::waiting::Waiting;

pub(crate) use self::waiting::Progress;

/// What a recipe acquires.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) session: Session,
    /// What the lock is called.
    pub(crate) path: LockPath,
    pub(crate) options: Options,
    /// The queue of turns of a semaphore. The turn is released when the permits are held.
    pub(crate) turn: Option<Queue>,
    /// The queues of the place that is the lock.
    pub(crate) queues: Arc<[Queue]>,
}

impl Lock {
    /// `what` names the argument in the error for a request that is too large.
    pub(crate) fn new(
        session: &Session,
        path: &LockPath,
        options: &Options,
        turn: Option<Queue>,
        queues: Vec<Queue>,
        what: &'static str,
    ) -> Result<Self> {
        let options = &options.over(session.lock_options());
        options.validate()?;
        if !session.has_chroot() {
            queues.iter().try_for_each(|queue| queue.path.refuse_the_servers())?;
        }
        let per_node = options.request_bytes() + 60;
        let cost = |queue: &Queue| queue.width().saturating_mul(queue.path.as_str().len() + per_node);
        let bytes = queues.iter().map(cost).fold(0, usize::saturating_add);
        let nodes = queues.iter().map(Queue::width).fold(0, usize::saturating_add);
        if nodes > 1 && bytes > MAX_REQUEST_BYTES {
            let reason = format!(
                "{nodes} nodes are created in one request, of about {bytes} bytes; {MAX_REQUEST_BYTES} are the most (a \
                 server's jute.maxbuffer)"
            );
            return Err(Error::invalid(what, reason));
        }
        let (session, path, options) = (session.clone(), path.clone(), options.clone());
        let lock = Self { session, path, options, turn, queues: queues.into() };
        telemetry::lock_begins(lock.kind(), lock.path.as_str());
        Ok(lock)
    }

    /// A lock of one queue.
    pub(crate) fn of_one(session: &Session, path: &str, kind: Kind, options: &Options) -> Result<Self> {
        let path = LockPath::new(path)?;
        let queue = Queue::new(&path, kind);
        Self::new(session, &path, options, None, vec![queue], "lock path")
    }

    /// Queues and waits for the grant, for as long as it takes.
    pub(crate) async fn acquire(&self) -> Result<Hold> {
        self.acquire_with(None).await
    }

    /// Queues and waits for the grant; reports its progress, if anybody wants to know.
    pub(crate) async fn acquire_with(&self, progress: Option<&Progress>) -> Result<Hold> {
        let acquisition = self.acquisition();
        acquisition.run(self.acquire_in(&acquisition, progress), |hold| Some(hold.fencing_token())).await
    }

    async fn acquire_in(&self, acquisition: &Acquisition, progress: Option<&Progress>) -> Result<Hold> {
        loop {
            match self.session.acquire(|zk| self.acquire_once(zk, acquisition, progress).boxed()).await {
                // A waiter that loses its node in one of several queues joins all of them again.
                Err(Error::Evicted { node }) if self.queues.len() > 1 => {
                    tracing::debug!(node, "lost one of several nodes; joining all queues again");
                }
                held => return held,
            }
        }
    }

    /// Queues and waits for the grant; `None` if it timed out after it had a predecessor.
    pub(crate) async fn try_acquire_for(&self, limit: Duration) -> Result<Option<Hold>> {
        let (progress, acquisition) = (Progress::new(), self.acquisition());
        if limit.is_zero() {
            let tried = self.session.while_connected(self.try_in(&acquisition));
            return acquisition.run(tried, token).await;
        }
        let in_time = async {
            match tokio::time::timeout(limit, self.acquire_in(&acquisition, Some(&progress))).await {
                Ok(hold) => hold.map(Some),
                Err(_) if progress.has_waited() => Ok(None),
                Err(_) => Err(self.session.unavailable(limit)),
            }
        };
        acquisition.run(in_time, token).await
    }

    /// Takes the lock if nobody is ahead of us.
    pub(crate) async fn try_acquire(&self) -> Result<Option<Hold>> {
        let acquisition = self.acquisition();
        acquisition.run(self.session.within_timeout(self.try_in(&acquisition)), token).await
    }

    /// Takes the lock if nobody is ahead of us, however long it takes to ask.
    pub(crate) async fn try_without_limit(&self) -> Result<Option<Hold>> {
        let acquisition = self.acquisition();
        acquisition.run(self.try_in(&acquisition), token).await
    }

    async fn try_in(&self, acquisition: &Acquisition) -> Result<Option<Hold>> {
        self.session.acquire(|zk| self.try_once(zk, acquisition).boxed()).await
    }

    fn acquisition(&self) -> Acquisition {
        Acquisition::begin(self.kind(), self.path.as_str())
    }

    /// Which recipe it is, or which side of it, for people.
    fn kind(&self) -> &'static str {
        match &*self.queues {
            [queue] => queue.kind().as_str(),
            _ => "several",
        }
    }

    /// The queues of each place on the way, that of the turn first.
    fn steps(&self) -> impl Iterator<Item = &[Queue]> {
        self.turn.iter().map(slice::from_ref).chain([&*self.queues])
    }

    async fn acquire_once(
        &self,
        zk: Arc<ServerSession>,
        acquisition: &Acquisition,
        progress: Option<&Progress>,
    ) -> Result<Hold, Interrupt> {
        let mut places = Vec::with_capacity(2);
        let (mut room, mut waited) = (self.room(), false);
        for queues in self.steps() {
            let mut place = Place::new(&zk, queues, &self.options)?;
            let position = place.enter().await?;
            acquisition.entered(place.ahead());
            if position != Position::Granted {
                waited = true;
                let nodes: Vec<_> = places.iter().chain([&place]).flat_map(Place::paths).collect();
                tokio::select! {
                    biased;
                    interrupt = lost(&zk, &nodes) => return Err(interrupt),
                    granted = wait(&mut place, &mut room, progress) => granted?,
                }
            }
            places.push(place);
        }
        let (mut seen, mut is_revoked) = (None, false);
        if waited {
            let (checked, asked) = join(check_several(&zk, &places), self.is_turn_revoked(&zk, &places)).await;
            (seen, is_revoked) = (checked?, asked?);
        }
        let hold = self.granted(&zk, places, seen, acquisition).await?;
        if is_revoked {
            hold.revoke();
        }
        Ok(hold)
    }

    /// The room for the watch of a waiter, which goes from queue to queue.
    fn room(&self) -> Room {
        Room::new(self.steps().flatten().map(Queue::watch_bytes).max().unwrap_or_default())
    }

    async fn try_once(
        &self,
        zk: Arc<ServerSession>,
        acquisition: &Acquisition,
    ) -> Result<Option<Hold>, Interrupt> {
        // All nodes that are there came before us, so we need not create one to know. If permits are free, the owner of the turn is
        // about to acquire, so only the leases count.
        let blocked = self.queues.iter().map(async |queue| {
            let names = queue.list(&zk).await?;
            if queue.may_be_semaphore(&names) {
                queue.refuse_semaphore(&zk).await?;
            }
            Ok::<_, Interrupt>(queue.is_blocked(&names))
        });
        if try_join_all(blocked).await?.contains(&true) {
            return Ok(None);
        }
        let mut places = Vec::new();
        for queues in self.steps() {
            let mut place = Place::new(&zk, queues, &self.options)?;
            let mut position = place.enter().await?;
            if places.is_empty() && self.turn.is_some() {
                position = wait_shortly(&mut place, position, self.room()).await?;
            }
            if position != Position::Granted {
                return Ok(None);
            }
            places.push(place);
        }
        self.granted(&zk, places, None, acquisition).await.map(Some)
    }

    /// Whether somebody has asked a waiter for the lock while it had a turn, which it gives up when it holds the lock.
    async fn is_turn_revoked(&self, zk: &ServerSession, places: &[Place<'_>]) -> Result<bool, Interrupt> {
        let (Some(queue), Some(turn)) = (&self.turn, places.first()) else {
            return Ok(false);
        };
        for (node, _) in turn.paths() {
            match queue.read(zk, &node[queue.path.as_str().len() + 1..]).await {
                Ok(Some((data, _))) if data == REVOKE => return Ok(true),
                // Without READ on our own node we cannot see a revocation request, so we ignore it.
                Ok(_) | Err(Interrupt::Failed(Error::NoAuth { .. })) => {}
                Err(interrupt) => return Err(interrupt),
            }
        }
        Ok(false)
    }

    /// Turns places that were granted into a hold, as soon as the session is trusted. `seen` is the connection on which all
    /// nodes were last seen, if that was later than the grant.
    async fn granted(
        &self,
        zk: &Arc<ServerSession>,
        mut places: Vec<Place<'_>>,
        seen: Option<Connection>,
        acquisition: &Acquisition,
    ) -> Result<Hold, Interrupt> {
        let trust = zk.need_trust();
        trusted(zk, &places, seen).await?;
        let place = places.pop().expect("a lock has a place");
        let by = place.way();
        let nodes = place.into_nodes();
        delete_late_doubles(&nodes);
        let hold = Hold::new(&self.session, &self.path, &self.options, nodes, trust, acquisition)?;
        tracing::debug!(node = hold.nodes()[0], token = %hold.fencing_token(), ?by, "held");
        // The next may have its turn, now that the permits are counted.
        drop(places);
        Ok(hold)
    }
}

fn token(held: &Option<Hold>) -> Option<FencingToken> {
    held.as_ref().map(Hold::fencing_token)
}
