//! [`RwLock`]: one writer, or any number of readers, first come, first served.

use std::time::Duration;

use crate::contender::for_operators;
use crate::error::{Error, Result};
use crate::hold::guard;
use crate::lock::{Lock, Waiting};
use crate::options::Options;
use crate::queue::{Kind, NodeName};
use crate::session::Session;

/// A fair lock for one writer, or any number of readers. Compatible with Curator's
/// `InterProcessReadWriteLock`.
///
/// A reader waits for the nearest writer ahead of it, a writer for its predecessor. The readers behind one writer are
/// therefore admitted together, and a stream of readers cannot keep a writer out. The lock is not re-entrant, and a
/// reader cannot become a writer: a task that holds the lock in one mode and waits for the other waits for itself.
///
/// A store that checks [fencing tokens](crate::FencingToken) must compare with the largest token of a *writer*. The tokens
/// of readers do not order the readers.
///
/// # Cancel safety
///
/// Dropping the future of a call that acquires leaves the queue. The node is deleted in the background. See
/// [Futures](crate#futures).
///
/// # Errors
///
/// Every call that acquires fails as those of a [`Mutex`](crate::Mutex#errors) do.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::RwLock;
///
/// let prices = RwLock::new(&session, "/locks/prices")?;
/// let writing = prices.write().await?;
/// // Load the new prices, then go on reading them, without a gap for another writer.
/// let reading = writing.downgrade().await?;
/// drop(reading);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessReadWriteLock")]
#[derive(Clone)]
pub struct RwLock {
    read: Lock,
    write: Lock,
}

impl RwLock {
    /// Creates a handle of the lock at `path`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path.
    pub fn new(session: &Session, path: &str) -> Result<Self> {
        Self::with_options(session, path, Options::new())
    }

    /// Creates a handle of the lock at `path` with its own options, which override the session's. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` or `options` cannot be used.
    pub fn with_options(session: &Session, path: &str, options: Options) -> Result<Self> {
        let lock = |kind| Lock::of_one(session, path, kind, &options);
        Ok(Self { read: lock(Kind::Read)?, write: lock(Kind::Write)? })
    }

    /// Joins the queue and waits to read, for as long as it takes, until no writer is ahead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// let reading = prices.read().await?;
    /// // Other sessions may read, and none writes.
    /// drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read(&self) -> Result<RwLockReadGuard> {
        self.read.acquire().await.map(RwLockReadGuard)
    }

    /// Joins the queue and waits to write, for as long as it takes, until no contender is ahead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// let writing = prices.write().await?;
    /// println!("a store compares with {}", writing.fencing_token());
    /// drop(writing);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write(&self) -> Result<RwLockWriteGuard> {
        self.write.acquire().await.map(RwLockWriteGuard)
    }

    /// Acquires the lock for reading without waiting for others: `None` if a writer was ahead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(reading) = prices.try_read().await? {
    ///     println!("no session writes, token {}", reading.fencing_token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_read(&self) -> Result<Option<RwLockReadGuard>> {
        Ok(self.read.try_acquire().await?.map(RwLockReadGuard))
    }

    /// Acquires the lock for writing without waiting for others: `None` if another contender was ahead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(writing) = prices.try_write().await? {
    ///     println!("no other session writes, token {}", writing.fencing_token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_write(&self) -> Result<Option<RwLockWriteGuard>> {
        Ok(self.write.try_acquire().await?.map(RwLockWriteGuard))
    }

    /// Joins the queue and waits to read for at most `limit`, all requests included: `None` if a writer was
    /// ahead.
    ///
    /// `None`, a limit that was too short, and unreachable servers need different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// let reading = prices.try_read_for(Duration::from_secs(1)).await?;
    /// println!("{}", if reading.is_some() { "reading" } else { "a writer is ahead" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_read_for(&self, limit: Duration) -> Result<Option<RwLockReadGuard>> {
        Ok(self.read.try_acquire_for(limit).await?.map(RwLockReadGuard))
    }

    /// Joins the queue and waits to write for at most `limit`, all requests included: `None` if another
    /// contender was ahead.
    ///
    /// `None`, a limit that was too short, and unreachable servers need different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// let writing = prices.try_write_for(Duration::from_secs(1)).await?;
    /// println!("{}", if writing.is_some() { "writing" } else { "another contender is ahead" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_write_for(&self, limit: Duration) -> Result<Option<RwLockWriteGuard>> {
        Ok(self.write.try_acquire_for(limit).await?.map(RwLockWriteGuard))
    }

    /// Joins the queue to read, and returns a [`Waiting`]. Await it for the guard.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// let waiting = prices.enqueue_read().await?;
    /// println!("{} are ahead", waiting.position());
    /// let reading = waiting.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_read(&self) -> Result<Waiting<RwLockReadGuard>> {
        Waiting::enqueue(self.read.clone(), RwLockReadGuard).await
    }

    /// Joins the queue to write, and returns a [`Waiting`]. Await it for the guard.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(prices: zookeeper_recipes::RwLock) -> Result<(), zookeeper_recipes::Error> {
    /// let waiting = prices.enqueue_write().await?;
    /// println!("{} are ahead", waiting.position());
    /// let writing = waiting.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_write(&self) -> Result<Waiting<RwLockWriteGuard>> {
        Waiting::enqueue(self.write.clone(), RwLockWriteGuard).await
    }
}

