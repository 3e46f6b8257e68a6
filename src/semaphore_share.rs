//! Owns [`SemaphoreShare`]: permits of a semaphore that a process keeps for its tasks.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::error::{Error, Result};
use crate::hold::{Hold, HoldMonitor, HoldState};
use crate::locked::locked;
use crate::semaphore::{Semaphore, SemaphorePermit};

/// The share that a process has of a [`Semaphore`]: up to `permits` permits, which it lends to its tasks.
///
/// A task that is done returns its permit to the share, and the next task of the process takes it from there without a
/// request. The share acquires a permit of the semaphore only when a task waits and no permit is idle. It releases a permit
/// that was idle for the idle time, 10 s by default.
///
/// So a process that has permits does not queue for them, and goes on when another process dies in the queue. Without a share each
/// [`acquire`](Semaphore::acquire) queues, and everyone behind a dead waiter waits until its session expires.
///
/// # Fairness
///
/// Tasks of one process are served first come, first served. Between processes a share is not fair: while its tasks keep a permit
/// busy, no other process gets it. Let the shares of all processes together be no more than the semaphore has, and no
/// process waits for another. If they are more, a process gets what others leave idle, or release because they are asked to:
/// [`Semaphore::revoke`] makes a share release a permit at once if it is idle, and when its task is done otherwise. So does
/// [`Session::drain`](crate::Session::drain).
///
/// Clones are handles of one share. When the last one is dropped, the idle permits are released, and the others when their
/// tasks are done. Keep one for as long as the process uses the semaphore.
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::{Semaphore, SemaphoreShare};
///
/// // At most 64 orders at a time in the whole fleet, at most 16 of them here.
/// let semaphore = Semaphore::new(&session, "/limits/orders", 64)?;
/// let share = SemaphoreShare::new(&semaphore, 16)?;
/// let permit = share.acquire().await?;
/// permit.run_until_lost(async { /* the order */ }).await?;
/// drop(permit); // For the next task of this process.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SemaphoreShare(Arc<Share>);

struct Share {
    semaphore: Semaphore,
    idle_time: Duration,
    /// As many as there may be permits. A task has one from before it takes a permit until it has returned it.
    turns: Arc<tokio::sync::Semaphore>,
    /// Since when each is idle. The last one is lent first, so that the others can be released.
    idle: Mutex<Vec<(SemaphorePermit, Instant)>>,
    /// A permit has become idle.
    returned: Notify,
    /// The acquisition of another permit. It outlasts the task that wanted it, which may get a permit that is returned: else a share
    /// whose tasks are quick would never get to the head of the semaphore's queue.
    growing: Mutex<Option<Growing>>,
    /// Each task that waits for a permit has a clone.
    waiting: Arc<()>,
}

/// A task that acquires a permit for the share. It leaves the semaphore's queue when this is dropped.
struct Growing {
    _task: JoinSet<()>,
    grown: Shared<oneshot::Receiver<Result<()>>>,
}

impl SemaphoreShare {
    /// Creates a share of at most `permits` permits, none of which it has yet. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `permits` is zero or larger than the number of permits of the semaphore.
    pub fn new(semaphore: &Semaphore, permits: u32) -> Result<Self> {
        Self::with_idle_time(semaphore, permits, Duration::from_secs(10))
    }

    /// Creates a share that keeps a permit for `idle_time` after its last use. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_idle_time(semaphore: &Semaphore, permits: u32, idle_time: Duration) -> Result<Self> {
        if permits == 0 || permits > semaphore.permits() {
            return Err(Error::invalid("permits", format!("give one to {}, not {permits}", semaphore.permits())));
        }
        Ok(Self(Arc::new(Share {
            semaphore: semaphore.clone(),
            // Not zero, or the tasks that wait for it would not rest.
            idle_time: idle_time.max(Duration::from_millis(1)),
            turns: Arc::new(tokio::sync::Semaphore::new(permits as usize)),
            idle: Mutex::default(),
            returned: Notify::new(),
            growing: Mutex::default(),
            waiting: Arc::default(),
        })))
    }

    /// Waits for a permit: an idle one, one that another task returns, or a new one of the semaphore.
    ///
    /// In an outage it waits, as [`Semaphore::acquire`] does, also if a permit is idle: until that is
    /// [`Held`](HoldState::Held) again, or lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the process's own queue. The process also has a position in the semaphore's queue. If no other
    /// task needs it, the process gives it up within two idle times.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with timers.
    ///
    /// # Examples
    ///
    /// See [`SemaphoreShare`].
    pub async fn acquire(&self) -> Result<SharePermit> {
        let mut turn = Arc::clone(&self.0.turns).acquire_owned().await.expect("it is never closed");
        let _waits = Arc::clone(&self.0.waiting);
        loop {
            let mut returned = pin!(self.0.returned.notified());
            // Before the look, so that a permit which is returned behind it is not missed.
            returned.as_mut().enable();
            turn = match self.0.lend(turn).await {
                Ok(permit) => return Ok(permit),
                Err(turn) => turn,
            };
            tokio::select! {
                () = returned => {}
                grown = self.0.grow() => grown?,
            }
        }
    }

    /// Acquires a permit without waiting for others: `None` if all permits of the share are in use, or none is idle and a
    /// [`Semaphore::try_acquire`] is contended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases what it was about to get.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::try_acquire`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with timers.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(share: zookeeper_recipes::SemaphoreShare) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(_permit) = share.try_acquire().await? {
    ///     // Call the API; the permit is returned to the share at the end of the block.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<SharePermit>> {
        let Ok(turn) = Arc::clone(&self.0.turns).try_acquire_owned() else { return Ok(None) };
        match self.0.lend(turn).await {
            Ok(permit) => Ok(Some(permit)),
            Err(turn) => {
                let Some(permit) = self.0.semaphore.try_acquire().await? else { return Ok(None) };
                self.0.add(permit);
                Ok(self.0.lend(turn).await.ok())
            }
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "share of {:?}", self.semaphore.path())
    }
}

