//! Owns [`Semaphore`]: at most *n* permits in use, first come, first served.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::contender::{Contender, for_operators};
use crate::error::{Error, Result};
use crate::hold::guard;
use crate::lock::{Lock, Waiting};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::{Kind, LEASES, Queue, TURNS};
use crate::session::Session;

/// A semaphore with at most *n* permits in use at a time. Compatible with Curator's `InterProcessSemaphoreV2`.
///
/// A caller that does not get its permits at once queues for its turn, first come, first served. It keeps the turn until
/// it has all of its permits. So no two callers each keep permits that the other one needs, and small requests do not
/// overtake large ones.
///
/// The number of permits is configured in every client, and not stored, unless the clients [follow](Self::following) a number. If
/// clients disagree, each takes permits only while no more than *its* number are in use, its own included. A client that allows
/// fewer also holds up the waiters behind it.
///
/// Use the path for nothing but semaphores. The nodes are below it, in `locks` and `leases`. A semaphore and a
/// [`Mutex`](crate::Mutex), or another lock, at one path do not see each other: both are granted at the same time.
///
/// A permit is free as soon as its guard is dropped, even if the limited service is still working on a call. If the
/// service counts such calls, make each call in its own task, which owns the permit.
///
/// The [tokens](crate::FencingToken) of permits that are held at the same time do not order their holders.
///
/// # Cancel safety
///
/// Dropping the future of a call that acquires leaves the queue. The nodes are deleted in the background. See
/// [Futures](crate#futures).
///
/// # Errors
///
/// Every call that acquires fails as those of a [`Mutex`](crate::Mutex#errors) do. A call with a `count` fails at once with
/// [`Error::InvalidInput`] if `count` is zero or larger than the number of permits.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::Semaphore;
///
/// let api = Semaphore::new(&session, "/limits/geocoder", 10)?;
/// let permit = api.acquire().await?;
/// // At most ten calls at a time, in the whole fleet.
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "InterProcessSemaphoreV2")]
#[derive(Clone)]
pub struct Semaphore {
    /// The lock for one permit.
    permit: Lock,
    permits: watch::Receiver<u32>,
}

impl Semaphore {
    /// Creates a handle of the semaphore at `path`, with `permits` permits in all. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path, or `permits` is zero.
    pub fn new(session: &Session, path: &str, permits: u32) -> Result<Self> {
        Self::with_options(session, path, permits, Options::new())
    }

    /// Creates a handle of the semaphore at `path` with its own options, which override the session's. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` or `options` cannot be used, or `permits` is zero.
    pub fn with_options(session: &Session, path: &str, permits: u32, options: Options) -> Result<Self> {
        if permits == 0 {
            return Err(Error::invalid("permits", "with none, nobody could ever acquire one; give at least one"));
        }
        Self::following(session, path, watch::channel(permits).1, options)
    }

