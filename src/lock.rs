//! Owns [`Lock`]: what all recipes acquire, and how.
//!
//! 1. A lock is held by nodes in one or several queues, created in one transaction. A semaphore first tries to have its permits
//!    in one request; where others are, it takes a turn, which is given up when the permits are held.
//! 2. The machine decides; see `machine`. A call is owned by a value with `Drop` before its first request, so the future may be
//!    dropped anywhere.
//! 3. When the session ends, the waiter queues again, at the tail, in the renewed one.

mod waiting;

use std::future::poll_fn;
use std::iter::repeat_n;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use crate::driver::{self, Acquire, Draft, Failed, Granted, MAX_REQUEST_BYTES, Progress};
use crate::error::{Error, Result, ZkError};
use crate::fencing_token::FencingToken;
use crate::hold::{Hold, REVOKE};
use crate::machine::{Admission, End, Event, Life, Loss, Op};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::{Kind, Queue};
use crate::session::{Session, Zk};
use crate::telemetry::{self, Acquisition};

pub use self::waiting::Waiting;

/// What a recipe acquires.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) session: Session,
    /// What the lock is called.
    pub(crate) path: LockPath,
    pub(crate) options: Options,
    /// The queues of the nodes that are the lock.
    pub(crate) queues: Arc<[Queue]>,
    /// The nodes of the lock. Those of a semaphore are granted in one request, or not at all.
    draft: Arc<Draft>,
    /// Of a semaphore.
    pub(crate) permits: Option<Permits>,
}

/// How permits are acquired where others are: in turn.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    /// The queue of turns. The turn is released when the permits are held.
    pub(crate) turns: Queue,
    /// How many there are.
    pub(crate) limit: u32,
    turn: Arc<Draft>,
    in_turn: Arc<Draft>,
}

impl Lock {
    /// `permits`: the queue of turns of a semaphore, and how many permits there are. `what` names the argument in the error for
    /// a request that is too large.
    pub(crate) fn new(
        session: &Session,
        path: &LockPath,
        options: &Options,
        permits: Option<(Queue, u32)>,
        queues: Vec<Queue>,
        what: &'static str,
    ) -> Result<Self> {
        let options = options.over(session.lock_options());
        options.validate()?;
        options.warn_if_open(path.as_str());
        if !session.has_chroot() {
            queues.iter().try_for_each(|queue| queue.path.refuse_the_servers())?;
        }
        let per_node = options.request_bytes() + 60;
        let cost = |queue: &Queue| queue.width.saturating_mul(queue.path.as_str().len() + per_node);
        let bytes = queues.iter().map(cost).fold(0, usize::saturating_add);
        let nodes = queues.iter().map(|queue| queue.width).fold(0, usize::saturating_add);
        if nodes > 1 && bytes > MAX_REQUEST_BYTES {
            let reason = format!(
                "{nodes} nodes are created in one request, of about {bytes} bytes; {MAX_REQUEST_BYTES} are the most (a \
                 server's jute.maxbuffer)"
            );
            return Err(Error::invalid(what, reason));
        }
        // A turn deletes no path: what is empty is deleted with the permits.
        let mut removes: Vec<_> = queues.iter().map(|queue| queue.path.clone()).collect();
        removes.extend(permits.iter().flat_map(|(turns, _)| [turns.path.clone(), path.clone()]));
        removes.retain(|_| options.path_removal());
        let draft = |queues: &[Queue], admission, removes: &[LockPath]| {
            let nodes = queues.iter().flat_map(|queue| repeat_n((queue.path.clone(), queue.kind), queue.width));
            let (options, queues, removes) = (options.clone(), nodes.collect(), removes.to_vec());
            Draft { options, queues, admission, is_turn: false, removes }
        };
        let mut admission = Admission::First;
        let permits = permits.map(|(turns, limit)| {
            admission = Admission::Permits { limit, turn: Some(turns.path.clone()) };
            let turn = Draft { is_turn: true, ..draft(std::slice::from_ref(&turns), Admission::First, &[]) };
            let in_turn = draft(&queues, Admission::Permits { limit, turn: None }, &removes);
            Permits { turns, limit, turn: Arc::new(turn), in_turn: Arc::new(in_turn) }
        });
        let draft = Arc::new(draft(&queues, admission, &removes));
        let (session, path) = (session.clone(), path.clone());
        let lock = Self { session, path, options, queues: queues.into(), draft, permits };
        telemetry::lock_begins(lock.kind(), lock.path.as_str());
        Ok(lock)
    }

    /// A lock of one queue.
    pub(crate) fn of_one(session: &Session, path: &str, kind: Kind, options: &Options) -> Result<Self> {
        let path = LockPath::new(path)?;
        Self::new(session, &path, options, None, vec![Queue::new(&path, kind)], "lock path")
    }

