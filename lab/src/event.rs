//! What contenders report, a line of JSON each.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A step of a contender, or of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum What {
    /// It is connected.
    Ready,
    /// It begins to wait for the lock.
    Requested,
    /// It has the lock.
    Granted,
    /// It has read the counter.
    Read,
    /// It waits for the laboratory.
    AtGate,
    /// It sends its write.
    Writing,
    /// The store has acknowledged its write.
    Written,
    /// The store has refused its token.
    Refused,
    /// The row had another version.
    Conflict,
    /// The answer to its write did not come in time.
    Unknown,
    /// It has noticed that the lock is lost, and does not write.
    Noticed,
    /// It has locked again what it held, and released that second lock.
    Again,
    /// It has released the lock.
    Released,
    /// Its release failed.
    ReleaseFailed,
    /// It has given up waiting.
    Cancelled,
    /// Something else failed, and it tries again.
    Failed,
    /// It has done all its rounds.
    Done,
    /// The laboratory did something: the text.
    Fault,
}

/// A step, and when it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// Nanoseconds of the machine's monotonic clock, which all processes share; in JSON since the run began.
    pub at: u64,
    /// Which contender; filled in by the laboratory.
    #[serde(default)]
    pub contender: String,
    /// Which task of the contender.
    #[serde(default)]
    pub task: usize,
    /// What it did.
    pub what: What,
    /// The token, the value, or the number of wake-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Event {
    /// A step now.
    pub fn now(task: usize, what: What) -> Self {
        Self { at: now(), contender: String::new(), task, what, number: None, text: None }
    }

    /// With a number.
    pub fn with_number(self, number: i64) -> Self {
        Self { number: Some(number), ..self }
    }

    /// With a text.
    pub fn with_text(self, text: impl ToString) -> Self {
        Self { text: Some(text.to_string()), ..self }
    }
}

/// The monotonic clock.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
