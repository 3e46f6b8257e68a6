//! Owns the traits that services are written against, so that a fake can stand in for a lock.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::election::Leadership;
use crate::error::{Error, Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::{HoldState, run_until};
use crate::multi_lock::{MultiLock, MultiLockGuard};
use crate::mutex::{Mutex, MutexGuard};
use crate::reentrant::ReentrantMutexGuard;
use crate::rwlock::{RwLockReadGuard, RwLockWriteGuard};
use crate::semaphore::SemaphorePermit;
use crate::session::Session;

/// A lock that one holder at a time can hold. Object safe: keep an `Arc<dyn DistributedLock>`.
///
/// Implemented by [`Mutex`] and by test doubles. [`MultiLock::exclusive`] returns one; a [`MultiLock`] itself may have
/// members that are only read, and then has several holders at a time.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use zookeeper_recipes::{DistributedLock, Error};
///
/// struct Billing {
///     lock: Arc<dyn DistributedLock>,
/// }
///
/// impl Billing {
///     async fn run(&self) -> Result<bool, Error> {
///         let Some(guard) = self.lock.try_lock().await? else {
///             return Ok(false); // another instance is at it
///         };
///         guard.run_until_lost(async { /* send the bills, with guard.fencing_token() */ }).await?;
///         guard.release().await?;
///         Ok(true)
///     }
/// }
/// ```
#[async_trait]
pub trait DistributedLock: Send + Sync {
    /// Waits for the lock, for as long as it takes. See [`Mutex::lock`].
    async fn lock(&self) -> Result<Box<dyn LockGuard>>;

    /// Takes the lock if it is free. See [`Mutex::try_lock`].
    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>>;

    /// Waits for the lock for at most `limit`. See [`Mutex::try_lock_for`], also for what to do about `None` and about
    /// [`Error::Unavailable`](crate::Error::Unavailable).
    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>>;
}

/// A held [`DistributedLock`]. Dropping it releases the lock in the background.
#[async_trait]
pub trait LockGuard: Debug + Send + Sync {
    /// The token of this hold. See [`Hold::fencing_token`](crate::Hold::fencing_token).
    fn fencing_token(&self) -> FencingToken;

    /// The state of the hold right now. See [`Hold::state`](crate::Hold::state).
    fn state(&self) -> HoldState;

    /// Resolves when the lock is lost. See [`Hold::lost`](crate::Hold::lost).
    fn lost(&self) -> BoxFuture<'static, Loss>;

    /// Releases the lock and waits until that is confirmed. See [`MutexGuard::release`].
    async fn release(self: Box<Self>) -> Result<()>;
}

impl dyn LockGuard + '_ {
    /// Runs `future` for as long as the lock is held. See [`Hold::run_until_lost`](crate::Hold::run_until_lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops `future`. The guard stays.
    ///
    /// # Errors
    ///
    /// The [`Loss`], if it comes before `future` is done; `future` is dropped.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
        run_until(|| self.state().loss(), self.lost(), future).await
    }
}

/// What locks are had from by their path: a [`Session`], or a fake.
pub trait LockProvider: Send + Sync {
    /// The lock at `path`. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `path` cannot be a lock path.
    fn lock_at(&self, path: &str) -> Result<Arc<dyn DistributedLock>>;
}

impl LockProvider for Session {
    fn lock_at(&self, path: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(Arc::new(Mutex::new(self, path)?))
    }
}

/// A multi-lock without shared members.
struct Exclusive(MultiLock);

macro_rules! locks {
    ($($lock:ty: |$this:ident| $of:expr;)*) => {$(
        #[async_trait]
        impl DistributedLock for $lock {
            async fn lock(&self) -> Result<Box<dyn LockGuard>> {
                let $this = self;
                Ok(Box::new($of.lock().await?))
            }

            async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>> {
                let $this = self;
                Ok($of.try_lock().await?.map(|guard| Box::new(guard) as _))
            }

            async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
                let $this = self;
                Ok($of.try_lock_for(limit).await?.map(|guard| Box::new(guard) as _))
            }
        }
    )*};
}

locks! {
    Mutex: |this| this;
    Exclusive: |this| this.0;
}

impl MultiLock {
    /// Returns this lock as a [`DistributedLock`], which one holder at a time can hold.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if one of the members is only [read](crate::MultiLockBuilder::read): others may read it at
    /// the same time.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use std::sync::Arc;
    ///
    /// use zookeeper_recipes::{DistributedLock, MultiLock};
    ///
    /// let accounts: Arc<dyn DistributedLock> =
    ///     MultiLock::new(&session, ["/accounts/alice", "/accounts/bob"])?.exclusive()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exclusive(&self) -> Result<Arc<dyn DistributedLock>> {
        if let Some(path) = self.shared_member() {
            let reason = format!("{path} is only read, which several may do at a time; lock it or write it");
            return Err(Error::invalid("paths", reason));
        }
        Ok(Arc::new(Exclusive(self.clone())))
    }
}

macro_rules! guards {
    ($($guard:ty: $release:ident),*) => {$(
        #[async_trait]
        impl LockGuard for $guard {
            fn fencing_token(&self) -> FencingToken {
                (**self).fencing_token()
            }

            fn state(&self) -> HoldState {
                (**self).state()
            }

            fn lost(&self) -> BoxFuture<'static, Loss> {
                (**self).lost().boxed()
            }

            async fn release(self: Box<Self>) -> Result<()> {
                Self::$release(*self).await
            }
        }
    )*};
}

guards! {
    MutexGuard: release,
    ReentrantMutexGuard: release,
    RwLockReadGuard: release,
    RwLockWriteGuard: release,
    SemaphorePermit: release,
    MultiLockGuard: release,
    Leadership: resign
}
