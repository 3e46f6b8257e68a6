//! Owns [`Both`]: two locks as one, to move from one to the other.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select};
use tokio::time::Instant;

use crate::contender::Contender;
use crate::distributed_lock::{DistributedLock, LockGuard};
use crate::error::{Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::HoldState;

/// Two locks as one: whoever holds it holds both. With it a service moves from one lock to another while it runs, also from
/// another system: [the guide](crate::guide::moving) has the rollouts. First all processes take `old` alone, then [`Both`], then
/// `new` alone. So the processes of one rollout and of the next always have one lock in common.
///
/// `old` is acquired first, then `new`, and they are released in the reverse order, so callers cannot deadlock. The loss of
/// either is the loss of both. If `old` is lost while a call waits for `new`, the call begins again.
///
/// The token is that of `new`. Give `new` a [token epoch](crate::Options::with_token_epoch) above all tokens that `old` has
/// given, or let the store forget them.
///
/// # Cancel safety
///
/// Dropping the future of a call leaves both queues, and releases `old` if it was held already.
///
/// # Examples
///
/// ```no_run
/// # fn example(session: zookeeper_recipes::Session, old: std::sync::Arc<dyn zookeeper_recipes::DistributedLock>)
/// # -> Result<std::sync::Arc<dyn zookeeper_recipes::DistributedLock>, zookeeper_recipes::Error> {
/// use std::sync::Arc;
///
/// use zookeeper_recipes::{Both, DistributedLock, Mutex, Options};
///
/// let options = Options::new().with_token_epoch(1);
/// let new = Arc::new(Mutex::with_options(&session, "/locks/billing", options)?);
/// let lock: Arc<dyn DistributedLock> = Arc::new(Both::new(old, new));
/// # Ok(lock)
/// # }
/// ```
#[derive(Clone)]
pub struct Both {
    old: Arc<dyn DistributedLock>,
    new: Arc<dyn DistributedLock>,
}

impl Both {
    /// Joins two locks. `old` is acquired first.
    #[must_use]
    pub fn new(old: Arc<dyn DistributedLock>, new: Arc<dyn DistributedLock>) -> Self {
        Self { old, new }
    }

    /// The lock that a contender contends for.
    fn of(&self, contender: &Contender) -> &dyn DistributedLock {
        if contender.path() == self.new.path() { &*self.new } else { &*self.old }
    }
}

impl fmt::Debug for Both {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Both").field("old", &self.old.path()).field("new", &self.new.path()).finish()
    }
}

/// A hold of both locks. The fields are dropped in their order.
#[derive(Debug)]
struct BothGuard {
    new: Box<dyn LockGuard>,
    old: Box<dyn LockGuard>,
}

/// Waits for the second lock while the first is held. `None`: the first was lost, so begin again.
async fn second<T>(old: &dyn LockGuard, new: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let acquired = tokio::select! {
        biased;
        _ = old.lost() => None,
        acquired = new => Some(acquired?),
    };
    Ok(acquired.filter(|_| !old.state().has_ended()))
}

fn both(old: Box<dyn LockGuard>, new: Box<dyn LockGuard>) -> Box<dyn LockGuard> {
    Box::new(BothGuard { new, old })
}

#[async_trait]
impl DistributedLock for Both {
    async fn lock(&self) -> Result<Box<dyn LockGuard>> {
        loop {
            let old = self.old.lock().await?;
            if let Some(new) = second(&*old, self.new.lock()).await? {
                return Ok(both(old, new));
            }
        }
    }

    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>> {
        loop {
            let Some(old) = self.old.try_lock().await? else { return Ok(None) };
            if let Some(new) = second(&*old, self.new.try_lock()).await? {
                return Ok(new.map(|new| both(old, new)));
            }
        }
    }

    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        let began = Instant::now();
        loop {
            let Some(old) = self.old.try_lock_for(limit.saturating_sub(began.elapsed())).await? else {
                return Ok(None);
            };
            let rest = limit.saturating_sub(began.elapsed());
            if let Some(new) = second(&*old, self.new.try_lock_for(rest)).await? {
                return Ok(new.map(|new| both(old, new)));
            }
        }
    }

    fn path(&self) -> &str {
        self.new.path()
    }

    async fn contenders(&self) -> Result<Vec<Contender>> {
        Ok([self.old.contenders().await?, self.new.contenders().await?].concat())
    }

    async fn revoke(&self, contender: &Contender) -> Result<bool> {
        self.of(contender).revoke(contender).await
    }

    async fn break_lock(&self, contender: &Contender) -> Result<bool> {
        self.of(contender).break_lock(contender).await
    }
}

#[async_trait]
impl LockGuard for BothGuard {
    fn fencing_token(&self) -> FencingToken {
        self.new.fencing_token()
    }

    fn state(&self) -> HoldState {
        match (self.new.state(), self.old.state()) {
            (ended, _) | (_, ended) if ended.has_ended() => ended,
            (HoldState::Held, old) => old,
            (new, _) => new,
        }
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        select(self.new.lost(), self.old.lost()).map(|lost| lost.factor_first().0).boxed()
    }

    async fn release(self: Box<Self>) -> Result<()> {
        let released = self.new.release().await;
        self.old.release().await.and(released)
    }

    fn path(&self) -> &str {
        self.new.path()
    }

    fn valid_for(&self) -> Duration {
        self.new.valid_for().min(self.old.valid_for())
    }

    fn progress(&self) {
        self.new.progress();
        self.old.progress();
    }

    fn revoke_requested(&self) -> BoxFuture<'static, ()> {
        select(self.new.revoke_requested(), self.old.revoke_requested()).map(drop).boxed()
    }
}
