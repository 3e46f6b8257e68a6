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

/// The share of a [`Semaphore`] that a process keeps: up to `permits` permits, which it lends to its tasks.
///
/// A task that is done returns its permit to the share, and the next task of the process takes it from there without a
/// request. The share acquires a permit of the semaphore only when a task waits and no permit is idle. It releases a permit
/// that was idle for the idle time, 10 s by default.
///
/// So a process that has permits does not queue for them, and goes on when another process dies in the queue. Without a
/// share, each [`acquire`](Semaphore::acquire) queues, and everyone behind a dead waiter waits until its session expires.
///
/// # Fairness
///
/// Tasks of one process get permits roughly in the order in which they ask. Between processes a share is not fair: while its tasks keep a
/// permit busy, no other process gets it. If the shares of all processes add up to no more than the semaphore has, no
/// process waits for another. If they add up to more, a process gets permits that others leave idle, or release on request.
/// [`Semaphore::revoke`] makes a share release a permit: at once if it is idle, otherwise when its task is done. So does
/// [`Session::drain`](crate::Session::drain).
///
/// Clones are handles of one share. When the last one is dropped, idle permits are released at once, and the others when
/// their tasks are done. Keep a handle for as long as the process uses the semaphore.
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
    /// One turn for each permit that the share may have. A task has a turn from before it takes a permit until the permit
    /// is returned.
    turns: Arc<tokio::sync::Semaphore>,
    /// The idle permits, with the times since when they are idle. The last one is lent first, so that the others can be
    /// released.
    idle: Mutex<Vec<(SemaphorePermit, Instant)>>,
    /// Notified when a permit has become idle: all that wait, because the first may not be polled.
    returned: Notify,
    /// The acquisition of another permit. It goes on even if the task that wanted it gets a returned permit. Otherwise a
    /// share with quick tasks would never get to the head of the semaphore's queue.
    growing: Mutex<Option<Growing>>,
    /// Counts the waiting tasks: each has a clone.
    waiting: Arc<()>,
}

/// A task that acquires a permit for the share. Dropping this value leaves the semaphore's queue.
struct Growing {
    _task: JoinSet<()>,
    grown: Shared<oneshot::Receiver<Result<()>>>,
}

