//! Owns [`Mutex`]: one holder at a time, first come, first served.

use std::time::Duration;

use crate::contender::for_operators;
use crate::error::Result;
use crate::hold::guard;
use crate::lock::{Lock, Waiting};
use crate::options::Options;
use crate::queue::Kind;
use crate::session::Session;

/// A fair lock with one holder at a time. Compatible with Curator's `InterProcessMutex`.
///
/// The value is a handle: creating one sends nothing, and clones share nothing but the session. The mutex is not
/// re-entrant: a task that locks it twice waits for itself. Use a [`ReentrantMutex`](crate::ReentrantMutex) for that.
///
/// # Cancel safety
///
/// Dropping the future of a call that acquires leaves the queue. The node is deleted in the background. See
/// [Futures](crate#futures).
///
/// # Errors
///
/// Every call that acquires fails with
///
/// * [`Error::Evicted`](crate::Error::Evicted) if another client deletes our node while the call waits,
/// * [`Error::NoAuth`](crate::Error::NoAuth) if the ACLs deny it,
/// * [`Error::Closed`](crate::Error::Closed) and [`Error::SessionEnded`](crate::Error::SessionEnded) if there is no
///   session any more,
/// * [`Error::SessionFull`](crate::Error::SessionFull) if the session has too many locks.
///
/// Calls that do not wait, or wait up to a limit, also fail with [`Error::Unavailable`](crate::Error::Unavailable) if no
/// server answered in time.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::Mutex;
///
/// let mutex = Mutex::new(&session, "/locks/migration-42")?;
/// let guard = mutex.lock().await?;
/// let token = guard.fencing_token();
/// guard.run_until_lost(async { /* the migration, which hands `token` to the store */ }).await?;
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessMutex")]
#[doc(alias = "InterProcessSemaphoreMutex")]
#[derive(Clone)]
pub struct Mutex {
    lock: Lock,
}

impl Mutex {
    /// Creates a handle of the lock at `path`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `path` cannot be a lock path.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::{Mutex, path};
    ///
    /// let order = "2024/17";
    /// let mutex = Mutex::new(session, &format!("/locks/orders/{}", path::segment(order)))?;
    /// assert_eq!(mutex.path(), "/locks/orders/2024%2F17");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(session: &Session, path: &str) -> Result<Self> {
        Self::with_options(session, path, Options::new())
    }

    /// Creates a handle of the lock at `path` with its own options, which override the session's. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `path` or `options` cannot be used.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::{Mutex, Options};
    ///
    /// let options = Options::new().with_identifier("billing-7").with_path_removal(true);
    /// let mutex = Mutex::with_options(session, "/locks/orders/17", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_options(session: &Session, path: &str, options: Options) -> Result<Self> {
        Ok(Self { lock: Lock::of_one(session, path, Kind::Lock, &options)? })
    }

    /// Joins the queue and waits for the lock, for as long as it takes.
    ///
    /// A lost connection is no error: the waiter keeps its position while the ZooKeeper session lives. When that session
    /// expires, the waiter queues again at the tail in the renewed session.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
    /// let guard = mutex.lock().await?;
    /// println!("it is our turn, with token {}", guard.fencing_token());
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "acquire")]
    pub async fn lock(&self) -> Result<MutexGuard> {
        self.lock.acquire().await.map(MutexGuard)
    }

    /// Acquires the lock without waiting for others: `None` if another contender was ahead.
    ///
    /// The call does not wait for other contenders. It waits for the servers, for up to one session timeout, even if the
    /// session was never connected. A [`try_lock_for`](Self::try_lock_for) with a limit of zero does not wait for a
    /// connection.
    ///
    /// A contended lock costs one round trip and no write. Every node counts. It may belong to a contender that is
    /// releasing, or to a dead process whose session has not ended yet. So [`contenders`](Self::contenders) may be empty
    /// afterwards.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
    /// match mutex.try_lock().await? {
    ///     Some(guard) => println!("it is our turn, with token {}", guard.fencing_token()),
    ///     None => println!("another instance is at it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock(&self) -> Result<Option<MutexGuard>> {
        Ok(self.lock.try_acquire().await?.map(MutexGuard))
    }

    /// Joins the queue and waits for the lock for at most `limit`, all requests included: `None` if another contender
    /// was ahead.
    ///
    /// A limit of zero is a [`try_lock`](Self::try_lock) that does not wait for a connection. Without a connection, or
    /// if it is lost before the answer, the call returns [`Error::Unavailable`](crate::Error::Unavailable) at once. A
    /// limit too long for a clock is no limit.
    ///
    /// `None` means that the servers answered and another contender was ahead: a service would return 423 (locked). If
    /// `limit` is too short for the first requests (a few round trips and a write), the result is an error instead.
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) means that no answer came within `limit`: a service would return
    /// 503 (unavailable). [`Unanswered`](crate::error::Unanswered) has the reason.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// use zookeeper_recipes::Error;
    ///
    /// let status = match mutex.try_lock_for(Duration::from_millis(500)).await {
    ///     Ok(Some(_guard)) => 200,
    ///     Ok(None) => 423,
    ///     Err(Error::Unavailable { .. }) => 503,
    ///     Err(error) => return Err(error),
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<MutexGuard>> {
        Ok(self.lock.try_acquire_for(limit).await?.map(MutexGuard))
    }

    /// Joins the queue, and returns a [`Waiting`]. Await it for the guard. [`lock`](Self::lock) does both. An uncontended
    /// lock is held as soon as this call has returned, even if the [`Waiting`] is not awaited.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
    /// let waiting = mutex.enqueue().await?;
    /// println!("{} are ahead", waiting.position());
    /// let guard = waiting.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue(&self) -> Result<Waiting<MutexGuard>> {
        Waiting::enqueue(self.lock.clone(), MutexGuard).await
    }
}

for_operators!(Mutex: |mutex| &mutex.lock);

guard! {
    /// A held [`Mutex`]. Dropping it releases the lock in the background.
    MutexGuard
}
