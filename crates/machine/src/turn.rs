//! The turns of a semaphore. If the answer to one create cannot grant a caller its permits, the caller waits for its
//! turn in a separate queue. Only the caller with the turn creates permits, so callers count them one after the other.
//!
//! A turn is an acquisition of its own. Its `Op` is the caller's with the highest bit set.

use std::sync::Arc;

use crate::{
    Acquisition, Admission, End, Kind, Machine, Moment, Op, Phase, Position, Spec, TURN, Timer, Trust, caller_of,
    is_turn, turn_of,
};

impl<T: Trust> Machine<T> {
    /// Makes a caller wait for its turn, because other contenders may have permits.
    pub(crate) fn take_turn(&mut self, now: Moment, op: Op) {
        self.leave(now, op, false);
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        let Admission::Permits { limit, turn: Some(path) } = acquisition.spec.admission else { return };
        let spec = Spec::clone(&acquisition.spec);
        let turn = Spec {
            queues: vec![(path, Kind::Lock)],
            admission: Admission::First,
            waits: true,
            stall_limit: None,
            may_count: spec.may_count,
        };
        let in_turn = Spec { admission: Admission::Permits { limit, turn: None }, ..spec };
        (acquisition.phase, acquisition.in_turn) = (Phase::Turning, Some(Arc::new(in_turn)));
        self.acquire(now, turn_of(op), &Arc::new(turn));
    }

    /// Returns the acquisition that waits for a caller: its turn, or the caller's own.
    fn waiting(&self, op: Op) -> Option<&Acquisition> {
        let own = self.op(op)?;
        if own.phase == Phase::Turning { self.op(turn_of(op)) } else { Some(own) }
    }

    /// Returns how many contenders are ahead of a caller, or how many permits are missing.
    pub fn ahead(&self, op: Op) -> usize {
        self.waiting(op).map(Acquisition::ahead).unwrap_or_default()
    }

    /// Handles a listing that shows how many turns are ahead of this one.
    pub(crate) fn turn_listed(&mut self, now: Moment, turn: Op, ahead: usize) {
        let op = caller_of(turn);
        if ahead == 0 {
            return;
        }
        // While the turn waited, a revocation request may have been written to its node. So the node is watched as soon
        // as the turn is granted.
        self.ops.get_mut(&turn).into_iter().for_each(|acquisition| acquisition.age = 2);
        // The caller with the turn gives the turn up when it has its permits. That is soon if enough permits are free. So
        // a `try` waits a little for its turn before it ends as contended.
        if self.ops.get(&op).is_some_and(|acquisition| !acquisition.spec.waits) {
            self.timers.set(Timer::Turn(op), now.plus(self.timeout.0 / 8));
        }
    }

    pub(crate) fn turn_is_late(&mut self, now: Moment, op: Op) {
        if self.phase(op) == Some(Phase::Turning) {
            self.finish(now, op, End::Contended);
        }
    }

    /// Continues after a grant. A caller with the turn creates its permits. A caller with its permits gives up the
    /// turn.
    pub(crate) fn turn_or_permits_came(&mut self, now: Moment, op: Op) {
        if !is_turn(op) {
            return self.give_turn_up(now, op);
        }
        let op = caller_of(op);
        if let Some(acquisition) = self.ops.get_mut(&op).filter(|acquisition| acquisition.phase == Phase::Turning)
        {
            acquisition.phase = acquisition.initial_phase();
            self.send_create(now, op);
        }
    }

    /// Ends a caller that loses its turn without permits, and the turn of a caller that ends.
    pub(crate) fn turn_or_caller_ended(&mut self, now: Moment, op: Op, end: End) {
        let caller = caller_of(op);
        match self.phase(caller) {
            Some(phase) if is_turn(op) && phase.is_queuing() => self.finish(now, caller, end),
            // The turn itself is kept: the error of the caller may name the turn's node.
            Some(Phase::Over(_)) if !is_turn(op) => {
                self.leave(now, turn_of(op), false);
                self.ops.get_mut(&turn_of(op)).into_iter().for_each(|turn| turn.phase = Phase::Over(end));
            }
            _ => {}
        }
    }

    /// Changes how many permits a caller's semaphore has. A hold keeps its permits.
    pub(crate) fn change_permits(&mut self, op: Op, limit: u32) {
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        for spec in [Some(&mut acquisition.spec), acquisition.in_turn.as_mut()].into_iter().flatten() {
            Arc::make_mut(spec).set_permits(limit);
        }
        if let Some(at) = acquisition.queues.iter().position(|queue| queue.position == Position::PermitsTaken) {
            self.request_listing(op, at);
        }
    }

    pub(crate) fn has_turn(&self, op: Op) -> bool {
        self.ops.contains_key(&turn_of(op))
    }

    pub(crate) fn give_turn_up(&mut self, now: Moment, op: Op) {
        if !is_turn(op) && self.has_turn(op) {
            self.abandon(now, turn_of(op));
        }
    }

    /// Drops all turns, because they end with the session. Callers begin again in the next session.
    pub(crate) fn forget_turns(&mut self) {
        drop(self.ops.split_off(&TURN));
        self.ops.values_mut().for_each(|acquisition| acquisition.in_turn = None);
    }
}
