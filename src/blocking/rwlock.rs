//! Owns the blocking [`RwLock`].

use std::time::Duration;

use crate::blocking::{Guard, RwLockReadGuard, RwLockWriteGuard, Session, Waiting, recipe};
use crate::error::Result;
use crate::options::Options;

recipe! {
    /// A fair lock for one writer, or any number of readers, for threads that block: [`RwLock`](crate::RwLock) without async.
    ///
    /// A thread that holds the lock to read and then waits to write waits for itself, forever.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: zookeeper_recipes::blocking::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::blocking::RwLock;
    ///
    /// let prices = RwLock::new(&session, "/locks/prices")?;
    /// let writing = prices.write()?;
    /// drop(writing);
    /// let reading = prices.read()?;
    /// // Other sessions may read, and none writes.
    /// drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    RwLock()
}

impl RwLock {
    /// Joins the queue and waits to read, for as long as it takes, until no writer is ahead.
    pub fn read(&self) -> Result<RwLockReadGuard> {
        self.held(self.inner.read())
    }

    /// Joins the queue and waits to write, for as long as it takes, until no contender is ahead.
    pub fn write(&self) -> Result<RwLockWriteGuard> {
        self.held(self.inner.write())
    }

    /// Acquires the lock to read, without waiting for other contenders. Returns `None` if a writer was ahead.
    pub fn try_read(&self) -> Result<Option<RwLockReadGuard>> {
        self.maybe_held(self.inner.try_read())
    }

    /// Acquires the lock to write, without waiting for other contenders. Returns `None` if one was ahead.
    pub fn try_write(&self) -> Result<Option<RwLockWriteGuard>> {
        self.maybe_held(self.inner.try_write())
    }

    /// Waits to read for at most `limit`, all requests included. Returns `None` if a writer was ahead.
    pub fn try_read_for(&self, limit: Duration) -> Result<Option<RwLockReadGuard>> {
        self.maybe_held(self.inner.try_read_for(limit))
    }

    /// Waits to write for at most `limit`, all requests included. Returns `None` if another contender was ahead.
    pub fn try_write_for(&self, limit: Duration) -> Result<Option<RwLockWriteGuard>> {
        self.maybe_held(self.inner.try_write_for(limit))
    }

    /// Joins the queue to read, and returns a [`Waiting`], on which a thread can wait in steps.
    pub fn enqueue_read(&self) -> Result<Waiting<crate::rwlock::RwLockReadGuard>> {
        Waiting::join(&self.runtime, self.inner.enqueue_read())
    }

    /// Joins the queue to write, and returns a [`Waiting`], on which a thread can wait in steps.
    pub fn enqueue_write(&self) -> Result<Waiting<crate::rwlock::RwLockWriteGuard>> {
        Waiting::join(&self.runtime, self.inner.enqueue_write())
    }
}
