//! Owns the traits that services are written against, so that a test double can stand in for the servers.
//!
//! They have everything that the recipes have. Methods that a double can do without have default bodies, so new methods
//! break no double.

mod recipes;

use std::fmt::Debug;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::contender::Contender;
use crate::election::{Candidate, Term, Won};
use crate::error::{Error, Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::{HoldMonitor, HoldState, run_until};
use crate::owner::Owner;

/// A lock that one holder at a time can hold. Object safe: keep an `Arc<dyn DistributedLock>`.
///
/// Implemented by [`Mutex`](crate::Mutex) and by test doubles. [`MultiLock::exclusive`](crate::MultiLock::exclusive)
/// returns one; a [`MultiLock`](crate::MultiLock) itself may have members that are only read, and then has several
/// holders at a time.
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

    /// Waits for the lock for at most `limit`. See [`Mutex::try_lock_for`](crate::Mutex::try_lock_for), also for what
    /// to do about `None` and about [`Error::Unavailable`].
    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>>;

    /// The lock path; by default empty.
    fn path(&self) -> &str {
        ""
    }

    /// Lists holders and waiters; by default none. See [`Mutex::contenders`](crate::Mutex::contenders).
    async fn contenders(&self) -> Result<Vec<Contender>> {
        Ok(Vec::new())
    }

    /// Asks a holder to release; by default there is none. See [`Mutex::revoke`](crate::Mutex::revoke).
    async fn revoke(&self, _contender: &Contender) -> Result<bool> {
        Ok(false)
    }

    /// Deletes the node of a contender; by default there is none. See [`Mutex::break_lock`](crate::Mutex::break_lock).
    async fn break_lock(&self, _contender: &Contender) -> Result<bool> {
        Ok(false)
    }
}

/// A held lock. Dropping it releases the lock in the background.
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
    /// The token of this hold. See [`Hold::fencing_token`](crate::Hold::fencing_token).
    fn fencing_token(&self) -> FencingToken;

    /// The state of the hold right now. See [`Hold::state`](crate::Hold::state).
    fn state(&self) -> HoldState;

    /// Resolves when the lock is lost. See [`Hold::lost`](crate::Hold::lost).
    fn lost(&self) -> BoxFuture<'static, Loss>;

    /// Releases the lock and waits until that is confirmed, for one session timeout at most. To end work that is done, drop
    /// the guard. See [`MutexGuard::release`](crate::MutexGuard::release).
    async fn release(self: Box<Self>) -> Result<()>;

    /// The lock path; by default empty.
    fn path(&self) -> &str {
        ""
    }

    /// How long the hold is trusted from now on. The default is without end while it is held.
    fn valid_for(&self) -> Duration {
        if self.state() == HoldState::Held { Duration::MAX } else { Duration::ZERO }
    }

    /// A view of the hold that does not hold it. The default one shows the state of the moment when it was made, and a loss
    /// that comes later, but no release.
    fn monitor(&self) -> HoldMonitor {
        HoldMonitor::of_double(self.path(), self.fencing_token(), self.state(), self.lost())
    }

    /// Resolves when someone asks the holder to release; by default never. See
    /// [`Hold::revoke_requested`](crate::Hold::revoke_requested).
    fn revoke_requested(&self) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

macro_rules! run_until_lost {
    ($($guard:ident),*) => {$(
        impl dyn $guard + '_ {
            /// Runs `future` for as long as the lock is held. See [`Hold::run_until_lost`](crate::Hold::run_until_lost).
            ///
            /// # Cancel safety
            ///
            /// Dropping this future drops `future`. The guard stays.
            ///
            /// # Errors
            ///
            /// The [`Loss`], if it comes before `future` is done; `future` is dropped.
            pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
                run_until(|| self.state().loss(), self.lost(), future).await
            }
        }
    )*};
}

run_until_lost!(LockGuard, WriteGuard, LeaderGuard);

