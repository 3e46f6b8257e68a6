//! Owns [`ReentrantMutex`]: a mutex that its `Owner` may lock again.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::contender::for_operators;
use crate::error::Result;
use crate::hold::Hold;
use crate::lock::Lock;
use crate::options::Options;
use crate::owner::{Owned, Owner};
use crate::queue::Kind;
use crate::session::Session;

/// A fair lock that its owner may lock again while holding it. On the servers it is a [`Mutex`](crate::Mutex), and
/// compatible with Curator's `InterProcessMutex`.
///
/// Ownership is an explicit [`Owner`] value, not the current task: two branches of a `join!` share one task.
/// Two handles of one path in one session recognise the same owners.
///
/// # Cancel safety
///
/// Dropping the future of a call that acquires leaves the queue. The node is deleted in the background. See
/// [Futures](crate#futures).
///
/// # Errors
///
/// Every call that acquires fails as those of a [`Mutex`](crate::Mutex#errors) do. Such a call also fails with
/// [`Error::Lost`](crate::Error::Lost) if the owner's hold was lost and the owner still has guards: drop these first.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::{Owner, ReentrantMutex};
///
/// let mutex = ReentrantMutex::new(&session, "/locks/ledger")?;
/// let owner = Owner::new();
/// let outer = mutex.lock(&owner).await?;
/// // Costs no request, and has the same token.
/// let inner = mutex.lock(&owner).await?;
/// assert_eq!(inner.fencing_token(), outer.fencing_token());
/// drop(inner);
/// drop(outer); // The last one releases the lock.
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessMutex")]
#[derive(Clone)]
pub struct ReentrantMutex {
    lock: Lock,
}

impl ReentrantMutex {
    /// Creates a handle of the lock at `path`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `path` cannot be a lock path.
    pub fn new(session: &Session, path: &str) -> Result<Self> {
        Self::with_options(session, path, Options::new())
    }

    /// Creates a handle of the lock at `path` with its own options, which override the session's. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `path` or `options` cannot be used.
    pub fn with_options(session: &Session, path: &str, options: Options) -> Result<Self> {
        Ok(Self { lock: Lock::of_one(session, path, Kind::Lock, &options)? })
    }

    /// Waits for the lock, for as long as it takes. If `owner` holds the lock already, the call costs no request. If
    /// another call of `owner` is acquiring the lock, this call waits for the other call, and then shares its hold. If
    /// the other call has failed or was dropped, or its guard is gone by then, this call joins the queue.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use zookeeper_recipes::{Error, Owner, ReentrantMutex};
    ///
    /// async fn transfer(mutex: &ReentrantMutex, owner: &Owner) -> Result<(), Error> {
    ///     let _outer = mutex.lock(owner).await?;
    ///     book(mutex, owner).await
    /// }
    ///
    /// async fn book(mutex: &ReentrantMutex, owner: &Owner) -> Result<(), Error> {
    ///     // Costs no request if the caller holds the lock.
    ///     let _inner = mutex.lock(owner).await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "acquire")]
    pub async fn lock(&self, owner: &Owner) -> Result<ReentrantMutexGuard> {
        self.wait(&owner.of(&self.lock)).await
    }

    /// Acquires the lock without waiting for others: `None` if another contender was ahead of `owner`, or while another call
    /// of `owner` is acquiring the lock.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: zookeeper_recipes::ReentrantMutex) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::Owner;
    ///
    /// let owner = Owner::new();
    /// if let Some(guard) = mutex.try_lock(&owner).await? {
    ///     println!("it is our turn, with token {}", guard.fencing_token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock(&self, owner: &Owner) -> Result<Option<ReentrantMutexGuard>> {
        self.share_or(owner, self.lock.try_acquire()).await
    }

    /// Locks as [`lock`](Self::lock) does, for at most `limit`: `None` if another contender was ahead.
    ///
    /// A limit of zero is a [`try_lock`](Self::try_lock) that does not wait for a connection. A limit too long for a clock
    /// is no limit.
    ///
    /// `None`, a limit that was too short, and unreachable servers need different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: zookeeper_recipes::ReentrantMutex) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// use zookeeper_recipes::Owner;
    ///
    /// let guard = mutex.try_lock_for(&Owner::new(), Duration::from_secs(1)).await?;
    /// println!("{}", if guard.is_some() { "locked" } else { "contended" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock_for(&self, owner: &Owner, limit: Duration) -> Result<Option<ReentrantMutexGuard>> {
        if limit.is_zero() {
            return self.share_or(owner, self.lock.try_acquire_for(limit)).await;
        }
        let owned = owner.of(&self.lock);
        match tokio::time::timeout(limit, self.wait(&owned)).await {
            Ok(guard) => guard.map(Some),
            Err(_) if owned.progress.has_waited() => Ok(None),
            Err(_) => Err(self.lock.session.unavailable(limit)),
        }
    }

    async fn wait(&self, owned: &Owned) -> Result<ReentrantMutexGuard> {
        if let Some(hold) = owned.hold() {
            return again(hold);
        }
        let _acquiring = owned.acquiring.lock().await;
        if let Some(hold) = owned.hold() {
            return again(hold);
        }
        owned.progress.begins();
        let hold = self.lock.acquire_with(Some(&owned.progress), true).await?;
        Ok(ReentrantMutexGuard(owned.held(hold)))
    }

    /// Shares the owner's hold, or else awaits `acquiring`. Returns `None` while another call of the owner is acquiring the
    /// lock.
    async fn share_or(
        &self,
        owner: &Owner,
        acquiring: impl Future<Output = Result<Option<Hold>>>,
    ) -> Result<Option<ReentrantMutexGuard>> {
        let owned = owner.of(&self.lock);
        if let Some(hold) = owned.hold() {
            return again(hold).map(Some);
        }
        let Ok(_acquiring) = owned.acquiring.try_lock() else { return Ok(None) };
        if let Some(hold) = owned.hold() {
            return again(hold).map(Some);
        }
        owned.progress.begins();
        let hold = acquiring.await?;
        Ok(hold.map(|hold| ReentrantMutexGuard(owned.held(hold))))
    }
}

/// Returns another guard of a hold, or the loss if the hold was lost.
fn again(hold: Arc<Hold>) -> Result<ReentrantMutexGuard> {
    match hold.state().loss() {
        Some(loss) => Err(loss.into()),
        None => Ok(ReentrantMutexGuard(hold)),
    }
}

for_operators!(ReentrantMutex: |mutex| &mutex.lock);

/// One of the guards of a held [`ReentrantMutex`]. When the last of them is dropped, the lock is released in the
/// background.
///
/// It dereferences to a [`Hold`], which all guards of one owner share.
#[derive(Debug)]
#[clippy::has_significant_drop]
#[must_use = "dropping the last guard releases the lock"]
pub struct ReentrantMutexGuard(Arc<Hold>);

impl ReentrantMutexGuard {
    /// Drops this guard. If it is the last guard, the call releases the lock, and waits until the servers have confirmed
    /// the release.
    ///
    /// # Cancel safety
    ///
    /// If this was the last guard, dropping the future releases the lock in the background.
    ///
    /// # Errors
    ///
    /// As [`MutexGuard::release`](crate::MutexGuard::release). Every guard reports a lost lock.
    pub async fn release(self) -> Result<()> {
        if let Some(loss) = self.0.state().loss() {
            return Err(loss.into());
        }
        match Arc::into_inner(self.0) {
            Some(hold) => hold.release().await,
            None => Ok(()),
        }
    }
}

impl Deref for ReentrantMutexGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.0
    }
}
