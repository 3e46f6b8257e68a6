//! Owns [`SemaphoreShare`]: permits of a semaphore that a process keeps for its tasks.
//!
//! One task, the keeper, has the permits of a share. Calls send it messages, which it handles in order. A dropped
//! [`SharePermit`] comes back to it as a message.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep};

use crate::error::{Error, Result};
use crate::hold::{Hold, HoldMonitor, HoldState};
use crate::semaphore::{Semaphore, SemaphorePermit};

/// The share of a [`Semaphore`] that a process keeps: up to `permits` permits, which it lends to its tasks.
///
/// A task that is done returns its permit to the share, and the next task of the process takes it from there without a
/// request. The share acquires a permit of the semaphore only when a task waits and no permit is idle. It releases a
/// permit that was idle for the [idle time](Self::with_idle_time).
///
/// So a process that has permits does not queue for them. If another process dies in the queue, the share goes on with
/// its permits, except those that it releases because the dead process still misses them. Without a share, each
/// [`acquire`](Semaphore::acquire) may queue, and every caller behind a dead waiter waits until the waiter's session
/// expires.
///
/// # Fairness
///
/// Tasks of one process get permits in the order in which they ask. Between processes a share gives way. When a permit
/// comes back and its [turn](Self::with_turn) of 500 ms is over, the share asks the servers, in one or two small
/// requests, whether another process misses a permit. If so, the share releases this permit, and queues for another if
/// its tasks need one. A permit that no task uses is kept for the idle time, even if other processes wait: choose a
/// short idle time where processes call rarely. [`Semaphore::revoke`] makes a share release a permit: at once if it is
/// idle, otherwise when its task is done. So does [`Session::drain`](crate::Session::drain).
///
/// Clones are handles of one share. When the last one is dropped, idle permits are released at once, and the others
/// when their tasks are done. Keep a handle for as long as the process uses the semaphore.
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
#[derive(Clone)]
pub struct SemaphoreShare {
    settings: Settings,
    /// Sends to the task that keeps the permits. The first call starts that task.
    keeper: Arc<OnceLock<UnboundedSender<Message>>>,
}

/// The longest idle time and the longest turn. No process lives longer. Without a limit, the end of a turn could be past
/// what an `Instant` can hold.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

#[derive(Clone)]
struct Settings {
    semaphore: Semaphore,
    permits: usize,
    idle_time: Duration,
    turn: Duration,
}

impl SemaphoreShare {
    /// Creates a share of at most `permits` permits, which has none at first. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `permits` is zero or larger than the number of permits of the semaphore.
    pub fn new(semaphore: &Semaphore, permits: u32) -> Result<Self> {
        if permits == 0 || permits > semaphore.permits() {
            return Err(Error::invalid("permits", format!("give one to {}, not {permits}", semaphore.permits())));
        }
        let settings = Settings {
            semaphore: semaphore.clone(),
            permits: permits as usize,
            idle_time: Duration::from_secs(10),
            turn: Duration::from_millis(500),
        };
        Ok(Self { settings, keeper: Arc::default() })
    }

    /// Sets how long a permit is kept after its last use. The default is 10 s. Set it before the first call: the
    /// returned handle is another share.
    #[must_use]
    pub fn with_idle_time(mut self, idle_time: Duration) -> Self {
        self.settings.idle_time = idle_time.min(LONGEST);
        Self { keeper: Arc::default(), ..self }
    }

    /// Sets the turn: how long tasks use a permit before the share asks whether another process misses one. If none
    /// does, the share asks again after half a turn. The default is 500 ms. Set it before the first call: the returned
    /// handle is another share.
    #[must_use]
    pub fn with_turn(mut self, turn: Duration) -> Self {
        self.settings.turn = turn.min(LONGEST);
        Self { keeper: Arc::default(), ..self }
    }

    /// Waits for a permit: an idle one, one that another task returns, or a new one of the semaphore.
    ///
    /// In an outage the call waits, as [`Semaphore::acquire`] does. It waits even if a permit is idle, until that
    /// permit is [`Held`](HoldState::Held) again, or lost. While the tasks of the process use all permits of the share,
    /// a call learns of the end of the session only when a permit comes back. If the share's own `acquire` fails, all
    /// waiting calls fail with its error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the process's own queue. If the share is in the semaphore's queue by then, it stays
    /// there for other tasks, and releases the permit if no task waits any more. A future that is kept and not polled
    /// keeps its position, and then its permit.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    ///
    /// # Examples
    ///
    /// See [`SemaphoreShare`].
    pub async fn acquire(&self) -> Result<SharePermit> {
        let keeper = self.keeper.get_or_init(|| {
            let (send, messages) = unbounded_channel();
            let keeper = Keeper::new(self.settings.clone(), messages, send.downgrade());
            self.settings.semaphore.home().spawn(keeper.run());
            send
        });
        let (reply, answer) = oneshot::channel();
        // If the keeper is gone, `reply` is dropped here, and the wait for the answer fails.
        _ = keeper.send(Message::Wants(reply));
        answer.await.unwrap_or_else(|_| {
            let reason = "the task that keeps the permits of a share is gone with its runtime, or has panicked";
            let ended = || Error::SessionEnded { reason: reason.to_owned() };
            Err(self.settings.semaphore.session_error().unwrap_or_else(ended))
        })
    }
}

