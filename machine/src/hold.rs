//! A hold: its state, its release, and the trust that it rests on.

use crate::{Action, End, Loss, Machine, Moment, Node, Op, Place, Stage, Timer, Trust};

/// The state of a hold, computed when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldState {
    Held,
    Released,
    Lost(Loss),
}

impl<T: Trust> Machine<T> {
    /// The state of the hold of an acquisition that was granted.
    #[must_use]
    pub fn state(&self, now: Moment, op: Op) -> Option<HoldState> {
        match self.stage(op)? {
            Stage::Held if self.is_trusted(now) => Some(HoldState::Held),
            Stage::Held => Some(HoldState::Lost(Loss::Expired)),
            Stage::Over(End::Lost(loss)) => Some(HoldState::Lost(loss)),
            Stage::Releasing | Stage::Over(End::Released) => Some(HoldState::Released),
            Stage::Queuing(_) | Stage::Over(_) => None,
        }
    }

    pub(crate) fn is_trusted(&self, now: Moment) -> bool {
        self.trust.until() > now
    }

    /// Whether trust lasts until a round trip is over.
    pub(crate) fn is_trusted_for_long(&self, now: Moment) -> bool {
        self.trust.until() > now.plus(self.timeout.0 / 3)
    }

    pub(crate) fn hold(&mut self, now: Moment, op: Op) {
        if let Some(one) = self.ops.get_mut(&op) {
            one.stage = Stage::Held;
        }
        self.tick_later(now);
        self.wake(op);
        self.at_front(op);
    }

    /// Deletes the node. The followers hold the lock as soon as the delete is sent.
    pub(crate) fn release(&mut self, now: Moment, op: Op) {
        let hands_over = self.is_up && self.is_trusted_for_long(now);
        let is_trusted = self.is_trusted(now);
        let Some(one) = self.ops.get_mut(&op).filter(|one| one.stage == Stage::Held) else { return };
        let Node::There { name, .. } = one.node else { return };
        if !is_trusted {
            return self.finish(now, op, End::Lost(Loss::Expired));
        }
        let (path, hands_over) = (one.path, hands_over && one.kind.hands_over());
        (one.stage, one.node) = (Stage::Releasing, Node::Gone);
        let followers = std::mem::take(&mut one.followers);
        self.delete(op, path, name, Some(op));
        self.give_up_downgrade(now, op);
        for follower in followers {
            // Without the watch it could not know that its node was deleted by hand.
            let is_watched = self.ops.get(&follower).is_some_and(|one| one.own == crate::Armed::Set);
            if hands_over && is_watched { self.first(now, follower, true) } else { self.want_look(now, follower) }
        }
    }

    fn tick_later(&mut self, now: Moment) {
        self.out.push(Action::Timer(Timer::Tick, now.plus(self.timeout.0 / 16)));
    }

    /// A sixteenth of the timeout has passed: holds that last are watched, and trust is renewed.
    pub(crate) fn tick(&mut self, now: Moment) {
        let held: Vec<Op> =
            self.ops.iter().filter(|(_, one)| one.stage == Stage::Held).map(|(op, _)| *op).collect();
        for op in &held {
            if let Some(one) = self.ops.get_mut(op) {
                one.age = (one.age + 1).min(2);
            }
            self.arm(*op);
        }
        if held.is_empty() {
            return;
        }
        if self.trust.due() <= now {
            self.renew(crate::Ask::Check);
        }
        if self.trust.until() <= now.plus(self.timeout.0 / 16) {
            self.out.push(Action::Timer(Timer::TrustEnds, self.trust.until()));
        }
        self.tick_later(now);
    }

    /// Sends the pair that renews trust: a read, and this write.
    pub(crate) fn renew(&mut self, write: crate::Ask) {
        if self.is_up && self.renewing == 0 {
            self.renewing = 2;
            self.send(crate::Ask::Read);
            self.send(write);
        }
    }

    /// The proof is asked for again when a write can renew trust.
    pub(crate) fn prove_later(&mut self, now: Moment) {
        let at = self.trust.due().max(now.plus(self.timeout.0 / 64));
        self.out.push(Action::Timer(Timer::Prove, at));
    }

    pub(crate) fn prove_all(&mut self, now: Moment) {
        let proves = |stage| matches!(stage, Stage::Queuing(Place::Proving { is_asked: false, .. }));
        let ops: Vec<Op> = self.ops.iter().filter(|(_, one)| proves(one.stage)).map(|(op, _)| *op).collect();
        ops.into_iter().for_each(|op| self.ask_proof(now, op));
    }

    pub(crate) fn trust_ended(&mut self, now: Moment) {
        if self.is_trusted(now) {
            return;
        }
        let holds = |stage| matches!(stage, Stage::Held | Stage::Releasing);
        let lost: Vec<Op> = self.ops.iter().filter(|(_, one)| holds(one.stage)).map(|(op, _)| *op).collect();
        lost.into_iter().for_each(|op| self.finish(now, op, End::Lost(Loss::Expired)));
    }
}
