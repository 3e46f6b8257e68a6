//! Owns the blocking [`Mutex`] and [`ReentrantMutex`].

use std::time::Duration;

use crate::blocking::{Guard, MutexGuard, ReentrantMutexGuard, Session, Waiting, recipe};
use crate::error::Result;
use crate::options::Options;
use crate::owner::Owner;

recipe! {
    /// A fair lock with one holder at a time, for threads that block: [`Mutex`](crate::Mutex) without async.
    ///
    /// The mutex is not re-entrant: a thread that locks twice waits for itself; see [`ReentrantMutex`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: zookeeper_recipes::blocking::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::blocking::Mutex;
    ///
    /// let mutex = Mutex::new(&session, "/locks/migration-42")?;
    /// let guard = mutex.lock()?;
    /// println!("the migration hands {} to the store", guard.fencing_token());
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    Mutex()
}

impl Mutex {
    /// Joins the queue and blocks this thread until the lock is held, for as long as it takes.
    ///
    /// A lost connection is no error: the waiter keeps its position while the ZooKeeper session lives, and queues again in
    /// the next one. A close or drain of the session wakes the thread. To wait in steps, use [`enqueue`](Self::enqueue).
    pub fn lock(&self) -> Result<MutexGuard> {
        self.held(self.inner.lock())
    }

    /// Acquires the lock without waiting for other contenders. Returns `None` if one was ahead.
    pub fn try_lock(&self) -> Result<Option<MutexGuard>> {
        self.maybe_held(self.inner.try_lock())
    }

    /// Waits for the lock for at most `limit`, all requests included. Returns `None` if another contender was ahead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(mutex: zookeeper_recipes::blocking::Mutex) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// match mutex.try_lock_for(Duration::from_secs(1))? {
    ///     Some(guard) => println!("it is our turn, with token {}", guard.fencing_token()),
    ///     None => println!("another instance is at it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<MutexGuard>> {
        self.maybe_held(self.inner.try_lock_for(limit))
    }

    /// Joins the queue, and returns a [`Waiting`], on which a thread can wait in steps.
    pub fn enqueue(&self) -> Result<Waiting<crate::mutex::MutexGuard>> {
        Waiting::join(&self.runtime, self.inner.enqueue())
    }
}

recipe! {
    /// A fair lock that its [`Owner`] may lock again, for threads that block: [`ReentrantMutex`](crate::ReentrantMutex)
    /// without async.
    ///
    /// The owner is a value, and not the thread. Pass the same owner to methods that call each other.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: zookeeper_recipes::blocking::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::Owner;
    /// use zookeeper_recipes::blocking::ReentrantMutex;
    ///
    /// let (mutex, owner) = (ReentrantMutex::new(&session, "/locks/ledger")?, Owner::new());
    /// let outer = mutex.lock(&owner)?;
    /// // Without a request.
    /// let inner = mutex.lock(&owner)?;
    /// drop(inner);
    /// drop(outer); // The last one releases the lock.
    /// # Ok(())
    /// # }
    /// ```
    ReentrantMutex()
}

impl ReentrantMutex {
    /// Waits for the lock, for as long as it takes. Returns at once if `owner` holds the lock.
    pub fn lock(&self, owner: &Owner) -> Result<ReentrantMutexGuard> {
        self.held(self.inner.lock(owner))
    }

    /// Acquires the lock without waiting for other contenders. Returns `None` if one was ahead of `owner`, or while
    /// another call of `owner` is acquiring the lock.
    pub fn try_lock(&self, owner: &Owner) -> Result<Option<ReentrantMutexGuard>> {
        self.maybe_held(self.inner.try_lock(owner))
    }

    /// Waits for the lock for at most `limit`. Returns `None` if another contender was ahead.
    pub fn try_lock_for(&self, owner: &Owner, limit: Duration) -> Result<Option<ReentrantMutexGuard>> {
        self.maybe_held(self.inner.try_lock_for(owner, limit))
    }
}
