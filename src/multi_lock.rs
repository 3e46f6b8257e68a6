//! [`MultiLock`]: several locks as one.

use std::collections::HashSet;
use std::time::Duration;

use crate::contender::for_operators;
use crate::error::{Error, Result};
use crate::hold::guard;
use crate::lock::{Lock, Waiting};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::{Kind, Queue};
use crate::session::Session;

/// Several locks that are acquired together, or not at all.
///
/// One transaction joins all queues, so the order is the same in every queue. Two multi-locks therefore cannot wait for
/// each other, in whatever order they name the paths. *n* uncontended locks cost one write.
///
/// A multi-lock can deadlock with code that acquires several of the locks one after the other, such as Curator's
/// `InterProcessMultiLock`. Beside such code, acquire the locks one by one too, in an order of paths that all clients
/// share.
///
/// The nodes of a guard are in the order in which the members were named.
///
/// The loss of one member is the loss of all.
///
/// # Cancel safety
///
/// Dropping the future of a call that acquires leaves all queues. The nodes are deleted in the background. See
/// [Futures](crate#futures).
///
/// # Errors
///
/// Every call that acquires fails as those of a [`Mutex`](crate::Mutex#errors) do, with two differences:
///
/// * Calls that wait return [`Error::Evicted`] only if there is one member.
/// * All calls also return [`Error::InvalidInput`] if the missing paths and the nodes do not fit into one request.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::MultiLock;
///
/// let accounts = MultiLock::new(&session, ["/accounts/alice", "/accounts/bob"])?;
/// let guard = accounts.lock().await?;
/// // Move the money.
/// drop(guard);
///
/// // Writes one, and reads two.
/// let report = MultiLock::builder(&session)
///     .write("/reports/today")
///     .read("/accounts/alice")
///     .read("/accounts/bob")
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessMultiLock")]
#[derive(Clone)]
pub struct MultiLock {
    lock: Lock,
}

impl MultiLock {
    /// Creates a handle of all mutexes at `paths`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if there are no paths, if a path cannot be a lock path or is named twice, or if there are
    /// more paths than fit into one request to a server: about 5,000 of 40 bytes. Paths that are missing are created in
    /// the same request, which leaves room for about 3,500. Whether these fit is checked only when the lock is acquired.
    pub fn new(session: &Session, paths: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        paths.into_iter().fold(Self::builder(session), |builder, path| builder.lock(path.as_ref())).build()
    }

    /// Builds a multi-lock with members of several kinds, or with its own options.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::MultiLock;
    ///
    /// let report = MultiLock::builder(session).write("/reports/today").read("/accounts/alice").build()?;
    /// let guard = report.lock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(session: &Session) -> MultiLockBuilder {
        MultiLockBuilder { session: session.clone(), options: Options::new(), members: Vec::new() }
    }

    /// Returns the path of a member that several holders may hold at the same time, if there is one.
    pub(crate) fn shared_member(&self) -> Option<&LockPath> {
        self.lock.queues.iter().find(|queue| !queue.kind.waits_for(queue.kind)).map(|queue| &queue.path)
    }

    /// Joins all queues and waits for all locks, for as long as it takes.
    ///
    /// If one of the waiter's nodes is deleted, the waiter joins all queues again, at the tail.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(accounts: zookeeper_recipes::MultiLock) -> Result<(), zookeeper_recipes::Error> {
    /// let guard = accounts.lock().await?;
    /// // Move the money, with guard.fencing_token().
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "acquire")]
    pub async fn lock(&self) -> Result<MultiLockGuard> {
        self.lock.acquire().await.map(MultiLockGuard)
    }

    /// Acquires the locks without waiting for others: `None` if another contender was ahead in one of the queues.
    ///
    /// # Errors
    ///
    /// [`Error::Evicted`] if one of the call's nodes is deleted meanwhile.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(accounts: zookeeper_recipes::MultiLock) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(guard) = accounts.try_lock().await? {
    ///     // Move the money, with guard.fencing_token().
    ///     drop(guard);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        Ok(self.lock.try_acquire().await?.map(MultiLockGuard))
    }

    /// Joins all queues and waits for all locks for at most `limit`, all requests included: `None` if another contender
    /// was ahead in one of the queues.
    ///
    /// `None`, a limit that was too short, and unreachable servers need different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(accounts: zookeeper_recipes::MultiLock) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// let guard = accounts.try_lock_for(Duration::from_secs(1)).await?;
    /// println!("{}", if guard.is_some() { "all are locked" } else { "one of them is contended" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock_for(&self, limit: Duration) -> Result<Option<MultiLockGuard>> {
        Ok(self.lock.try_acquire_for(limit).await?.map(MultiLockGuard))
    }

    /// Joins all queues, and returns a [`Waiting`]. Await it for the guard.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(accounts: zookeeper_recipes::MultiLock) -> Result<(), zookeeper_recipes::Error> {
    /// let waiting = accounts.enqueue().await?;
    /// println!("{} are ahead in the longest queue", waiting.position());
    /// let guard = waiting.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue(&self) -> Result<Waiting<MultiLockGuard>> {
        Waiting::enqueue(self.lock.clone(), MultiLockGuard).await
    }
}

for_operators!(MultiLock: |this| &this.lock);

/// Builds a [`MultiLock`].
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is built"]
pub struct MultiLockBuilder {
    session: Session,
    options: Options,
    members: Vec<(String, Kind)>,
}

impl MultiLockBuilder {
    /// Adds the [`Mutex`](crate::Mutex) at `path`.
    pub fn lock(self, path: &str) -> Self {
        self.member(path, Kind::Lock)
    }

    /// Adds the [`RwLock`](crate::RwLock) at `path`, for writing.
    pub fn write(self, path: &str) -> Self {
        self.member(path, Kind::Write)
    }

    /// Adds the [`RwLock`](crate::RwLock) at `path`, for reading.
    pub fn read(self, path: &str) -> Self {
        self.member(path, Kind::Read)
    }

    /// Sets the lock's own options, which override the session's.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Creates the handle. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::new`].
    pub fn build(self) -> Result<MultiLock> {
        let mut queues = Vec::new();
        let mut named = HashSet::new();
        for (path, kind) in self.members {
            let path = LockPath::new(&path)?;
            if !named.insert(path.clone()) {
                let reason = format!("{path} is named twice, and would wait for itself; name it once");
                return Err(Error::invalid("paths", reason));
            }
            queues.push(Queue::new(&path, kind));
        }
        let Some(first) = queues.first().map(|queue| queue.path.clone()) else {
            return Err(Error::invalid("paths", "there are none; name at least one"));
        };
        let lock = Lock::new(&self.session, &first, &self.options, None, queues, "paths")?;
        Ok(MultiLock { lock })
    }

    fn member(mut self, path: &str, kind: Kind) -> Self {
        self.members.push((path.to_owned(), kind));
        self
    }
}

guard! {
    /// A held [`MultiLock`]. Dropping it releases all members in the background.
    MultiLockGuard
}
