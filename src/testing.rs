//! Owns [`LocalLock`]: an in-process lock for the tests of services that are written against the traits.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::distributed_lock::{DistributedLock, LockGuard, LockProvider};
use crate::error::{Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::HoldState;
use crate::path::LockPath;

/// A fair lock within one process, whose holder can be made to lose it. Needs no server.
///
/// Clones are handles of the same lock.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use zookeeper_recipes::testing::LocalLock;
/// use zookeeper_recipes::{DistributedLock, HoldState, Loss};
///
/// let lock = LocalLock::new();
/// let guard = lock.lock().await?;
/// lock.lose();
/// assert_eq!(guard.state(), HoldState::Lost(Loss::Expired));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LocalLock {
    turn: Arc<Semaphore>,
    tokens: Arc<AtomicI64>,
    holder: Arc<Mutex<Option<watch::Sender<Stage>>>>,
}

/// Where a hold stands; the permit is the lock itself.
enum Stage {
    Held(#[allow(dead_code, reason = "dropping it gives the lock on")] OwnedSemaphorePermit),
    Lost(Loss),
    Released,
}

impl LocalLock {
    /// Makes a lock that is free.
    #[must_use]
    pub fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), tokens: Arc::default(), holder: Arc::default() }
    }

    /// Takes the lock away from its holder, if there is one, as the end of a session does: the hold reports
    /// [`Loss::Expired`], and the next waiter has the lock.
    pub fn lose(&self) {
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(holder) = holder {
            holder.send_if_modified(|stage| {
                let held = matches!(stage, Stage::Held(_));
                if held {
                    *stage = Stage::Lost(Loss::Expired);
                }
                held
            });
        }
    }

    fn hold(&self, permit: OwnedSemaphorePermit) -> Box<dyn LockGuard> {
        let stage = watch::Sender::new(Stage::Held(permit));
        *self.holder.lock().unwrap_or_else(PoisonError::into_inner) = Some(stage.clone());
        let czxid = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
        let token = FencingToken::try_from(czxid).expect("it counts from 1");
        Box::new(LocalGuard { token, stage })
    }
}

impl Default for LocalLock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLock").field("is_held", &(self.turn.available_permits() == 0)).finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for LocalLock {
    async fn lock(&self) -> Result<Box<dyn LockGuard>> {
        let permit = self.turn.clone().acquire_owned().await.expect("the semaphore is never closed");
        Ok(self.hold(permit))
    }

    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.turn.clone().try_acquire_owned().ok().map(|permit| self.hold(permit)))
    }

    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        if limit.is_zero() {
            return self.try_lock().await;
        }
        tokio::time::timeout(limit, self.lock()).await.ok().transpose()
    }
}

struct LocalGuard {
    token: FencingToken,
    stage: watch::Sender<Stage>,
}

impl LocalGuard {
    fn loss(&self) -> Option<Loss> {
        match *self.stage.borrow() {
            Stage::Lost(loss) => Some(loss),
            Stage::Held(_) | Stage::Released => None,
        }
    }
}

#[async_trait]
impl LockGuard for LocalGuard {
    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn state(&self) -> HoldState {
        self.loss().map_or(HoldState::Held, HoldState::Lost)
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        let mut stage = self.stage.subscribe();
        async move {
            let _ = stage.wait_for(|stage| !matches!(stage, Stage::Held(_))).await;
            let loss = match *stage.borrow() {
                Stage::Lost(loss) => Some(loss),
                Stage::Held(_) | Stage::Released => None,
            };
            match loss {
                Some(loss) => loss,
                // It was released, so it cannot be lost any more.
                None => pending().await,
            }
        }
        .boxed()
    }

    async fn release(self: Box<Self>) -> Result<()> {
        match self.loss() {
            Some(loss) => Err(loss.into()),
            None => Ok(()),
        }
    }
}

impl Drop for LocalGuard {
    fn drop(&mut self) {
        self.stage.send_if_modified(|stage| {
            let held = matches!(stage, Stage::Held(_));
            if held {
                *stage = Stage::Released;
            }
            held
        });
    }
}

impl fmt::Debug for LocalGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalGuard").field("token", &self.token).field("state", &self.state()).finish()
    }
}

/// A [`LockProvider`] of [`LocalLock`]s: the same path gives the same lock.
#[derive(Clone, Debug, Default)]
pub struct LocalLocks {
    locks: Arc<Mutex<HashMap<String, LocalLock>>>,
}

impl LocalLocks {
    /// Makes a provider without locks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The lock at `path`, for [`LocalLock::lose`].
    #[must_use]
    pub fn get(&self, path: &str) -> LocalLock {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default().clone()
    }
}

impl LockProvider for LocalLocks {
    fn lock_at(&self, path: &str) -> Result<Arc<dyn DistributedLock>> {
        LockPath::new(path)?;
        Ok(Arc::new(self.get(path)))
    }
}
