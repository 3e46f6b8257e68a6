//! Owns [`Lock`]: what all recipes acquire, and how.
//!
//! 1. A lock is held by places in one or several queues, taken at once or one after the other; before them there may be a
//!    turn, which is given up when the lock is held. A place is owned by a value with `Drop` before its nodes are created,
//!    so the future may be dropped anywhere.
//! 2. A waiter watches one node, its predecessor, with one watch, for which it keeps the room. One that has several nodes
//!    also watches these: the loss of one is the loss of all.
//! 3. When the session ends, the waiter queues again, at the tail, in the renewed one.
//! 4. A hold whose trust has passed is never returned.

mod waiting;

use std::future::pending;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, try_join_all};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::hold::{Hold, NodeWatches, REVOKE};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::{Admission, Kind, MAX_REQUEST_BYTES, Place, Position, Queue, why_gone};
use crate::session::{Interrupt, Reserved, ServerSession, Session, delete_late_doubles};

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
    /// The queues of the places that are the lock. Places of one step are taken in one transaction.
    steps: Arc<[Vec<Queue>]>,
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
        if let Some(queue) = queues.iter().find(|queue| queue.path.is_the_servers() && !session.has_chroot()) {
            let reason =
                format!("{}: /zookeeper belongs to the servers; it should look like /locks/name", queue.path);
            return Err(Error::invalid("lock path", reason));
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
        Ok(Self { session, path, options, turn, steps: Arc::new([queues]) })
    }

    /// A lock of one queue.
    pub(crate) fn of_one(session: &Session, path: &str, kind: Kind, options: &Options) -> Result<Self> {
        let path = LockPath::new(path)?;
        let queue = Queue::new(&path, kind);
        Self::new(session, &path, options, None, vec![queue], "lock path")
    }

    /// The same queues, one after the other, in the order of their paths.
    pub(crate) fn one_by_one(mut self) -> Self {
        let mut queues: Vec<_> = self.queues().cloned().collect();
        queues.sort_by(|one, other| one.path.as_str().cmp(other.path.as_str()));
        self.path = queues[0].path.clone();
        self.steps = queues.into_iter().map(|queue| vec![queue]).collect();
        self
    }

    /// The queues of the places that are the lock.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.steps.iter().flatten()
    }

    /// Queues and waits for the grant, for as long as it takes.
    pub(crate) async fn acquire(&self) -> Result<Hold> {
        self.acquire_with(None).await
    }

    /// Queues and waits for the grant; reports its progress, if anybody wants to know.
    #[tracing::instrument(name = "acquire", level = "debug", skip_all, fields(path = %self.path))]
    pub(crate) async fn acquire_with(&self, progress: Option<&Progress>) -> Result<Hold> {
        loop {
            match self.session.attempt(|zk| self.acquire_once(zk, progress).boxed()).await {
                // A waiter that loses one of several places takes all of them again.
                Err(Error::Evicted { node }) if self.has_several_places() => {
                    tracing::debug!(node, "lost one of several places; taking all again");
                }
                held => return held,
            }
        }
    }

    /// Queues and waits for the grant; `None` if it timed out after it had a predecessor.
    pub(crate) async fn try_acquire_for(&self, limit: Duration) -> Result<Option<Hold>> {
        if limit.is_zero() {
            return self.try_acquire().await;
        }
        let progress = Progress::new();
        match tokio::time::timeout(limit, self.acquire_with(Some(&progress))).await {
            Ok(hold) => hold.map(Some),
            Err(_) if progress.last().is_some() => Ok(None),
            Err(_) => Err(self.session.unavailable(limit)),
        }
    }

    /// Takes the lock if nobody is ahead of us.
    pub(crate) async fn try_acquire(&self) -> Result<Option<Hold>> {
        self.session.within_timeout(self.try_without_limit()).await
    }

    /// Takes the lock if nobody is ahead of us, however long it takes to ask.
    #[tracing::instrument(name = "try_acquire", level = "debug", skip_all, fields(path = %self.path))]
    pub(crate) async fn try_without_limit(&self) -> Result<Option<Hold>> {
        self.session.attempt(|zk| self.try_once(zk).boxed()).await
    }

    /// Counts the nodes in the queues of the lock, without those of turns.
    pub(crate) async fn occupancy(&self) -> Result<usize> {
        let counted = self.session.attempt(|zk| {
            async move {
                let mut count = 0;
                for queue in self.queues() {
                    count += queue.list(&zk).await?.as_slice().len();
                }
                Ok(count)
            }
            .boxed()
        });
        self.session.within_timeout(counted).await
    }

    fn has_several_places(&self) -> bool {
        self.queues().filter(|queue| matches!(queue.admission, Admission::InOrder(_))).count() > 1
    }

    /// The queues of each place on the way, that of the turn first.
    fn steps(&self) -> impl Iterator<Item = &[Queue]> {
        self.turn.iter().map(slice::from_ref).chain(self.steps.iter().map(Vec::as_slice))
    }

    async fn acquire_once(&self, zk: Arc<ServerSession>, progress: Option<&Progress>) -> Result<Hold, Interrupt> {
        let mut places = Vec::new();
        let (mut reserved, mut waited) = (None, false);
        for queues in self.steps() {
            let mut place = Place::new(&zk, queues, &self.options)?;
            if place.enter().await? != Position::Granted {
                waited = true;
                let nodes: Vec<_> = places.iter().chain([&place]).flat_map(Place::paths).collect();
                tokio::select! {
                    biased;
                    interrupt = lost(&zk, &nodes) => return Err(interrupt),
                    granted = self.wait(&mut place, &mut reserved, progress) => granted?,
                }
            }
            places.push(place);
        }
        let mut is_revoked = false;
        if waited || self.steps.len() > 1 {
            let (checked, asked) = join(check_all(&zk, &places), self.is_turn_revoked(&zk, &places)).await;
            checked?;
            is_revoked = asked?;
        }
        let hold = self.granted(&zk, places).await?;
        if is_revoked {
            hold.revoke();
        }
        Ok(hold)
    }

    /// Waits until a place is granted.
    async fn wait(
        &self,
        place: &mut Place<'_>,
        reserved: &mut Option<Reserved>,
        progress: Option<&Progress>,
    ) -> Result<(), Interrupt> {
        // A waiter goes from queue to queue: reserve the longest path now, so that no newcomer uses that room.
        let longest = self.steps().flatten().map(Queue::watch_bytes).max().unwrap_or_default();
        loop {
            if let Some(progress) = progress {
                progress.ahead(place.ahead());
            }
            tracing::debug!(ahead = place.ahead(), "waiting");
            place.zk().reserve_watch(reserved, longest)?;
            place.wait(reserved).await?;
            if place.look().await? == Position::Granted {
                return Ok(());
            }
        }
    }

    async fn try_once(&self, zk: Arc<ServerSession>) -> Result<Option<Hold>, Interrupt> {
        // All nodes that are there came before us, so we need not create one to know. If permits are free, the owner of the turn is
        // about to acquire, so only the leases count.
        let blocked =
            self.queues().map(async |queue| Ok::<_, Interrupt>(queue.is_blocked(&*queue.list(&zk).await?)));
        if try_join_all(blocked).await?.contains(&true) {
            return Ok(None);
        }
        let mut places = Vec::new();
        for queues in self.steps() {
            let mut place = Place::new(&zk, queues, &self.options)?;
            let mut position = place.enter().await?;
            if places.is_empty() && self.turn.is_some() {
                position = wait_shortly(&mut place, position).await?;
            }
            if position != Position::Granted {
                return Ok(None);
            }
            places.push(place);
        }
        if self.steps.len() > 1 {
            check_all(&zk, &places).await?;
        }
        self.granted(&zk, places).await.map(Some)
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

    /// Turns places that were granted into a hold, as soon as the session is trusted.
    async fn granted(&self, zk: &Arc<ServerSession>, mut places: Vec<Place<'_>>) -> Result<Hold, Interrupt> {
        let trust = zk.need_trust(self.options.trust());
        zk.trusted(self.options.trust()).await?;
        let kept = places.split_off(usize::from(self.turn.is_some()));
        let nodes = kept.into_iter().map(Place::into_nodes).reduce(|mut all, mut nodes| {
            all.append(&mut nodes);
            all
        });
        let nodes = nodes.expect("a lock has a place");
        delete_late_doubles(&nodes);
        let hold = Hold::new(&self.session, &self.path, &self.options, nodes, trust)?;
        tracing::debug!(node = hold.nodes()[0], token = %hold.fencing_token(), "held");
        // The next may have its turn, now that the permits are counted.
        drop(places);
        Ok(hold)
    }
}

