//! One line of a history: what a process did to a lock, or heard of it, and when.

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The present instant of the machine's monotonic clock, in nanoseconds.
///
/// All processes of one machine share it, so their histories can be merged. It says nothing to another machine, nor
/// after a restart of this one.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or_default())
}

/// What a process did to a lock, or heard of it, and when.
///
/// Plain data: a line of a file holds all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When, in nanoseconds of the monotonic clock. Before the call for steps that begin something, after it for
    /// steps that end something.
    pub at: u64,
    /// Who: a session, say. A process that was started again needs a new name.
    pub process: Arc<str>,
    /// Which lock: its path.
    pub object: Arc<str>,
    /// Which acquire of the process this is about; unique for a process.
    pub attempt: u64,
    /// What happened.
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

/// What happened to an attempt to hold a lock, from its invocation to the end of its release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Step {
    /// The acquire was invoked.
    Acquire {
        /// How the lock is to be held.
        mode: Mode,
        /// Who in the process may acquire again what it holds; nobody if `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<Arc<str>>,
    },
    /// The place in line is known to be taken.
    Enqueued {
        /// The place's number, which becomes the token of the hold, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<i64>,
    },
    /// The acquire succeeded.
    Acquired {
        /// The fencing token of the hold.
        token: i64,
    },
    /// The acquire failed: it certainly never held.
    AcquireFailed,
    /// The acquire ended, and it may have held at any time since its invocation, and may do so yet.
    AcquireUnknown,
    /// The holder looked after this instant, and still held.
    Confirmed,
    /// The holder of an exclusive hold began to turn it into a shared one.
    Downgrade,
    /// The holder was told that it lost the hold.
    Lost {
        /// Since when another may have held: the same instant if the process ran, and the last at which it certainly
        /// ran if it was paused.
        since: u64,
    },
    /// The release was invoked.
    Release,
    /// The release succeeded: it was held until then.
    Released,
    /// The release found that the hold had been lost, at any time since it was granted.
    ReleaseLost,
    /// The release ended, and may have happened or may yet; or the hold may have been lost before.
    ReleaseUnknown,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// By nobody else.
    Exclusive,
    /// Together with others that share it: as a reader, or with one permit.
    Shared,
    /// With this many permits of a semaphore.
    Permits(u32),
}

/// What is asked of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acquire {
    /// Which lock: its path.
    pub object: Arc<str>,
    /// How it is to be held.
    pub mode: Mode,
    /// Who in the process may acquire again what it holds; nobody if `None`.
    pub owner: Option<Arc<str>>,
}

impl Acquire {
    /// Asks to hold alone.
    pub fn exclusive(object: impl Into<Arc<str>>) -> Self {
        Self { object: object.into(), mode: Mode::Exclusive, owner: None }
    }

    /// Asks to hold together with others that share.
    pub fn shared(object: impl Into<Arc<str>>) -> Self {
        Self { object: object.into(), mode: Mode::Shared, owner: None }
    }

    /// Asks for this many permits at once.
    pub fn permits(object: impl Into<Arc<str>>, permits: u32) -> Self {
        Self { object: object.into(), mode: Mode::Permits(permits), owner: None }
    }

    /// Says who asks: the same owner in the same process may acquire again what it holds.
    #[must_use]
    pub fn with_owner(self, owner: impl Into<Arc<str>>) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }
}
