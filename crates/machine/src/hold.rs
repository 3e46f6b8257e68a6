//! A hold: its state, its release, and the renewal of the trust that it needs.

use std::fmt;

use crate::{Acquisition, Ask, End, Loss, Machine, Moment, Op, Phase, Timer, Trust, caller_of, is_turn};

/// The state of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldState {
    /// The lock is held. The session is connected, and the servers certainly keep it alive.
    Held,
    /// The lock is certainly still ours, but the connection is lost, or no answer has come for half a session timeout.
    /// Begin nothing that takes long. The state becomes `Held` again, or `Lost`.
    Suspended,
    /// The lock is lost for good. Another contender may hold it.
    Lost(Loss),
    /// The lock was released, or its guard was dropped. Only a `HoldMonitor` shows this.
    Released,
}

impl HoldState {
    /// Whether the hold is over: released or lost.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Lost(_) | Self::Released)
    }

    /// Returns this state if the hold has ended.
    #[doc(hidden)]
    #[must_use]
    pub fn end(self) -> Option<Self> {
        self.has_ended().then_some(self)
    }

    /// Returns why the hold was lost, if it was.
    #[must_use]
    pub fn loss(self) -> Option<Loss> {
        match self {
            Self::Lost(loss) => Some(loss),
            Self::Held | Self::Suspended | Self::Released => None,
        }
    }
}

impl fmt::Display for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Suspended => f.write_str("suspended"),
            Self::Lost(loss) => write!(f, "lost: {loss}"),
            Self::Released => f.write_str("released"),
        }
    }
}

/// The error of work that is cut off at the end of its hold.
impl std::error::Error for HoldState {}

impl<T: Trust> Machine<T> {
    /// Computes the state of an acquisition's hold. `None` if the acquisition was not granted.
    #[must_use]
    pub fn state(&self, now: Moment, op: Op) -> Option<HoldState> {
        match self.phase(op)? {
            Phase::Held if !self.is_trusted(now) => Some(HoldState::Lost(Loss::TrustEnded)),
            Phase::Held if self.has_stalled(now, op) => Some(HoldState::Lost(Loss::Stalled)),
            Phase::Held if self.is_up && self.trust.fresh_until() >= now => Some(HoldState::Held),
            Phase::Held => Some(HoldState::Suspended),
            Phase::Over(End::Lost(loss)) => Some(HoldState::Lost(loss)),
            Phase::Releasing | Phase::Over(End::Released) => Some(HoldState::Released),
            _ => None,
        }
    }

    /// Returns the holds, including those that are being released. A turn is no hold, because it locks nothing.
    pub fn holds(&self) -> impl Iterator<Item = (Op, &Acquisition)> {
        self.ops().filter(|(op, acquisition)| acquisition.phase.is_hold() && !is_turn(*op))
    }

    /// Returns when a hold is lost if no server answers any more.
    pub fn valid_until(&self, op: Op) -> Moment {
        let until = self.trust.until();
        self.timers.set.get(&Timer::Stall(op)).map_or(until, |limit| until.min(*limit))
    }

    /// Returns when the state of a hold may next change without an event.
    pub fn changes_at(&self, now: Moment, op: Op) -> Moment {
        // No event reports the answer that ends a silence, so look again soon.
        let fresh = self.trust.fresh_until();
        self.valid_until(op).min(if fresh >= now { fresh } else { now.plus(self.timeout.0 / 32) })
    }

    pub fn is_trusted(&self, now: Moment) -> bool {
        self.trust.until() > now
    }

    /// Returns whether the lock is held. A granted turn does not count, because it locks nothing.
    pub(crate) fn is_held(&self, op: Op) -> bool {
        self.phase(op) == Some(Phase::Held) && !is_turn(op)
    }

    pub(crate) fn grant(&mut self, now: Moment, op: Op) {
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        acquisition.phase = Phase::Held;
        if !is_turn(op) {
            acquisition.age = 0;
            self.timers.set(Timer::Tick, now.plus(self.timeout.0 / 16));
            self.timers.set(Timer::TrustEnds, self.trust.until());
            if let Some(limit) = acquisition.spec.stall_limit {
                self.timers.set(Timer::Stall(op), now.plus(limit.first));
            }
        }
        self.wake(op);
        self.watch_local_head(op);
        self.turn_or_permits_came(now, op);
    }

    /// Releases a hold by deleting its nodes. Followers of an exclusive hold may be granted the lock as soon as
    /// the delete is sent.
    pub fn release(&mut self, now: Moment, op: Op) {
        let (is_up, is_trusted) = (self.is_up, self.is_trusted(now));
        let Some(acquisition) = self.ops.get_mut(&op).filter(|acquisition| acquisition.phase == Phase::Held)
        else {
            return;
        };
        if !is_trusted {
            return self.finish(now, op, End::Lost(Loss::TrustEnded));
        }
        let hands_over =
            is_up && acquisition.single().is_some_and(|queue| queue.kind.is_exclusive() && !queue.is_near_wrap());
        acquisition.phase = Phase::Releasing;
        let followers = if hands_over { std::mem::take(&mut acquisition.followers) } else { Vec::new() };
        self.leave(now, op, true);
        for (follower, path) in followers {
            self.handed_over(now, follower, path);
        }
    }