/// A lock that one writer can hold, or any number of readers. Implemented by [`RwLock`](crate::RwLock) and by test
/// doubles.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::{DistributedRwLock, Error};
///
/// async fn refresh(prices: &dyn DistributedRwLock) -> Result<(), Error> {
///     let writing = prices.write().await?;
///     let _reading = writing.downgrade().await.map_err(|(_guard, error)| error)?;
///     Ok(())
/// }
/// ```
#[async_trait]
pub trait DistributedRwLock: Send + Sync {
    /// Waits to read, for as long as it takes.
    async fn read(&self) -> Result<Box<dyn LockGuard>>;

    /// Reads without waiting for others.
    async fn try_read(&self) -> Result<Option<Box<dyn LockGuard>>>;

    /// Waits to read for at most `limit`.
    async fn try_read_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>>;

    /// Waits to write, for as long as it takes.
    async fn write(&self) -> Result<Box<dyn WriteGuard>>;

    /// Writes without waiting for others.
    async fn try_write(&self) -> Result<Option<Box<dyn WriteGuard>>>;

    /// Waits to write for at most `limit`.
    async fn try_write_for(&self, limit: Duration) -> Result<Option<Box<dyn WriteGuard>>>;
}

/// A [`DistributedRwLock`] held for writing.
#[async_trait]
pub trait WriteGuard: LockGuard {
    /// Turns the writer into a reader; if that fails, returns the guard. See
    /// [`RwLockWriteGuard::downgrade`](crate::RwLockWriteGuard::downgrade).
    async fn downgrade(self: Box<Self>) -> Result<Box<dyn LockGuard>, (Box<dyn WriteGuard>, Error)>;
}

/// A number of permits. Implemented by [`Semaphore`](crate::Semaphore) and by test doubles.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::{DistributedSemaphore, Error};
///
/// async fn call(api: &dyn DistributedSemaphore) -> Result<(), Error> {
///     let _permit = api.acquire(1).await?;
///     Ok(())
/// }
/// ```
#[async_trait]
pub trait DistributedSemaphore: Send + Sync {
    /// Waits for `count` permits, all or none, for as long as it takes.
    async fn acquire(&self, count: u32) -> Result<Box<dyn LockGuard>>;

    /// Acquires `count` permits without waiting for others.
    async fn try_acquire(&self, count: u32) -> Result<Option<Box<dyn LockGuard>>>;

    /// Waits for `count` permits for at most `limit`.
    async fn try_acquire_for(&self, count: u32, limit: Duration) -> Result<Option<Box<dyn LockGuard>>>;
}

/// A lock that its [`Owner`] may lock again. Implemented by [`ReentrantMutex`](crate::ReentrantMutex) and by test
/// doubles.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::{DistributedReentrantLock, Error, Owner};
///
/// async fn book(ledger: &dyn DistributedReentrantLock, owner: &Owner) -> Result<(), Error> {
///     let _guard = ledger.lock(owner).await?;
///     Ok(())
/// }
/// ```
#[async_trait]
pub trait DistributedReentrantLock: Send + Sync {
    /// Waits for the lock, for as long as it takes; at once if `owner` holds it.
    async fn lock(&self, owner: &Owner) -> Result<Box<dyn LockGuard>>;

    /// Acquires the lock without waiting for others.
    async fn try_lock(&self, owner: &Owner) -> Result<Option<Box<dyn LockGuard>>>;

    /// Waits for the lock for at most `limit`.
    async fn try_lock_for(&self, owner: &Owner, limit: Duration) -> Result<Option<Box<dyn LockGuard>>>;
}

/// One leader among candidates. Implemented by [`Election`](crate::Election) and by test doubles.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use zookeeper_recipes::{Candidate, DistributedElection};
///
/// fn start(election: &Arc<dyn DistributedElection>) -> Candidate {
///     election.run(|term| async move { println!("leads, with token {}", term.fencing_token()) })
/// }
/// ```
#[async_trait]
pub trait DistributedElection: Send + Sync {
    /// Waits for leadership, for as long as it takes.
    async fn campaign(&self) -> Result<Box<dyn LeaderGuard>>;

    /// Becomes the leader without waiting for others.
    async fn try_campaign(&self) -> Result<Option<Box<dyn LeaderGuard>>>;