impl Share {
    /// An idle permit that is held for certain, or the turn if there is none.
    async fn lend(self: &Arc<Self>, mut turn: OwnedSemaphorePermit) -> Result<SharePermit, OwnedSemaphorePermit> {
        loop {
            let Some((permit, _)) = locked(&self.idle).pop() else { return Err(turn) };
            let mut permit = SharePermit { permit: Some(permit), turn: Some(turn), share: Arc::downgrade(self) };
            while permit.state() == HoldState::Suspended {
                permit.changed().await;
            }
            if permit.state() == HoldState::Held {
                return Ok(permit);
            }
            turn = permit.turn.take().expect("it was just put there");
        }
    }

    /// Waits until the share has another permit of the semaphore.
    async fn grow(self: &Arc<Self>) -> Result<()> {
        let grown = locked(&self.growing).get_or_insert_with(|| self.begin_to_grow()).grown.clone();
        grown.await.unwrap_or(Ok(()))
    }

    /// On the session's runtime: that of the waiting task may end sooner.
    fn begin_to_grow(self: &Arc<Self>) -> Growing {
        let (report, grown) = oneshot::channel();
        let (share, semaphore, mut task) = (Arc::downgrade(self), self.semaphore.clone(), JoinSet::new());
        let acquire = async move {
            let acquired = semaphore.acquire().await;
            let Some(share) = share.upgrade() else { return };
            // Before the report: a task that looks again may begin the next.
            let ended = locked(&share.growing).take();
            // Nobody may wait for it any more.
            let _ = report.send(acquired.map(|permit| share.add(permit)));
            drop(ended);
        };
        task.spawn_on(acquire, self.semaphore.home());
        task.spawn_on(leave(Arc::downgrade(self), self.idle_time), self.semaphore.home());
        Growing { _task: task, grown: grown.shared() }
    }

    /// A new permit, which is idle.
    fn add(self: &Arc<Self>, permit: SemaphorePermit) {
        self.semaphore.home().spawn(watch(Arc::downgrade(self), permit.monitor(), self.idle_time));
        locked(&self.idle).push((permit, Instant::now()));
        self.returned.notify_one();
    }
}

/// Neither lost nor asked back.
fn is_kept(permit: &SemaphorePermit) -> bool {
    permit.state().ended().is_none() && permit.revoke_requested().now_or_never().is_none()
}

/// Looks for idle permits to release, when this one is asked back and now and then, until it has ended.
async fn watch(share: Weak<Share>, permit: HoldMonitor, idle_time: Duration) {
    let (mut asked, mut ended) = (pin!(permit.revoke_requested().fuse()), pin!(permit.ended()));
    loop {
        tokio::select! {
            () = &mut asked => {}
            _ = &mut ended => return,
            () = sleep(idle_time / 4) => {}
        }
        let Some(share) = share.upgrade() else { return };
        let is_over = |(permit, since): &mut (_, Instant)| since.elapsed() >= idle_time || !is_kept(permit);
        // They are dropped when it is not locked any more.
        let _released: Vec<_> = locked(&share.idle).extract_if(.., is_over).collect();
    }
}

/// Leaves the semaphore's queue when no task waited at two looks, an idle time apart.
async fn leave(share: Weak<Share>, idle_time: Duration) {
    let mut was_wanted = true;
    loop {
        sleep(idle_time).await;
        let Some(share) = share.upgrade() else { return };
        let is_wanted = Arc::strong_count(&share.waiting) > 1;
        if !is_wanted && !was_wanted {
            // This task ends with it.
            drop(locked(&share.growing).take());
        }
        was_wanted = is_wanted;
    }
}

/// A permit of a [`SemaphoreShare`]. Dropping it returns it to the share, for the next task of the process.
///
/// It dereferences to the [`Hold`] of the semaphore's permit, which the tasks that use it have one after the other. So they have
/// the same [token](crate::FencingToken), which orders nothing among the holders of a semaphore.
#[derive(Debug)]
#[clippy::has_significant_drop]
#[must_use = "dropping the permit returns it"]
pub struct SharePermit {
    /// There is one until the drop.
    permit: Option<SemaphorePermit>,
    /// Dropped after the permit, so that the next task finds the permit idle.
    turn: Option<OwnedSemaphorePermit>,
    share: Weak<Share>,
}

impl Deref for SharePermit {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.permit.as_ref().expect("it is taken by the drop alone")
    }
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        let (Some(permit), Some(share)) = (self.permit.take(), self.share.upgrade()) else { return };
        if is_kept(&permit) {
            locked(&share.idle).push((permit, Instant::now()));
            share.returned.notify_one();
        }
    }
}