    /// Creates a handle that takes its number of permits from `permits`. Waiting calls keep their positions. Sends nothing.
    ///
    /// If the number falls, permits in use stay in use, and calls wait until enough are released. A waiting call for more permits than
    /// there are waits until the number grows, and so do all callers behind it. With zero, all callers wait. A [`Waiting`] uses the
    /// old number until it is polled, and holds up those behind it until then. Calls for several permits, and
    /// [`enqueue`](Self::enqueue), fail if they ask for more than there are. After the sender is dropped, the last value stays.
    ///
    /// Every client needs the number. To share it in a node of the servers, see
    /// [`SharedCount`](https://docs.rs/zookeeper-groups/latest/zookeeper_groups/struct.SharedCount.html).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` or `options` cannot be used.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use zookeeper_recipes::{Options, Semaphore};
    ///
    /// let (limit, permits) = tokio::sync::watch::channel(10);
    /// let api = Semaphore::following(&session, "/limits/geocoder", permits, Options::new())?;
    /// let permit = api.acquire().await?;
    /// // At night:
    /// limit.send_replace(50);
    /// assert_eq!(api.permits(), 50);
    /// # drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    pub fn following(
        session: &Session,
        path: &str,
        permits: watch::Receiver<u32>,
        options: Options,
    ) -> Result<Self> {
        Ok(Self { permit: lock(session, &LockPath::new(path)?, &options, 1, &permits)?, permits })
    }

    /// Joins the queue and waits for one permit, for as long as it takes.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// let permit = api.acquire().await?;
    /// // Call the API.
    /// drop(permit);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<SemaphorePermit> {
        self.permit.acquire().await.map(SemaphorePermit)
    }

    /// Joins the queue and waits for `count` permits, for as long as it takes: all of them, or none.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// let permits = api.acquire_many(3).await?;
    /// assert_eq!(permits.count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_many(&self, count: u32) -> Result<SemaphorePermit> {
        self.many(count)?.acquire().await.map(SemaphorePermit)
    }

    /// Acquires one permit without waiting for others: `None` if none is free, or another contender was ahead.
    ///
    /// If another caller is about to get its permits, the call waits for that caller, for an eighth of the session
    /// timeout at most.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(_permit) = api.try_acquire().await? {
    ///     // Call the API; the permit is released at the end of the block.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<SemaphorePermit>> {
        Ok(self.permit.try_acquire().await?.map(SemaphorePermit))
    }

    /// Acquires `count` permits without waiting for others: `None` if fewer are free, or another contender was ahead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// let permits = api.try_acquire_many(3).await?;
    /// println!("{}", if permits.is_some() { "three permits" } else { "none" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire_many(&self, count: u32) -> Result<Option<SemaphorePermit>> {
        Ok(self.many(count)?.try_acquire().await?.map(SemaphorePermit))
    }

    /// Joins the queue and waits for one permit for at most `limit`, all requests included.
    ///
    /// `None`, a limit that was too short, and unreachable servers need different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// let permit = api.try_acquire_for(Duration::from_secs(1)).await?;
    /// println!("{}", if permit.is_some() { "a permit" } else { "too many calls" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire_for(&self, limit: Duration) -> Result<Option<SemaphorePermit>> {
        Ok(self.permit.try_acquire_for(limit).await?.map(SemaphorePermit))
    }

    /// Joins the queue and waits for `count` permits for at most `limit`, all requests included.
    ///
    /// `None`, a limit that was too short, and unreachable servers need different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// let permits = api.try_acquire_many_for(3, Duration::from_secs(1)).await?;
    /// println!("{}", if permits.is_some() { "three permits" } else { "too many calls" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire_many_for(&self, count: u32, limit: Duration) -> Result<Option<SemaphorePermit>> {
        Ok(self.many(count)?.try_acquire_for(limit).await?.map(SemaphorePermit))
    }

    /// Joins the queue for `count` permits, and returns a [`Waiting`]. Await it for the permits.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// let waiting = api.enqueue(3).await?;
    /// println!("{} are ahead", waiting.position());
    /// let permits = waiting.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue(&self, count: u32) -> Result<Waiting<SemaphorePermit>> {
        Waiting::enqueue(self.many(count)?, SemaphorePermit).await
    }

    /// Returns the number of permits of the semaphore.
    #[must_use]
    pub fn permits(&self) -> u32 {
        *self.permits.borrow()
    }

    /// Returns the number of free permits, as far as the connected server knows, which may be behind the others. A
    /// permit that a caller is about to get counts as taken, even if that caller is dead and its session has not expired
    /// yet.
    ///
    /// Free permits are no promise that [`try_acquire`](Self::try_acquire) gets one: another caller may be ahead.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// println!("{} of {} are free", api.available_permits().await?, api.permits());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn available_permits(&self) -> Result<u32> {
        let (session, leases) = (&self.permit.session, &self.permit.queues[0]);
        let leases =
            session.attempt_within_timeout(|zk| async move { leases.list(session.core(), &zk).await }).await?;
        Ok(self.permits().saturating_sub(u32::try_from(leases.len()).unwrap_or(u32::MAX)))
    }

    /// Counts the callers in the queue for permits, of all sessions, in one small request. A caller that is about to
    /// get its permits may be among them. The count comes from the connected server, which may be behind the others.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// println!("{} wait", api.waiting().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn waiting(&self) -> Result<u32> {
        let Some((turns, _)) = &self.permit.permits else { return Ok(0) };
        let count =
            self.permit.session.attempt_within_timeout(|zk| async move { turns.occupancy(&zk).await }).await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Returns how many permits must be released before the first caller in the queue can take its own, in one small request. If
    /// nobody waits, it is by how many the permits in use exceed the [number](Self::permits). If zero is returned again and again
    /// and the first caller stays first, it has died or hangs. The count comes from the connected server, which may be behind the
    /// others.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    pub async fn missing_permits(&self) -> Result<u32> {
        let (session, leases) = (&self.permit.session, &self.permit.queues[0]);
        // The holders have nodes in `leases`, and the first waiter has its own there already; no other waiter has. So the first
        // waiter misses as many permits as there are nodes beyond the number of permits.
        let count = session.attempt_within_timeout(|zk| async move { leases.occupancy(&zk).await }).await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX).saturating_sub(self.permits()))
    }

    /// Lists the holders of permits, with one contender for each permit, the oldest first.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(api: zookeeper_recipes::Semaphore) -> Result<(), zookeeper_recipes::Error> {
    /// for holder in api.holders().await? {
    ///     println!("{holder}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Contender>> {
        let mut all = self.contenders().await?;
        all.retain(Contender::is_holder);
        Ok(all)
    }

    fn many(&self, count: u32) -> Result<Lock> {
        let reason = match count {
            0 => "none would be acquired; give at least one".to_owned(),
            count if count > self.permits() => {
                format!("{count} are wanted, and there are only {}", self.permits())
            }
            count => {
                let Lock { session, path, options, .. } = &self.permit;
                return lock(session, path, options, count, &self.permits);
            }
        };
        Err(Error::invalid("permits", reason))
    }

    /// Returns the runtime of the semaphore's session.
    pub(crate) fn home(&self) -> &Handle {
        self.permit.session.home()
    }

    /// Returns why the session is over, if it is.
    pub(crate) fn session_error(&self) -> Option<Error> {
        self.permit.session.error()
    }
}

/// Creates the lock for `count` permits. It has a node in the queue of callers, and a node for each permit.
fn lock(
    session: &Session,
    path: &LockPath,
    options: &Options,
    count: u32,
    permits: &watch::Receiver<u32>,
) -> Result<Lock> {
    let turns = Queue::new(&LockPath::new(&path.child(TURNS))?, Kind::Lock);
    let leases = Queue::new(&LockPath::new(&path.child(LEASES))?, Kind::Lease);
    let leases = Queue { width: count as usize, ..leases };
    Lock::new(session, path, options, Some((turns, permits.clone())), vec![leases], "permits")
}

for_operators!(Semaphore: |semaphore| &semaphore.permit);

guard! {
    /// One or several permits of a [`Semaphore`]. Dropping it releases them in the background.
    SemaphorePermit
}

impl SemaphorePermit {
    /// Returns the number of permits that this guard holds.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.nodes().len().try_into().unwrap_or(u32::MAX)
    }
}