/// Waits until one of several nodes is gone. A waiter with one node learns of its loss when it is woken.
async fn lost(zk: &Arc<ServerSession>, nodes: &[(String, i64)]) -> Interrupt {
    if nodes.len() < 2 {
        return pending().await;
    }
    // A short wait sets no watches.
    tokio::time::sleep(zk.timeout() / 8).await;
    let gone = NodeWatches::begin(zk, nodes, Arc::new(|_: &[u8]| {})).any_gone().await;
    why_gone(zk, gone).await
}

/// Checks that all nodes are still there, after a wait in which one of several may have been deleted.
async fn check_all(zk: &ServerSession, places: &[Place<'_>]) -> Result<(), Interrupt> {
    let nodes: Vec<_> = places.iter().flat_map(Place::paths).map(|(node, _)| node).collect();
    if nodes.len() < 2 {
        return Ok(());
    }
    match zk.retry(|| zk.check(nodes.clone())).await? {
        Ok(Some(gone)) => Err(Error::Evicted { node: nodes[gone].clone() }.into()),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Waits for a turn behind others that are about to hold, but not long: one may have died there.
async fn wait_shortly(place: &mut Place<'_>, mut position: Position) -> Result<Position, Interrupt> {
    let until = Instant::now() + place.zk().timeout() / 8;
    let mut reserved = None;
    while position != Position::Granted {
        match tokio::time::timeout_at(until, place.wait(&mut reserved)).await {
            Ok(woken) => woken?,
            Err(_) => break,
        }
        position = place.look().await?;
    }
    Ok(position)
}