    /// Begins the stall limit of a hold again.
    pub fn progress(&mut self, now: Moment, op: Op) {
        let held = self.ops.get(&op).filter(|acquisition| acquisition.phase == Phase::Held);
        if let Some(limit) = held.and_then(|acquisition| acquisition.spec.stall_limit) {
            self.timers.remove(Timer::Stall(op));
            self.timers.set(Timer::Stall(op), now.plus(limit.next));
        }
    }

    fn has_stalled(&self, now: Moment, op: Op) -> bool {
        let due = self.timers.set.get(&Timer::Stall(op));
        due.is_some_and(|due| *due <= now && !self.is_late(now, *due))
    }

    /// Returns whether a timer is so late that the process must have stood still: nobody has looked.
    fn is_late(&self, now: Moment, due: Moment) -> bool {
        due.plus(self.timeout.0 / 64) <= now
    }

    /// Ends a hold whose work stands still. If the process stood still, the work could not move, and gets a little more time.
    /// `due`: when the limit passed.
    pub fn stalled(&mut self, now: Moment, op: Op, due: Option<Moment>) {
        let is_late = due.is_some_and(|due| self.is_late(now, due));
        match self.phase(op) {
            Some(Phase::Held) if is_late => self.timers.set(Timer::Stall(op), now.plus(self.timeout.0 / 16)),
            Some(Phase::Held) => self.finish(now, op, End::Lost(Loss::Stalled)),
            _ => {}
        }
    }

    /// Notes a request to release. The request may come while the acquisition still waits.
    pub(crate) fn asked_back(&mut self, op: Op) {
        let op = caller_of(op);
        if let Some(acquisition) = self.ops.get_mut(&op) {
            acquisition.asked_back = true;
            self.wake(op);
        }
    }

    /// Watches the nodes of a hold, so that their deletion is noticed at once.
    pub(crate) fn watch_for_loss(&mut self, op: Op) {
        if let Some(acquisition) = self.ops.get_mut(&op) {
            acquisition.age = 2;
            self.watch_own(op, None);
        }
    }

    /// Watches the nodes of holds that have lasted two ticks, and renews trust. Called every sixteenth of the session
    /// timeout.
    pub fn tick(&mut self, now: Moment) {
        let held: Vec<Op> =
            self.holds().filter(|(_, acquisition)| acquisition.phase == Phase::Held).map(|(op, _)| op).collect();
        for op in &held {
            if let Some(acquisition) = self.ops.get_mut(op) {
                acquisition.age = (acquisition.age + 1).min(2);
            }
            self.watch_own(*op, None);
        }
        if held.is_empty() {
            return;
        }
        self.renew(now);
        self.timers.set(Timer::Tick, now.plus(self.timeout.0 / 16));
    }

    /// Sends the read and the check that renew the trust of holds, if they are due.
    pub fn renew(&mut self, now: Moment) {
        if !self.is_up || !self.holds().any(|(_, acquisition)| acquisition.phase == Phase::Held) {
            return;
        }
        if !self.renewing.read && self.trust.read_due() <= now {
            self.renewing.read = true;
            self.send(Ask::Read);
        }
        if !self.renewing.check && self.trust.due() <= now {
            self.renewing.check = true;
            self.send(Ask::Check);
        }
        // A request under way becomes due again at a tick after its answer.
        let dues = [(self.renewing.read, self.trust.read_due()), (self.renewing.check, self.trust.due())];
        let next = dues.into_iter().filter(|(is_asked, _)| !is_asked).map(|(_, due)| due).min();
        if let Some(next) = next.filter(|next| *next < now.plus(self.timeout.0 / 16)) {
            self.timers.set(Timer::Renew, next);
        }
    }

    /// Schedules another confirm for the time when a write can renew trust.
    pub(crate) fn confirm_later(&mut self, now: Moment) {
        let at = self.trust.due().max(now.plus(self.timeout.0 / 64));
        self.timers.set(Timer::Confirm, at);
    }

    pub(crate) fn confirm_all(&mut self, now: Moment) {
        let is_due = |phase| matches!(phase, Phase::Confirming { is_asked: false, .. });
        let ops: Vec<Op> =
            self.ops.iter().filter(|(_, acquisition)| is_due(acquisition.phase)).map(|(op, _)| *op).collect();
        ops.into_iter().for_each(|op| self.send_confirmation(now, op));
        self.identify();
    }

    pub(crate) fn trust_ended(&mut self, now: Moment) {
        if self.is_trusted(now) {
            // Trust was renewed meanwhile.
            if self.holds().next().is_some() {
                self.timers.set(Timer::TrustEnds, self.trust.until());
            }
            return;
        }
        let holds: Vec<Op> = self.holds().map(|(op, _)| op).collect();
        holds.into_iter().for_each(|op| self.finish(now, op, End::Lost(Loss::TrustEnded)));
    }
}
