//! Owns [`Lock`], the part that all recipes share.
//!
//! 1. A lock is held by nodes in one or several queues, created in one transaction. The machine decides when it is
//!    granted; see `machine`.
//! 2. Before a call sends its first request, it has a value whose `Drop` leaves the queue. So you may drop the future of a
//!    call at any point.

mod waiting;

use std::iter::repeat_n;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::driver::{Acquire, Draft, Failed, Granted, MAX_REQUEST_BYTES, Progress};
use crate::error::{Error, Loss, Result, ZkError};
use crate::fencing_token::FencingToken;
use crate::hold::Hold;
use crate::machine::End;
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::{Kind, Queue};
use crate::session::Session;
use crate::telemetry::{self, AcquireSpan};

pub use self::waiting::Waiting;

/// The lock of a recipe: its session, options, queues and nodes.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) session: Session,
    /// The path that stands for the lock in guards, errors and logs.
    pub(crate) path: LockPath,
    pub(crate) options: Options,
    /// The queues of the lock's nodes. A semaphore's queue of turns is not among them.
    pub(crate) queues: Arc<[Queue]>,
    /// The nodes to create.
    draft: Arc<Draft>,
    /// A semaphore's queue of turns, and its number of permits.
    pub(crate) permits: Option<(Queue, watch::Receiver<u32>)>,
}

impl Lock {
    /// Creates a lock. `permits`: a semaphore's queue of turns, and its number of permits. `what`: the argument to name in the
    /// error if the request to create the nodes would be too large.
    pub(crate) fn new(
        session: &Session,
        path: &LockPath,
        options: &Options,
        permits: Option<(Queue, watch::Receiver<u32>)>,
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
        // With path removal, a release deletes the lock's empty paths. The release of a semaphore's turn deletes none.
        let mut removes: Vec<_> = queues.iter().map(|queue| queue.path.clone()).collect();
        removes.extend(permits.iter().flat_map(|(turns, _)| [turns.path.clone(), path.clone()]));
        removes.retain(|_| options.path_removal());
        let turn = permits.as_ref().map(|(turns, _)| {
            let queues = vec![(turns.path.clone(), turns.kind)];
            Arc::new(Draft { options: options.clone(), queues, ..Draft::default() })
        });
        let nodes = queues.iter().flat_map(|queue| repeat_n((queue.path.clone(), queue.kind), queue.width));
        let draft = Draft { options: options.clone(), queues: nodes.collect(), turn, removes };
        let draft = Arc::new(draft);
        let (session, path) = (session.clone(), path.clone());
        let lock = Self { session, path, options, queues: queues.into(), draft, permits };
        telemetry::lock_begins(lock.kind(), lock.path.as_str());
        Ok(lock)
    }

    /// Creates a lock with one queue.
    pub(crate) fn of_one(session: &Session, path: &str, kind: Kind, options: &Options) -> Result<Self> {
        let path = LockPath::new(path)?;
        Self::new(session, &path, options, None, vec![Queue::new(&path, kind)], "lock path")
    }