impl SemaphoreShare {
    /// Creates a share of at most `permits` permits. It has none at first. Sends nothing.
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
            // Not zero, because tasks that sleep for this time would spin.
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
    /// In an outage the call waits, as [`Semaphore::acquire`] does. It waits even if a permit is idle, until that permit is
    /// [`Held`](HoldState::Held) again, or lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the process's own queue. The process may also have a position in the semaphore's queue.
    /// If no other task needs that position, the process gives it up within two idle times.
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
            // Enabled before looking for an idle permit, so that a permit which is returned meanwhile is not missed.
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
    /// [`Semaphore::try_acquire`] is contended, or the share is still acquiring one for a call that was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a permit that it was about to get.
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
        // Before the look for an idle permit, because the acquisition may end with one.
        let is_full = self.0.grows_for_nobody();
        match self.0.lend(turn).await {
            Ok(permit) => Ok(Some(permit)),
            Err(turn) => {
                if is_full {
                    return Ok(None);
                }
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
    /// Lends an idle permit that is held for certain. Returns the turn if no permit is idle.
    async fn lend(self: &Arc<Self>, turn: OwnedSemaphorePermit) -> Result<SharePermit, OwnedSemaphorePermit> {
        loop {
            let Some(permit) = locked(&self.idle).last().map(|(permit, _)| permit.monitor()) else {
                return Err(turn);
            };
            // It stays idle meanwhile: nobody may poll this call any more.
            if permit.state() == HoldState::Suspended {
                permit.state_other_than(HoldState::Suspended).await;
                continue;
            }
            // A drain has asked for it back, and its task may not have run yet. Looked at without the lock, because that may run
            // the user's code.
            let is_lent = permit.state() == HoldState::Held && is_kept(&permit);
            let taken = {
                let mut idle = locked(&self.idle);
                let at = idle.iter().rposition(|(idle, _)| idle.fencing_token() == permit.fencing_token());
                at.map(|at| idle.remove(at).0)
            };
            match taken {
                Some(permit) if is_lent => {
                    return Ok(SharePermit { permit: Some(permit), _turn: turn, share: Arc::downgrade(self) });
                }
                // It is released, or another task has it.
                taken => drop(taken),
            }
        }
    }

    /// Waits until the share has another permit of the semaphore.
    async fn grow(self: &Arc<Self>) -> Result<()> {
        let grown = locked(&self.growing).get_or_insert_with(|| self.begin_to_grow()).grown.clone();
        if let Ok(grown) = grown.await {
            return grown;
        }
        let is_dead = |growing: &mut Growing| growing.grown.peek().is_some_and(Result::is_err);
        let dead = locked(&self.growing).take_if(is_dead);
        match dead {
            // It has left the queue because nobody waited.
            None => Ok(()),
            Some(_) => Err(self.semaphore.session_error().unwrap_or_else(|| {
                let reason = "the task that waited for a permit is gone with its runtime, or has panicked";
                Error::SessionEnded { reason: reason.to_owned() }
            })),
        }
    }

    /// Returns whether a permit is being acquired although the call that wanted it was dropped. Nobody has a turn for that permit, so
    /// another one beside it could be one too many.
    fn grows_for_nobody(&self) -> bool {
        let is_wanted = Arc::strong_count(&self.waiting) > 1;
        !is_wanted && locked(&self.growing).as_ref().is_some_and(|one| one.grown.clone().now_or_never().is_none())
    }

    /// Starts to acquire a permit, on the session's runtime: the runtime of the waiting task may end sooner.
    fn begin_to_grow(self: &Arc<Self>) -> Growing {
        let (report, grown) = oneshot::channel();
        let (share, semaphore, mut task) = (Arc::downgrade(self), self.semaphore.clone(), JoinSet::new());
        let acquire = async move {
            let acquired = semaphore.acquire().await;
            let Some(share) = share.upgrade() else { return };
            // Before it is cleared, so that nobody acquires another permit between the two.
            let added = acquired.map(|permit| share.add(permit));
            // Cleared before the report: a task that is woken by it may start the next acquisition.
            let ended = locked(&share.growing).take();
            // Fails if no task waits for the report any more.
            let _ = report.send(added);
            drop(ended);
        };
        task.spawn_on(acquire, self.semaphore.home());
        task.spawn_on(leave(Arc::downgrade(self), self.idle_time), self.semaphore.home());
        Growing { _task: task, grown: grown.shared() }
    }

    /// Adds a new permit, which is idle.
    fn add(self: &Arc<Self>, permit: SemaphorePermit) {
        self.semaphore.home().spawn(watch(Arc::downgrade(self), permit.monitor(), self.idle_time));
        locked(&self.idle).push((permit, Instant::now()));
        self.returned.notify_waiters();
    }
}

/// Returns whether a permit is neither lost nor revoked.
fn is_kept(permit: &HoldMonitor) -> bool {
    !permit.state().has_ended() && permit.revoke_requested().now_or_never().is_none()
}

/// Releases idle permits whose time is over, or that are lost or revoked. Checks every quarter of the idle time, and when
/// `permit` is revoked, until `permit` has ended.
async fn watch(share: Weak<Share>, permit: HoldMonitor, idle_time: Duration) {
    let (mut asked, mut ended) = (pin!(permit.revoke_requested().fuse()), pin!(permit.ended()));
    loop {
        tokio::select! {
            () = &mut asked => {}
            _ = &mut ended => return,
            () = sleep(idle_time / 4) => {}
        }
        let Some(share) = share.upgrade() else { return };
        let idle: Vec<_> = locked(&share.idle).iter().map(|(permit, since)| (permit.monitor(), *since)).collect();
        // A call may wait until one that is suspended is held again.
        let is_idle = |(permit, since): &(HoldMonitor, Instant)| {
            since.elapsed() >= idle_time && permit.state() != HoldState::Suspended
        };
        let is_over = |idle: &(HoldMonitor, Instant)| is_idle(idle) || !is_kept(&idle.0);
        // Looked at and dropped without the lock: both may run the user's code.
        let over: Vec<_> =
            idle.into_iter().filter(is_over).map(|(permit, since)| (permit.fencing_token(), since)).collect();
        let is_same =
            |(permit, since): &mut (SemaphorePermit, Instant)| over.contains(&(permit.fencing_token(), *since));
        let released: Vec<_> = locked(&share.idle).extract_if(.., is_same).collect();
        drop(released);
    }
}

/// Leaves the semaphore's queue when no task was waiting at two checks, an idle time apart.
async fn leave(share: Weak<Share>, idle_time: Duration) {
    let mut was_wanted = true;
    loop {
        sleep(idle_time).await;
        let Some(share) = share.upgrade() else { return };
        let is_wanted = Arc::strong_count(&share.waiting) > 1;
        if !is_wanted && !was_wanted {
            // This also aborts the task of this function.
            drop(locked(&share.growing).take());
        }
        was_wanted = is_wanted;
    }
}

/// A permit of a [`SemaphoreShare`]. Dropping it returns it to the share, for the next task of the process.
///
/// It dereferences to the [`Hold`] of the semaphore's permit. All tasks that use the permit, one after the other, have this
/// hold. So they have the same [token](crate::FencingToken), which does not order the holders of a semaphore.
#[derive(Debug)]
#[clippy::has_significant_drop]
#[must_use = "dropping the permit returns it"]
pub struct SharePermit {
    /// `None` only during the drop.
    permit: Option<SemaphorePermit>,
    /// Dropped after the permit, so that the next task finds the permit idle.
    _turn: OwnedSemaphorePermit,
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
        if is_kept(&permit.monitor()) {
            locked(&share.idle).push((permit, Instant::now()));
            share.returned.notify_waiters();
        }
    }
}