impl fmt::Debug for SemaphoreShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SemaphoreShare({:?})", self.settings.semaphore.path())
    }
}

/// A message to the task that keeps the permits.
enum Message {
    Wants(oneshot::Sender<Result<SharePermit>>),
    Returned(Lent),
}

/// A permit of the share, and the end of its [turn](SemaphoreShare::with_turn).
#[derive(Debug)]
struct Lent {
    permit: SemaphorePermit,
    turn_ends: Instant,
}

/// A permit that no task uses.
struct Idle {
    lent: Lent,
    /// The task that waits until the permit is to be released, or its state changes.
    waiting: AbortHandle,
}

/// The result of a task that the keeper has spawned.
enum Done {
    Grown(Result<SemaphorePermit>),
    /// The keeper has asked whether another process misses a permit. `true`: this permit is to be released for that
    /// process.
    Looked(Lent, bool),
    /// The idle permit that this task watches has changed its state, or is to be released (`is_over`).
    Noticed {
        is_over: bool,
    },
}

/// The task that keeps the permits of a share, until its last handle is dropped.
struct Keeper {
    settings: Settings,
    messages: UnboundedReceiver<Message>,
    back: WeakUnboundedSender<Message>,
    waiting: VecDeque<oneshot::Sender<Result<SharePermit>>>,
    idle: Vec<Idle>,
    /// The number of permits that tasks use, or that are kept while the keeper asks whether another process misses one.
    used: usize,
    /// Whether another permit is being acquired.
    is_growing: bool,
    /// Whether the keeper is asking if another process misses a permit. It asks for one of its permits at a time, so it
    /// does not release several permits for one caller.
    is_looking: bool,
    tasks: JoinSet<Done>,
}

impl Keeper {
    fn new(settings: Settings, messages: UnboundedReceiver<Message>, back: WeakUnboundedSender<Message>) -> Self {
        let (waiting, idle, tasks) = (VecDeque::new(), Vec::new(), JoinSet::new());
        Self { settings, messages, back, waiting, idle, used: 0, is_growing: false, is_looking: false, tasks }
    }