for_operators!(RwLock: |lock| &lock.write);

guard! {
    /// An [`RwLock`] held for reading, perhaps beside other readers. Dropping it releases the lock in the background.
    RwLockReadGuard
}

guard! {
    /// An [`RwLock`] held for writing. Dropping it releases the lock in the background.
    RwLockWriteGuard
}

impl RwLockWriteGuard {
    /// Turns the writer into a reader, without a gap for another writer. Readers right behind it are granted the lock.
    ///
    /// The token stays that of the writer, because a new token would be larger than those of the writers in the queue. The
    /// downgrade is one transaction, as in Curator. The call ends at the latest when the hold is no longer
    /// [trusted](crate::HoldMonitor::valid_for).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock in the background.
    ///
    /// # Errors
    ///
    /// [`DowngradeError`], which returns this guard: still held, unless its [`state`](crate::HoldMonitor::state) shows that
    /// the lock was lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(writing: zookeeper_recipes::RwLockWriteGuard) -> Result<(), zookeeper_recipes::Error> {
    /// match writing.downgrade().await {
    ///     Ok(reading) => println!("other sessions may read now, token {}", reading.fencing_token()),
    ///     Err(failed) => println!("{failed}; still held for writing: {:?}", failed.guard),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(self) -> Result<RwLockReadGuard, DowngradeError> {
        match no_reader_at(self.0.nodes()) {
            None => {
                let changed = self.0.downgrade().await;
                changed.map(RwLockReadGuard).map_err(|(hold, source)| DowngradeError { guard: Self(hold), source })
            }
            Some(reason) => Err(DowngradeError { guard: self, source: Error::invalid("downgrade", reason) }),
        }
    }
}

/// Returns why no reader can take the place of this writer; `None` if one can.
fn no_reader_at(writer: &[String]) -> Option<&'static str> {
    match writer.first().and_then(|node| NodeName::parse(node)) {
        // Near the wrap of the sequence counter, nodes are in the order of creation. The reader's node would be the
        // newest, behind waiting writers.
        Some(name) if name.is_near_wrap() => Some(
            "the lock's sequence numbers are at their end (2147483647), where a reader cannot take the place of a \
             writer; release it and read instead",
        ),
        Some(_) => None,
        None => Some("the node of the lock has no sequence number"),
    }
}

/// A failed downgrade, with the writer's guard. The lock is held for as long as this value lives.
///
/// `?` does not convert it into an [`Error`], because that would drop the guard and so release the lock. Go on with
/// `guard`, or drop it and return `source`.
#[derive(Debug, thiserror::Error)]
#[error("cannot go on as a reader")]
#[non_exhaustive]
pub struct DowngradeError {
    /// The writer's guard, whose hold is still held, or lost.
    pub guard: RwLockWriteGuard,
    /// The reason.
    pub source: Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(number: &str) -> Option<&'static str> {
        no_reader_at(&[format!("/lock/_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-__WRIT__{number}")])
    }

    #[test]
    fn nobody_becomes_a_reader_at_the_end_of_the_counter() {
        for number in ["0000000000", "0000000017", "2147483646"] {
            assert_eq!(reason(number), None);
        }
        for number in ["2147483647", "-2147483648", "-000000001"] {
            let reason = reason(number).expect("the number does not show the order");
            assert!(reason.contains("2147483647") && reason.contains("release it and read instead"), "{reason}");
        }
        assert!(reason("").is_some() && no_reader_at(&[]).is_some(), "no number");
    }
}
