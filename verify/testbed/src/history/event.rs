//! One line of a history: a step of a process with a lock, and its time.

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The present instant of the machine's monotonic clock, in nanoseconds.
///
/// All processes of one machine share it, so their histories can be merged. It has no meaning on another machine, or
/// after a reboot.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default())
}

/// A step of a process with a lock, and its time.
///
/// Plain data: one line of a file holds all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// The time in nanoseconds of the monotonic clock: before the call for steps that begin an operation, after it for
    /// steps that end one.
    pub at: u64,
    /// The process, for example a session. A restarted process needs a new name.
    pub process: Arc<str>,
    /// The path of the lock.
    pub object: Arc<str>,
    /// The number of the acquire, unique within the process.
    pub attempt: u64,
    /// The step.
    #[serde(flatten)]
    pub step: Step,
}

impl Event {
    /// Makes an event.
    pub fn new(
        at: u64,
        process: impl Into<Arc<str>>,
        object: impl Into<Arc<str>>,
        attempt: u64,
        step: Step,
    ) -> Self {
        Self { at, process: process.into(), object: object.into(), attempt, step }
    }
}

/// A step of an attempt to hold a lock, from its invocation to the end of its release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The acquire was invoked.
    Acquire {
        /// How to hold the lock.
        mode: Mode,
        /// The owner in the process that may acquire again; `None` without re-entrance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<Arc<str>>,
    },
    /// The attempt is known to be in the queue.
    Enqueued {
        /// The number of its place, which becomes the token of the hold, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<i64>,
    },
    /// The acquire succeeded.
    Acquired {
        /// The fencing token of the hold.
        token: i64,
    },
    /// The acquire failed: the lock was certainly never held.
    AcquireFailed,
    /// The acquire ended with an unknown outcome: the lock may have been held at any time since its invocation, and may
    /// still be.
    AcquireUnknown,
    /// The holder checked after this instant, and still held the lock.
    Confirmed,
    /// The holder began to turn an exclusive hold into a shared one.
    Downgrade,
    /// The holder learned that it had lost the hold.
    Lost {
        /// Since when another process may have held the lock: the same instant if the process ran, or the last instant
        /// at which it certainly ran if it was paused.
        since: u64,
    },
    /// The release was invoked.
    Release,
    /// The release succeeded: the lock was held until then.
    Released,
    /// The release found that the hold had been lost at some time since it was granted.
    ReleaseLost,
    /// The release ended with an unknown outcome: it may have happened, may still happen, or the hold was lost before.
    ReleaseUnknown,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// Exclusively.
    Exclusive,
    /// Together with other shared holds: as a reader, or with one permit.
    Shared,
    /// With this many permits of a semaphore.
    Permits(u32),
}

/// A request for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acquire {
    /// The path of the lock.
    pub object: Arc<str>,
    /// How to hold it.
    pub mode: Mode,
    /// The owner in the process that may acquire again; `None` without re-entrance.
    pub owner: Option<Arc<str>>,
}

impl Acquire {
    /// A request for an exclusive hold.
    pub fn exclusive(object: impl Into<Arc<str>>) -> Self {
        Self { object: object.into(), mode: Mode::Exclusive, owner: None }
    }

    /// A request for a shared hold.
    pub fn shared(object: impl Into<Arc<str>>) -> Self {
        Self { object: object.into(), mode: Mode::Shared, owner: None }
    }

    /// A request for this many permits at once.
    pub fn permits(object: impl Into<Arc<str>>, permits: u32) -> Self {
        Self { object: object.into(), mode: Mode::Permits(permits), owner: None }
    }

    /// Sets the owner: the same owner in the same process may acquire the lock again while it holds it.
    #[must_use]
    pub fn with_owner(self, owner: impl Into<Arc<str>>) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }
}