    async fn run(mut self) {
        loop {
            self.waiting.retain(|waiting| !waiting.is_closed());
            while !self.waiting.is_empty() && self.lend_next() {}
            self.grow();
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(Message::Wants(reply)) => self.waiting.push_back(reply),
                    Some(Message::Returned(lent)) => {
                        self.used -= 1;
                        self.returned(lent);
                    }
                    None => return,
                },
                Some(done) = self.tasks.join_next_with_id() => match done {
                    Ok((task, done)) => self.done(task, done),
                    Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
                    // The task was aborted because its idle permit was lent.
                    Err(_) => {}
                },
            }
        }
    }

    fn done(&mut self, task: Id, done: Done) {
        match done {
            Done::Grown(grown) => {
                self.is_growing = false;
                match grown {
                    // If no call waits any more, the permit is released.
                    Ok(permit) if !self.waiting.is_empty() => self.add(permit),
                    Ok(_) => {}
                    Err(error) => self.waiting.drain(..).for_each(|waiting| _ = waiting.send(Err(error.clone()))),
                }
            }
            Done::Looked(lent, gives_way) => {
                (self.used, self.is_looking) = (self.used - 1, false);
                if gives_way {
                    drop(lent);
                } else {
                    self.idle(Lent { turn_ends: Instant::now() + self.settings.turn / 2, ..lent });
                }
            }
            Done::Noticed { is_over } => {
                // Not found if the permit was lent meanwhile.
                let found = self.idle.iter().position(|idle| idle.waiting.id() == task);
                let lent = found.map(|at| self.idle.remove(at).lent).filter(|_| !is_over);
                lent.into_iter().for_each(|lent| self.idle(lent));
            }
        }
    }

    /// Lends an idle permit to the first waiting call. Returns whether a permit was idle.
    fn lend_next(&mut self) -> bool {
        let Some(lent) = self.take() else { return false };
        let permit = self.lend(lent);
        if let Some(waiting) = self.waiting.pop_front() {
            // If the call was dropped, the permit comes back.
            _ = waiting.send(Ok(permit));
        }
        true
    }

    fn lend(&mut self, lent: Lent) -> SharePermit {
        self.used += 1;
        SharePermit { lent: Some(lent), back: self.back.clone() }
    }

    /// Takes the idle permit that was used last, of those that are held and not revoked. So the other permits reach their
    /// idle time and are released.
    fn take(&mut self) -> Option<Lent> {
        let is_held = |idle: &Idle| {
            let permit = idle.lent.permit.monitor();
            permit.state() == HoldState::Held && is_kept(&permit)
        };
        let at = self.idle.iter().rposition(is_held)?;
        let Idle { lent, waiting } = self.idle.remove(at);
        waiting.abort();
        Some(lent)
    }

    /// Returns how many permits the share has, or is about to have.
    fn count(&self) -> usize {
        self.idle.len() + self.used + usize::from(self.is_growing)
    }

    /// Acquires another permit, if a task waits and the share may have one more.
    fn grow(&mut self) {
        let is_full = self.count() >= self.settings.permits;
        if self.waiting.is_empty() || !self.idle.is_empty() || self.is_growing || is_full {
            return;
        }
        let semaphore = self.settings.semaphore.clone();
        self.is_growing = true;
        self.tasks.spawn(async move { Done::Grown(semaphore.acquire().await) });
    }

    fn add(&mut self, permit: SemaphorePermit) {
        self.idle(Lent { permit, turn_ends: Instant::now() + self.settings.turn });
    }

    /// Handles a permit that a task has returned.
    fn returned(&mut self, lent: Lent) {
        if !is_kept(&lent.permit.monitor()) {
            return;
        }
        if self.is_looking || Instant::now() < lent.turn_ends {
            return self.idle(lent);
        }
        (self.used, self.is_looking) = (self.used + 1, true);
        let (semaphore, is_growing) = (self.settings.semaphore.clone(), self.is_growing);
        self.tasks.spawn(async move {
            let is_missed = semaphore.missing_permits().await.is_ok_and(|missing| missing > 0);
            // While this share acquires another permit, it may itself be the only waiter that misses one.
            let gives_way =
                is_missed && (!is_growing || semaphore.waiting().await.is_ok_and(|waiting| waiting > 1));
            Done::Looked(lent, gives_way)
        });
    }

    /// Keeps an idle permit until it is lent, lost or revoked, or its idle time is over.
    fn idle(&mut self, lent: Lent) {
        let (permit, idle_time) = (lent.permit.monitor(), self.settings.idle_time);
        // `changed` compares with the state at this call, not with the state at the first poll of the task.
        let changed = permit.changed();
        // A suspended permit has no idle time: a call may be waiting until it is held again.
        let is_held = permit.state() == HoldState::Held;
        let waiting = self.tasks.spawn(async move {
            tokio::select! {
                () = permit.revoke_requested() => Done::Noticed { is_over: true },
                _ = permit.ended() => Done::Noticed { is_over: true },
                _ = changed => Done::Noticed { is_over: false },
                () = sleep(idle_time), if is_held => Done::Noticed { is_over: true },
            }
        });
        self.idle.push(Idle { lent, waiting });
    }
}

/// Returns whether the hold of a permit has not ended and nobody has asked to release it.
fn is_kept(permit: &HoldMonitor) -> bool {
    !permit.state().has_ended() && permit.revoke_requested().now_or_never().is_none()
}

/// A permit of a [`SemaphoreShare`]. Dropping it returns it to the share, for the next task of the process.
///
/// It dereferences to the [`Hold`] of the semaphore's permit. All tasks that use the permit, one after the other, have
/// this hold. So they have the same [token](crate::FencingToken), which does not order the holders of a semaphore.
#[derive(Debug)]
#[clippy::has_significant_drop]
#[must_use = "dropping the permit returns it"]
pub struct SharePermit {
    /// `None` only during the drop.
    lent: Option<Lent>,
    back: WeakUnboundedSender<Message>,
}

impl Deref for SharePermit {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.lent.as_ref().expect("it is taken by the drop alone").permit
    }
}

impl Drop for SharePermit {
    fn drop(&mut self) {
        // If the share has no handle any more, this drop releases the permit.
        if let (Some(lent), Some(back)) = (self.lent.take(), self.back.upgrade()) {
            _ = back.send(Message::Returned(lent));
        }
    }
}
