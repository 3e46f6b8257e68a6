//! Owns the traits for services that work with any lock: one with a path, one with several, or one without ZooKeeper.

use std::fmt::Debug;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::contender::Contender;
use crate::election::Leadership;
use crate::error::{Error, Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::{HoldState, run_until};
use crate::multi_lock::{MultiLock, MultiLockGuard};
use crate::mutex::{Mutex, MutexGuard};
use crate::reentrant::ReentrantMutexGuard;
use crate::rwlock::{RwLockReadGuard, RwLockWriteGuard};
use crate::semaphore::SemaphorePermit;

/// A lock that one holder at a time can hold. Object safe: keep an `Arc<dyn DistributedLock>`.
///
/// Implemented by [`Mutex`](crate::Mutex). [`MultiLock::exclusive`](crate::MultiLock::exclusive) returns one; a
/// [`MultiLock`](crate::MultiLock) itself may have members that are only read, and then has several holders at a time.
/// Methods that your own lock can do without have default bodies. To implement the trait, depend on `async-trait` (0.1),
/// and on `futures-util` (0.3) for the `BoxFuture` that methods of [`LockGuard`] return.
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
///         Ok(true)
///     }
/// }
/// ```
#[async_trait]
pub trait DistributedLock: Send + Sync {
    /// Waits for the lock, for as long as it takes. See [`Mutex::lock`](crate::Mutex::lock).
    async fn lock(&self) -> Result<Box<dyn LockGuard>>;

    /// Acquires the lock without waiting for others. See [`Mutex::try_lock`](crate::Mutex::try_lock).
    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>>;

    /// Waits for the lock for at most `limit`. See [`Mutex::try_lock_for`](crate::Mutex::try_lock_for), also for how to
    /// react to `None` and [`Error::Unavailable`].
    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>>;

    /// Returns the lock path, or the name of a lock without a path.
    fn path(&self) -> &str;

    /// Lists holders and waiters; by default none. See [`Mutex::contenders`](crate::Mutex::contenders).
    async fn contenders(&self) -> Result<Vec<Contender>> {
        Ok(Vec::new())
    }

    /// Asks a holder to release; by default returns false. See [`Mutex::revoke`](crate::Mutex::revoke).
    async fn revoke(&self, _contender: &Contender) -> Result<bool> {
        Ok(false)
    }

    /// Deletes the node of a contender; by default returns false. See [`Mutex::break_lock`](crate::Mutex::break_lock).
    async fn break_lock(&self, _contender: &Contender) -> Result<bool> {
        Ok(false)
    }
}

/// A held lock. Implemented by the guards of all async recipes except [`SharePermit`](crate::SharePermit). Dropping it
/// releases the lock in the background.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::{Error, LockGuard};
///
/// async fn work(guard: Box<dyn LockGuard>) -> Result<(), Error> {
///     guard.run_until_lost(async { /* with guard.fencing_token() */ }).await?;
///     Ok(())
/// }
/// ```
#[async_trait]
pub trait LockGuard: Debug + Send + Sync {
    /// Returns the token of this hold. See [`Hold::fencing_token`](crate::HoldMonitor::fencing_token).
    fn fencing_token(&self) -> FencingToken;

    /// Returns the state of the hold right now. See [`Hold::state`](crate::HoldMonitor::state).
    fn state(&self) -> HoldState;

    /// Resolves when the lock is lost. See [`Hold::lost`](crate::HoldMonitor::lost).
    fn lost(&self) -> BoxFuture<'static, Loss>;

    /// Releases the lock and waits for the confirmation, for at most one session timeout. When the work is done, it is
    /// enough to drop the guard. See [`MutexGuard::release`](crate::MutexGuard::release).
    async fn release(self: Box<Self>) -> Result<()>;

    /// Returns the path of the lock.
    fn path(&self) -> &str;

    /// Returns how long the hold stays trusted if no server answers; zero when it is lost. See
    /// [`Hold::valid_for`](crate::HoldMonitor::valid_for).
    fn valid_for(&self) -> Duration;

    /// Reports that the work under the lock moves; by default does nothing. See
    /// [`HoldMonitor::progress`](crate::HoldMonitor::progress).
    fn progress(&self) {}

    /// Resolves when someone asks the holder to release; by default never. See
    /// [`Hold::revoke_requested`](crate::HoldMonitor::revoke_requested).
    fn revoke_requested(&self) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
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
    /// The [`Loss`], if the lock is lost before `future` is done; `future` is then dropped.
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
        run_until(|| self.state().loss(), self.lost(), future).await
    }
}

/// A multi-lock in which every member has one holder at a time.
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
                Ok($of.try_lock().await?.map(boxed))
            }

            async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
                let $this = self;
                Ok($of.try_lock_for(limit).await?.map(boxed))
            }

            fn path(&self) -> &str {
                let $this = self;
                $of.path()
            }

            async fn contenders(&self) -> Result<Vec<Contender>> {
                let $this = self;
                $of.contenders().await
            }

            async fn revoke(&self, contender: &Contender) -> Result<bool> {
                let $this = self;
                $of.revoke(contender).await
            }

            async fn break_lock(&self, contender: &Contender) -> Result<bool> {
                let $this = self;
                $of.break_lock(contender).await
            }
        }
    )*};
}

locks! {
    Mutex: |this| this;
    Exclusive: |this| this.0;
}

fn boxed<G: LockGuard + 'static>(guard: G) -> Box<dyn LockGuard> {
    Box::new(guard)
}

impl MultiLock {
    /// Returns this lock as a [`DistributedLock`], which one holder at a time can hold.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if one of the members is only [read](crate::multi_lock::MultiLockBuilder::read): several
    /// holders may read it at the same time.
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

            fn path(&self) -> &str {
                (**self).path()
            }

            fn valid_for(&self) -> Duration {
                (**self).valid_for()
            }

            fn progress(&self) {
                (**self).progress();
            }

            fn revoke_requested(&self) -> BoxFuture<'static, ()> {
                (**self).revoke_requested().boxed()
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
