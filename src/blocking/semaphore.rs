//! Owns the blocking [`Semaphore`].

use std::time::Duration;

use crate::blocking::{Guard, SemaphorePermit, Session, Waiting, recipe};
use crate::error::Result;
use crate::options::Options;

recipe! {
    /// At most *n* permits in use at a time, for threads that block: [`Semaphore`](crate::Semaphore) without async.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: zookeeper_recipes::blocking::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::blocking::Semaphore;
    ///
    /// let api = Semaphore::new(&session, "/limits/geocoder", 10)?;
    /// let permit = api.acquire()?;
    /// // At most ten calls at a time, in the whole fleet.
    /// drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    Semaphore(permits: u32)
}

impl Semaphore {
    /// Joins the queue and waits for one permit, for as long as it takes.
    pub fn acquire(&self) -> Result<SemaphorePermit> {
        self.held(self.inner.acquire())
    }

    /// Joins the queue and waits for `count` permits, for as long as it takes: all of them, or none.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and at once [`Error::InvalidInput`](crate::Error::InvalidInput) if `count` is zero or
    /// larger than the number of permits.
    pub fn acquire_many(&self, count: u32) -> Result<SemaphorePermit> {
        self.held(self.inner.acquire_many(count))
    }

    /// Acquires one permit without waiting for other contenders. Returns `None` if no permit is free or a contender was ahead.
    pub fn try_acquire(&self) -> Result<Option<SemaphorePermit>> {
        self.maybe_held(self.inner.try_acquire())
    }

    /// Acquires `count` permits without waiting for other contenders. Returns `None` if fewer are free or a contender was
    /// ahead.
    pub fn try_acquire_many(&self, count: u32) -> Result<Option<SemaphorePermit>> {
        self.maybe_held(self.inner.try_acquire_many(count))
    }

    /// Waits for one permit for at most `limit`, all requests included.
    pub fn try_acquire_for(&self, limit: Duration) -> Result<Option<SemaphorePermit>> {
        self.maybe_held(self.inner.try_acquire_for(limit))
    }

    /// Waits for `count` permits for at most `limit`, all requests included.
    pub fn try_acquire_many_for(&self, count: u32, limit: Duration) -> Result<Option<SemaphorePermit>> {
        self.maybe_held(self.inner.try_acquire_many_for(count, limit))
    }

    /// Joins the queue for `count` permits, and returns a [`Waiting`], on which a thread can wait in steps.
    pub fn enqueue(&self, count: u32) -> Result<Waiting<crate::semaphore::SemaphorePermit>> {
        Waiting::join(&self.runtime, self.inner.enqueue(count))
    }

    /// Returns the number of permits of the semaphore.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.inner.permits()
    }

    /// Returns the number of free permits, as far as the connected server knows. A permit that a caller is about to acquire
    /// counts as taken.
    pub fn available_permits(&self) -> Result<u32> {
        self.runtime.block_on(self.inner.available_permits())
    }
}