    /// The queues of all nodes, that of turns last.
    pub(crate) fn all_queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().chain(self.permits.as_ref().map(|permits| &permits.turns))
    }

    /// Queues and waits for the grant, for as long as it takes.
    pub(crate) async fn acquire(&self) -> Result<Hold> {
        self.acquire_with(None).await
    }

    /// Queues and waits for the grant; reports its progress, if anybody wants to know.
    pub(crate) async fn acquire_with(&self, progress: Option<&Arc<Progress>>) -> Result<Hold> {
        let acquisition = self.acquisition();
        acquisition.run(self.acquire_in(&acquisition, progress), |hold| Some(hold.fencing_token())).await
    }

    async fn acquire_in(&self, acquisition: &Acquisition, progress: Option<&Arc<Progress>>) -> Result<Hold> {
        loop {
            let acquired = match &self.permits {
                None => {
                    self.wait(&self.draft, acquisition, progress, || ()).await.map(|it| self.hold(it, acquisition))
                }
                // Rare beside the others, and larger, so not every waiter keeps the room for it.
                Some(permits) => self.acquire_permits(permits, acquisition, progress).boxed().await,
            };
            match acquired {
                Ok(hold) => return hold,
                // A waiter that loses its node in one of several queues joins all of them again.
                Err(Failed { end: End::Evicted, node, .. }) if self.queues.len() > 1 => {
                    tracing::debug!(node, "lost one of several nodes; joining all queues again");
                }
                // It lost its turn with the session.
                Err(Failed { end: End::Lost(Loss::Expired | Loss::TrustEnded), .. }) => {}
                Err(failed) => return Err(self.error(failed)),
            }
        }
    }

    /// Acquires permits: in one request where nobody else is, and else in turn.
    async fn acquire_permits(
        &self,
        permits: &Permits,
        acquisition: &Acquisition,
        progress: Option<&Arc<Progress>>,
    ) -> Result<Result<Hold>, Failed> {
        match self.try_draft(&self.draft).await {
            Err(Failed { end: End::Contended, .. }) => {}
            tried => return tried.map(|granted| self.hold(granted, acquisition)),
        }
        let progress = &progress.cloned().unwrap_or_default();
        let turn = Turn::new(self, self.wait(&permits.turn, acquisition, Some(progress), || ()).await?.op);
        let waits = || turn.attend();
        let granted = turn.during(self.wait(&permits.in_turn, acquisition, Some(progress), waits)).await?;
        let hold = self.hold(granted, acquisition);
        if let Ok(hold) = &hold
            && progress.has_waited()
            && self.is_revoked(&turn).await
        {
            hold.monitor().revoke();
        }
        // The next may have its turn, now that the permits are counted.
        Ok(hold)
    }

    /// Waits in the queues of a draft. `waits`: is called when it has to.
    async fn wait(
        &self,
        draft: &Arc<Draft>,
        acquisition: &Acquisition,
        progress: Option<&Arc<Progress>>,
        waits: impl Fn(),
    ) -> Result<Granted, Failed> {
        let mut acquire = pin!(Acquire::new(self.session.core(), draft, true, progress.cloned()));
        poll_fn(|cx| {
            let polled = acquire.as_mut().poll(cx);
            if polled.is_ready() || acquire.ahead > 0 {
                acquisition.entered(acquire.ahead);
            }
            if acquire.ahead > 0 {
                waits();
            }
            polled
        })
        .await
    }

    /// Creates the nodes of a draft, if that grants the lock.
    async fn try_draft(&self, draft: &Arc<Draft>) -> Result<Granted, Failed> {
        Acquire::new(self.session.core(), draft, false, None).await
    }

    /// Queues and waits for the grant; `None` if it timed out after it had a predecessor.
    pub(crate) async fn try_acquire_for(&self, limit: Duration) -> Result<Option<Hold>> {
        let (progress, acquisition) = (Arc::<Progress>::default(), self.acquisition());
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

    /// Takes the lock if no contender is ahead of us.
    pub(crate) async fn try_acquire(&self) -> Result<Option<Hold>> {
        let acquisition = self.acquisition();
        acquisition.run(self.session.within_timeout(self.try_in(&acquisition)), token).await
    }

    /// Takes the lock if no contender is ahead of us, however long the requests take.
    pub(crate) async fn try_without_limit(&self) -> Result<Option<Hold>> {
        let acquisition = self.acquisition();
        acquisition.run(self.try_in(&acquisition), token).await
    }

    async fn try_in(&self, acquisition: &Acquisition) -> Result<Option<Hold>> {
        loop {
            let tried = match &self.permits {
                None => self.try_draft(&self.draft).await,
                Some(permits) => self.try_permits(permits, acquisition).boxed().await,
            };
            match tried {
                Ok(granted) => {
                    acquisition.entered(0);
                    return self.hold(granted, acquisition).map(Some);
                }
                Err(Failed { end: End::Contended, .. }) => return Ok(None),
                Err(Failed { end: End::Lost(Loss::Expired | Loss::TrustEnded), .. }) => {}
                Err(failed) => return Err(self.error(failed)),
            }
        }
    }

    async fn try_permits(&self, permits: &Permits, acquisition: &Acquisition) -> Result<Granted, Failed> {
        // Where there is no room nothing is written.
        if !self.has_room(permits.limit).await? {
            return Err(Failed::of(End::Contended));
        }
        match self.try_draft(&self.draft).await {
            Err(Failed { end: End::Contended, .. }) => {}
            tried => return tried,
        }
        let progress = &Arc::<Progress>::default();
        // If permits are free, the owner of the turn is about to acquire.
        let is_late = progress.waits().then(|()| tokio::time::sleep(self.session.timeout() / 8));
        let turn = tokio::select! {
            turn = self.wait(&permits.turn, acquisition, Some(progress), || ()) => turn?,
            () = is_late => return Err(Failed::of(End::Contended)),
        };
        Turn::new(self, turn.op).during(self.try_draft(&permits.in_turn)).await
    }

    /// Whether there is room for the permits, by a look.
    async fn has_room(&self, limit: u32) -> Result<bool, Failed> {
        if self.session.core().lock().machine.life() == Life::Draining {
            return Err(Failed::of(End::Draining));
        }
        let leases = &self.queues[0];
        let listed = self.session.attempt(|zk| async move { zk.list(leases.path.as_str()).await });
        Ok(listed.await.map_err(Failed::refused)?.len() + leases.width <= limit as usize)
    }

    fn hold(&self, granted: Granted, acquisition: &Acquisition) -> Result<Hold> {
        let (hold, life) = Hold::new(&self.session, &self.path, &self.options, granted, acquisition)?;
        // The session may be at its end since it was granted: then no lock is returned any more.
        let is_open = matches!(life, Life::Open | Life::Renewing);
        if is_open { Ok(hold) } else { Err(self.session.error().unwrap_or(Error::Closed)) }
    }

    /// Why an acquisition ended without a hold.
    fn error(&self, Failed { end, refusal, node }: Failed) -> Error {
        match end {
            End::Evicted => match refusal {
                Some(evicted @ Error::Evicted { .. }) => evicted,
                _ => Error::Evicted { node: node.unwrap_or_default() },
            },
            End::Draining => Error::Closed,
            End::Refused | End::Unanswered => refusal.unwrap_or_else(|| {
                Error::refused("create a node under", self.path.as_str(), ZkError::ConnectionLoss)
            }),
            End::Lost(loss) => loss.into(),
            End::Closed | End::Contended | End::Released => self.session.error().unwrap_or(Error::Closed),
        }
    }

    fn acquisition(&self) -> Acquisition {
        Acquisition::begin(self.kind(), self.path.as_str(), self.session.newest_grant())
    }

    /// Which recipe it is, or which side of it, for people.
    fn kind(&self) -> &'static str {
        match &*self.queues {
            [queue] => queue.kind.as_str(),
            _ => "several",
        }
    }

    /// Whether a waiter was asked for the lock while it had a turn, which it gives up when it holds the lock.
    async fn is_revoked(&self, turn: &Turn<'_>) -> bool {
        let Some(node) = turn.node() else { return false };
        let node = &*node;
        let read = self.session.ask(|zk| async move { zk.retry("read", || zk.data(node)).await });
        // Without READ on our own node we cannot see a revocation request, so we ignore it.
        matches!(read.await, Ok(Ok((data, _))) if data == REVOKE)
    }
}