    /// Returns all queues. The queue of turns comes last.
    pub(crate) fn all_queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().chain(self.permits.as_ref().map(|(turns, _)| turns))
    }

    /// Queues and waits for the grant, for as long as it takes.
    pub(crate) async fn acquire(&self) -> Result<Hold> {
        self.acquire_with(None, true).await
    }

    /// Queues and waits for the grant. Reports the number of contenders ahead to `progress`, if given. If the hold is lost
    /// before the next poll of this future, the call returns the loss. With `retries` it queues again instead, unless the hold
    /// has reached its limit.
    pub(crate) async fn acquire_with(&self, progress: Option<&Arc<Progress>>, retries: bool) -> Result<Hold> {
        let acquisition = self.acquisition();
        let held = self.acquire_in(&acquisition, progress, retries);
        acquisition.run(held, |hold| Some(hold.fencing_token())).await
    }

    async fn acquire_in(
        &self,
        acquisition: &AcquireSpan,
        progress: Option<&Arc<Progress>>,
        retries: bool,
    ) -> Result<Hold> {
        loop {
            let granted = self.queue(true, progress).await;
            if !(retries && was_lost(&granted)) {
                return self.hold(granted, acquisition);
            }
        }
    }

    async fn queue(&self, waits: bool, progress: Option<&Arc<Progress>>) -> Result<Granted, Failed> {
        let mut permits = self.permits.as_ref().map(|(_, permits)| permits.clone());
        // Read here, and not under the session's lock: a user may hold the lock of this channel, and wait for that of the session.
        let limit = permits.as_mut().map(|permits| *permits.borrow_and_update());
        let mut acquire = Acquire::new(self.session.core(), &self.draft, waits, progress.cloned(), limit);
        while let Some(changes) = &mut permits {
            tokio::select! {
                biased;
                granted = &mut acquire => return granted,
                changed = changes.changed() => match changed {
                    Ok(()) => acquire.change_permits(*changes.borrow_and_update()),
                    // The number does not change any more.
                    Err(_) => permits = None,
                },
            }
        }
        acquire.await
    }

    /// Queues and waits for the grant, for at most `limit`. Returns `None` if the call timed out after a contender was ahead.
    /// A `limit` of zero makes one attempt, which fails at once without a connection.
    pub(crate) async fn try_acquire_for(&self, limit: Duration) -> Result<Option<Hold>> {
        let (progress, acquisition) = (Arc::<Progress>::default(), self.acquisition());
        if limit.is_zero() {
            let tried = self.session.while_connected(self.try_in(&acquisition));
            return acquisition.run(tried, token).await;
        }
        let in_time = async {
            match tokio::time::timeout(limit, self.acquire_in(&acquisition, Some(&progress), true)).await {
                Ok(hold) => hold.map(Some),
                Err(_) if progress.has_waited() => Ok(None),
                Err(_) => Err(self.session.unavailable(limit)),
            }
        };
        acquisition.run(in_time, token).await
    }

    /// Acquires the lock if it is uncontended. Takes at most one session timeout.
    pub(crate) async fn try_acquire(&self) -> Result<Option<Hold>> {
        let acquisition = self.acquisition();
        acquisition.run(self.session.within(None, self.try_in(&acquisition)), token).await
    }

    async fn try_in(&self, acquisition: &AcquireSpan) -> Result<Option<Hold>> {
        loop {
            match self.queue(false, None).await {
                Err(Failed { end: End::Contended, .. }) => return Ok(None),
                granted if was_lost(&granted) => {}
                granted => return self.hold(granted, acquisition).map(Some),
            }
        }
    }

    fn hold(&self, granted: Result<Granted, Failed>, acquisition: &AcquireSpan) -> Result<Hold> {
        let granted = granted.map_err(|failed| self.error(failed))?;
        Hold::new(&self.session, &self.path, &self.options, granted, acquisition)
    }

    /// Returns why an acquisition ended without a hold.
    fn error(&self, Failed { end, refusal, node }: Failed) -> Error {
        match end {
            End::Evicted => match refusal {
                Some(evicted @ Error::Evicted { .. }) => evicted,
                _ => Error::Evicted { node: node.unwrap_or_default() },
            },
            End::Draining => Error::Closed,
            End::Refused => refusal.unwrap_or_else(|| {
                Error::refused("create a node under", self.path.as_str(), ZkError::ConnectionLoss)
            }),
            End::Lost(loss) => loss.into(),
            End::Closed | End::Contended | End::Released => self.session.error().unwrap_or(Error::Closed),
        }
    }

    fn acquisition(&self) -> AcquireSpan {
        AcquireSpan::begin(self.kind(), self.path.as_str(), self.session.newest_grant())
    }

    /// Returns the kind of contender, for logs and metrics.
    fn kind(&self) -> &'static str {
        match &*self.queues {
            [queue] => queue.kind.as_str(),
            _ => "several",
        }
    }
}

/// Returns whether the hold was lost before the call could return it, so that the call should queue again.
fn was_lost(granted: &Result<Granted, Failed>) -> bool {
    // `Stalled` does not count: a limit this short would also end the next hold too early.
    matches!(granted, Err(Failed { end: End::Lost(loss), .. }) if *loss != Loss::Stalled)
}

fn token(held: &Option<Hold>) -> Option<FencingToken> {
    held.as_ref().map(|hold| hold.fencing_token())
}
