//! The handles with which a client records its operations.

use std::sync::Arc;

use super::{Acquire, Event, History, Step, now};

/// Records the operations of one process, for example a session.
///
/// A clone records for the same process. A call blocks only while it appends a line, and never panics.
#[derive(Clone, Debug)]
pub struct Process {
    history: History,
    name: Arc<str>,
}

impl Process {
    pub(super) fn new(history: History, name: Arc<str>) -> Self {
        Self { history, name }
    }

    /// Records that an acquire is invoked. Call it before the lock's acquire.
    pub fn acquire(&self, acquire: Acquire) -> Acquiring {
        self.acquire_since(acquire, now())
    }

    /// Records that an acquire was invoked at this instant of [`now`] at the earliest: for a lock that another call has chosen and
    /// acquired.
    pub fn acquire_since(&self, acquire: Acquire, since: u64) -> Acquiring {
        let Acquire { object, mode, owner } = acquire;
        let attempt = self.history.next_attempt();
        let pen = Pen { process: self.clone(), object, attempt, on_drop: Some(Step::AcquireUnknown) };
        pen.write_at(since, Step::Acquire { mode, owner });
        Acquiring { pen }
    }
}

/// An acquire in progress. Dropping it records an unknown outcome.
#[derive(Debug)]
#[must_use = "an acquire that is dropped has an unknown outcome"]
pub struct Acquiring {
    pen: Pen,
}

impl Acquiring {
    /// Records that the attempt is certainly in the queue, with the number of its place if known.
    ///
    /// If it loses its place and takes another, call this again.
    pub fn enqueued(&self, place: Option<i64>) {
        self.pen.write(Step::Enqueued { place });
    }

    /// Records that the lock is held. Call it after the lock's acquire returned.
    pub fn ok(mut self, token: i64) -> Held {
        // A holder that vanishes may have released its hold by then, or lost it.
        self.pen.on_drop = Some(Step::Release);
        self.pen.write(Step::Acquired { token });
        Held { pen: self.pen }
    }

    /// Records that the lock was certainly not acquired.
    pub fn fail(mut self) {
        self.pen.end(Step::AcquireFailed);
    }

    /// Records that the lock may have been acquired, or may still be.
    pub fn unknown(mut self) {
        self.pen.end(Step::AcquireUnknown);
    }
}

/// A hold. Dropping it records only that a release began: drop it before its guard.
#[derive(Debug)]
#[must_use = "a hold that is dropped is about to be released"]
pub struct Held {
    pen: Pen,
}

impl Held {
    /// Checks whether the lock is still held, and records it if so.
    ///
    /// It proves that the hold lasted until the check began.
    pub fn confirm(&self, look: impl FnOnce() -> bool) -> bool {
        // The result was true when the check began, which may be long before it is recorded.
        let before = now();
        let held = look();
        if held {
            self.pen.write_at(before, Step::Confirmed);
        }
        held
    }

    /// Records that an exclusive hold turns into a shared one with the same token. Call it before the lock's downgrade.
    pub fn downgrade(&self) {
        self.pen.write(Step::Downgrade);
    }

    /// Records that the holder learned of a loss. Nobody else may have held the lock before this instant.
    ///
    /// The judges rely on that instant, so call it as soon as the lock reports the loss. If the call may be late, use
    /// [`Self::confirm`] and [`Self::lost_since`].
    pub fn lost(&self) {
        let at = now();
        self.pen.write_at(at, Step::Lost { since: at });
    }

    /// Records that the holder learned of a loss late. Others may have held the lock since this instant of [`now`], the
    /// last one at which the process certainly ran.
    pub fn lost_since(&self, since: u64) {
        self.pen.write(Step::Lost { since });
    }

    /// Records that a release is invoked. Call it before the lock's release.
    pub fn release(mut self) -> Releasing {
        self.pen.on_drop = Some(Step::ReleaseUnknown);
        self.pen.write(Step::Release);
        Releasing { pen: self.pen }
    }
}

/// A release in progress. Dropping it records an unknown outcome.
#[derive(Debug)]
#[must_use = "a release that is dropped has an unknown outcome"]
pub struct Releasing {
    pen: Pen,
}

impl Releasing {
    /// Records that the lock was released, and held until then.
    pub fn ok(mut self) {
        self.pen.end(Step::Released);
    }

    /// Records that the lock had already been lost.
    pub fn lost(mut self) {
        self.pen.end(Step::ReleaseLost);
    }

    /// Records that the lock may have been released, or may still be.
    pub fn unknown(mut self) {
        self.pen.end(Step::ReleaseUnknown);
    }
}

/// Writes the steps of one attempt; dropping it writes the last one.
#[derive(Debug)]
struct Pen {
    process: Process,
    object: Arc<str>,
    attempt: u64,
    on_drop: Option<Step>,
}

impl Pen {
    fn write(&self, step: Step) {
        self.write_at(now(), step);
    }

    fn write_at(&self, at: u64, step: Step) {
        let (process, object) = (Arc::clone(&self.process.name), Arc::clone(&self.object));
        self.process.history.append(Event { at, process, object, attempt: self.attempt, step });
    }

    fn end(&mut self, step: Step) {
        self.on_drop = None;
        self.write(step);
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        if let Some(step) = self.on_drop.take() {
            self.write(step);
        }
    }
}