    /// Waits for leadership for at most `limit`.
    async fn try_campaign_for(&self, limit: Duration) -> Result<Option<Box<dyn LeaderGuard>>>;

    /// A view of the present leadership of this value. See [`Election::current_term`](crate::Election::current_term).
    fn current_term(&self) -> Option<HoldMonitor>;

    /// The present leader; by default not known. Each call asks the servers, for one session timeout at most. See
    /// [`Election::leader`](crate::Election::leader).
    async fn leader(&self) -> Result<Option<Contender>> {
        Ok(None)
    }
}

/// The leadership of a [`DistributedElection`]. Its release resigns.
#[async_trait]
pub trait LeaderGuard: LockGuard {
    /// Shows observers `data` instead of the identifier. See
    /// [`Leadership::proclaim`](crate::Leadership::proclaim).
    async fn proclaim(&self, data: Vec<u8>) -> Result<()>;
}

impl dyn DistributedElection {
    /// Runs a candidate in the background, term after term. See [`Election::run`](crate::Election::run).
    ///
    /// The candidate does not know how many others are ahead: its [`Standing`](crate::Standing) is `Waiting { ahead: None }`.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn run<F, R>(self: &Arc<Self>, term: F) -> Candidate
    where
        F: FnMut(Term) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let election = self.clone();
        let campaign = move |_| {
            let election = election.clone();
            let won = async move {
                let leadership = election.campaign().await?;
                Ok(Won::new(leadership.monitor(), leadership.release()))
            };
            won.boxed()
        };
        Candidate::campaigning(Box::new(campaign), term)
    }
}

/// Creates locks by path. Implemented by [`Session`](crate::Session) and by test doubles, and by an `Arc` of one.
///
/// None of these calls sends anything. The options are those of the session, which
/// [`Session::with_lock_options`](crate::Session::with_lock_options) sets before it is handed over.
///
/// # Errors
///
/// [`Error::InvalidInput`] if a path cannot be a lock path, or the provider has no such locks, as is the default for
/// all but [`lock_at`](Self::lock_at).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use zookeeper_recipes::{Error, LockProvider};
///
/// struct Orders {
///     locks: Arc<dyn LockProvider>,
/// }
///
/// impl Orders {
///     async fn ship(&self, order: u64) -> Result<bool, Error> {
///         let Some(guard) = self.locks.lock_at(&format!("/locks/orders/{order}"))?.try_lock().await? else {
///             return Ok(false);
///         };
///         guard.run_until_lost(async { /* with guard.fencing_token() */ }).await?;
///         Ok(true)
///     }
/// }
/// ```
pub trait LockProvider: Send + Sync {
    /// The lock at `path`.
    fn lock_at(&self, path: &str) -> Result<Arc<dyn DistributedLock>>;

    /// The read-write lock at `path`.
    fn rw_lock_at(&self, _path: &str) -> Result<Arc<dyn DistributedRwLock>> {
        Err(missing("read-write locks"))
    }

    /// The semaphore with `permits` permits at `path`.
    fn semaphore_at(&self, _path: &str, _permits: u32) -> Result<Arc<dyn DistributedSemaphore>> {
        Err(missing("semaphores"))
    }

    /// The re-entrant lock at `path`.
    fn reentrant_lock_at(&self, _path: &str) -> Result<Arc<dyn DistributedReentrantLock>> {
        Err(missing("re-entrant locks"))
    }

    /// The locks at all these paths as one.
    fn multi_lock_of(&self, _paths: &[&str]) -> Result<Arc<dyn DistributedLock>> {
        Err(missing("locks of several paths"))
    }

    /// The election at `path`. Keep the value: its [`current_term`](DistributedElection::current_term) is the term that
    /// was won through it.
    fn election_at(&self, _path: &str) -> Result<Arc<dyn DistributedElection>> {
        Err(missing("elections"))
    }
}

fn missing(what: &str) -> Error {
    Error::invalid("provider", format!("this LockProvider has no {what}; implement the method that creates them"))
}