/// A turn of a semaphore. It is given up when it is dropped.
struct Turn<'a> {
    lock: &'a Lock,
    op: Op,
    /// The session that it is in.
    zk: Option<Zk>,
}

impl<'a> Turn<'a> {
    fn new(lock: &'a Lock, op: Op) -> Self {
        let core = lock.session.core();
        let zk = Zk::present(core, &core.lock());
        Self { lock, op, zk }
    }

    /// Its end is to be seen at once: it stands for the caller in the queue.
    fn attend(&self) {
        let core = self.lock.session.core();
        core.handle(&mut core.lock(), Event::WatchForLoss(self.op));
    }

    /// Acquires while the turn lasts.
    async fn during(&self, acquiring: impl Future<Output = Result<Granted, Failed>>) -> Result<Granted, Failed> {
        let core = self.lock.session.core();
        let loss = tokio::select! {
            biased;
            loss = driver::lost(core, self.op) => loss,
            granted = acquiring => {
                let granted = granted?;
                let Some(loss) = driver::loss(core, self.op) else { return Ok(granted) };
                driver::abandon(core, granted.op);
                loss
            }
        };
        Err(Failed { end: self.end(loss).await, refusal: None, node: self.node() })
    }

    /// Servers report the deletion of a session's nodes before the end of the session.
    async fn end(&self, loss: Loss) -> End {
        match (loss, &self.zk) {
            (Loss::Deleted, Some(zk)) if zk.retry("check", || zk.check()).await.is_ok() => End::Evicted,
            _ => End::Lost(Loss::Expired),
        }
    }

    fn node(&self) -> Option<String> {
        self.lock.session.core().lock().nodes(self.op).into_iter().next()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        driver::abandon(self.lock.session.core(), self.op);
    }
}

fn token(held: &Option<Hold>) -> Option<FencingToken> {
    held.as_ref().map(Hold::fencing_token)
}
