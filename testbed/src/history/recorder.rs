//! What a client of locks carries along to write down what it does.

use std::sync::Arc;

use super::{Acquire, Event, History, Step, now};

/// Writes down what one process does: a session, say.
///
/// A clone writes for the same process. No call blocks for longer than it takes to append a line, and none panics.
#[derive(Clone, Debug)]
pub struct Process {
    history: History,
    name: Arc<str>,
}

impl Process {
    pub(super) fn new(history: History, name: Arc<str>) -> Self {
        Self { history, name }
    }

    /// Writes down that an acquire is invoked. Call it before the lock.
    pub fn acquire(&self, acquire: Acquire) -> Acquiring {
        let Acquire { object, mode, owner } = acquire;
        let attempt = self.history.next_attempt();
        let pen = Pen { process: self.clone(), object, attempt, on_drop: Some(Step::AcquireUnknown) };
        pen.write(Step::Acquire { mode, owner });
        Acquiring { pen }
    }
}

/// An acquire under way. Dropping it says that its outcome is unknown.
#[derive(Debug)]
#[must_use = "an acquire that is dropped has an unknown outcome"]
pub struct Acquiring {
    pen: Pen,
}

impl Acquiring {
    /// Writes down that the place in line is certainly taken, with its number if it is known.
    ///
    /// Who loses its place and takes another writes that down again.
    pub fn enqueued(&self, place: Option<i64>) {
        self.pen.write(Step::Enqueued { place });
    }

    /// Writes down that the lock is held. Call it once the lock has said so.
    pub fn ok(mut self, token: i64) -> Held {
        // A holder that vanishes may have given up its hold by then, or lost it.
        self.pen.on_drop = Some(Step::Release);
        self.pen.write(Step::Acquired { token });
        Held { pen: self.pen }
    }

    /// Writes down that the lock was certainly not taken.
    pub fn fail(mut self) {
        self.pen.end(Step::AcquireFailed);
    }

    /// Writes down that the lock may have been taken, or may be yet.
    pub fn unknown(mut self) {
        self.pen.end(Step::AcquireUnknown);
    }
}

/// A hold. Dropping it says that a release began, and no more: drop it before the guard that it stands for.
#[derive(Debug)]
#[must_use = "a hold that is dropped is about to be released"]
pub struct Held {
    pen: Pen,
}

impl Held {
    /// Looks whether the lock is still held, and writes it down if so.
    ///
    /// It proves that the hold lasted until the look began, whatever becomes of it later.
    pub fn confirm(&self, look: impl FnOnce() -> bool) -> bool {
        // What was seen was true when it was seen, which may be long before it is written down.
        let before = now();
        let held = look();
        if held {
            self.pen.write_at(before, Step::Confirmed);
        }
        held
    }

    /// Writes down that an exclusive hold turns into a shared one with the same token. Call it before the lock.
    pub fn downgrade(&self) {
        self.pen.write(Step::Downgrade);
    }

    /// Writes down that the holder was told of a loss, before which nobody else may have held.
    ///
    /// The judges take it by its word, so it has to be called as soon as the lock says so. Where the caller may be
    /// late, it knows more by [`Self::confirm`] and [`Self::lost_since`].
    pub fn lost(&self) {
        let at = now();
        self.pen.write_at(at, Step::Lost { since: at });
    }

    /// Writes down that the holder was told of a loss, late: others may have held since this instant of [`now`], the
    /// last at which the process certainly ran.
    pub fn lost_since(&self, since: u64) {
        self.pen.write(Step::Lost { since });
    }

    /// Writes down that a release is invoked. Call it before the lock.
    pub fn release(mut self) -> Releasing {
        self.pen.on_drop = Some(Step::ReleaseUnknown);
        self.pen.write(Step::Release);
        Releasing { pen: self.pen }
    }
}

/// A release under way. Dropping it says that its outcome is unknown.
#[derive(Debug)]
#[must_use = "a release that is dropped has an unknown outcome"]
pub struct Releasing {
    pen: Pen,
}

impl Releasing {
    /// Writes down that the lock was released, and held until then.
    pub fn ok(mut self) {
        self.pen.end(Step::Released);
    }

    /// Writes down that the lock had been lost before.
    pub fn lost(mut self) {
        self.pen.end(Step::ReleaseLost);
    }

    /// Writes down that the lock may have been released, or may be yet.
    pub fn unknown(mut self) {
        self.pen.end(Step::ReleaseUnknown);
    }
}

/// Writes the steps of one attempt, the last of them when it is dropped.
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
