//! The session: its connection, its end, and the session that replaces it.

use crate::machine::look::PAUSE;
use crate::machine::{
    Acquisition, Action, Change, Connection, End, Identity, Loss, Machine, Moment, Node, Op, OwnListing, Path,
    Place, Position, Renewing, Row, Shown, Stage, Timer, Trust,
};

/// The life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Session {
    Open,
    /// The last one is over, and the next is being made.
    Renewing,
    /// No lock is granted any more; holds go on.
    Draining,
    /// Nodes are being deleted.
    Closing,
    Over,
}

impl<T: Trust> Machine<T> {
    pub(crate) fn connection(&mut self, now: Moment, connection: Connection) {
        match connection {
            Connection::Down => {
                self.is_up = false;
                // What was granted over the lost connection, and nobody has come for, is no longer young.
                self.ops.values_mut().filter(|one| one.stage == Stage::Held).for_each(|one| one.age = 2);
                for queue in self.ops.values_mut().flat_map(|one| &mut one.queues) {
                    // The order of events after a reconnect is not that of the log, so what was listed before is of no use for a turn.
                    match &mut queue.position {
                        Position::Watching { is_only, .. } => *is_only = false,
                        // So is an answer that shows its own node.
                        position @ Position::HandedOver => *position = Position::Unknown,
                        _ => {}
                    }
                }
                // Somebody may write data to a path meanwhile.
                self.rows.values_mut().for_each(|row| row.is_empty = false);
            }
            Connection::Up { since }
                if matches!(self.session, Session::Open | Session::Draining | Session::Closing) =>
            {
                self.is_up = true;
                self.trust.reconnected(since);
                self.doubt_identity();
                self.resume(now);
                if self.trust.is_reconnected(now) {
                    self.renew(now);
                }
            }
            Connection::Up { .. } => {}
            Connection::Expired => self.expired(now),
        }
    }

    /// Holds are lost, and waiters queue again in the next session. The driver drops the requests, watches and timers of a session
    /// with it.
    pub(crate) fn expired(&mut self, now: Moment) {
        (self.is_up, self.renewing, self.own_listing) = (false, Renewing::default(), OwnListing::default());
        self.leaving.clear();
        self.refused.clear();
        self.rows.clear();
        self.timers.clear();
        let loss = if self.session == Session::Closing { Loss::Closed } else { Loss::Expired };
        match self.session {
            // One that was given is not renewed.
            Session::Open if self.is_given => self.session = Session::Closing,
            Session::Open => self.session = Session::Renewing,
            // Nothing is left to be released.
            Session::Draining => self.session = Session::Closing,
            _ => {}
        }
        for op in self.ops.keys().copied().collect::<Vec<_>>() {
            let Some(one) = self.ops.get_mut(&op) else { continue };
            (one.node, one.attempt, one.age, one.lost, one.shown) = (Node::None, 0, 0, 0, Shown::Unasked);
            one.forget_positions();
            one.change = Change::None;
            one.followers.clear();
            match one.stage {
                Stage::Over(_) => {}
                Stage::Held | Stage::Releasing if one.is_claimed => {
                    one.stage = Stage::Over(End::Lost(loss));
                    self.wake(op);
                }
                _ if self.session == Session::Closing => self.finish(now, op, End::Closed),
                _ => one.stage = Stage::Queuing(one.start()),
            }
        }
        if self.session == Session::Closing {
            // The client may have given the session up before the servers do.
            self.end(false);
        }
    }

    pub(crate) fn renewed(&mut self, now: Moment) {
        self.identity = Identity::Known;
        if self.session == Session::Renewing {
            self.session = Session::Open;
        }
        self.is_up = true;
        self.look_later(now);
        self.resume(now);
    }

    /// Sends again after a pause what was lost over a connection that seems to stand.
    pub(crate) fn pause(&mut self, now: Moment) {
        if self.is_up {
            self.timers.set(Timer::Resume, now.plus(PAUSE));
        }
    }

    /// Sends everything that follows from the state and is not under way.
    pub(crate) fn resume(&mut self, now: Moment) {
        if !self.is_up {
            return;
        }
        self.identify();
        for op in self.ops.keys().copied().collect::<Vec<_>>() {
            let Some(one) = self.ops.get(&op) else { continue };
            match (one.stage, one.node) {
                (Stage::Queuing(Place::Peeking), _) => self.look_for(op),
                (Stage::Queuing(Place::Entering), Node::None) => self.enter(now, op),
                (Stage::Queuing(Place::Waiting | Place::Proving { .. }), Node::There) => {
                    self.ask_proof(now, op);
                    self.look_for(op);
                    self.arm_predecessor(op);
                }
                _ => {}
            }
            self.arm(op, None);
            self.resume_downgrade(op);
        }
        self.delete_again();
        let paths: Vec<Path> = self.rows.keys().copied().collect();
        paths.into_iter().for_each(|path| self.look(path));
    }

    /// Waiters leave. When the last hold is released the session closes.
    pub(crate) fn drain(&mut self, now: Moment) {
        if !matches!(self.session, Session::Open | Session::Renewing) {
            return;
        }
        self.session = Session::Draining;
        self.end_waiters(now, End::Draining);
    }

    fn end_waiters(&mut self, now: Moment, end: End) {
        let waits = |one: &Acquisition| match one.stage {
            Stage::Queuing(_) => true,
            stage => stage == Stage::Held && (one.spec.is_turn || !one.is_claimed),
        };
        let ops: Vec<Op> = self.ops.iter().filter(|(_, one)| waits(one)).map(|(op, _)| *op).collect();
        ops.into_iter().for_each(|op| self.finish(now, op, end));
    }

    /// Holds are lost and waiters leave. When nothing is left the session ends.
    pub(crate) fn close(&mut self, now: Moment) {
        if matches!(self.session, Session::Closing | Session::Over) {
            return;
        }
        self.session = Session::Closing;
        self.end_waiters(now, End::Closed);
        self.delete_refused();
        for op in self.ops.keys().copied().collect::<Vec<Op>>() {
            if self.stage(op) == Some(Stage::Held) {
                self.finish(now, op, End::Lost(Loss::Closed));
            }
        }
        // Nothing but we removes the nodes of a session that goes on.
        if !self.is_given {
            self.timers.set(Timer::CloseBy, now.plus(self.timeout.0 / 4));
        }
    }

    /// Whether all nodes of the session are certainly gone.
    #[must_use]
    pub(crate) fn is_clean(&self) -> bool {
        self.leaving.is_empty() && self.rows.values().all(Row::is_clean)
    }

    pub(crate) fn end_if_done(&mut self, now: Moment) {
        if self.session == Session::Draining && !self.ops.values().any(|one| one.stage.is_hold()) {
            self.close(now);
        }
        if self.session == Session::Closing && self.is_clean() {
            self.end(true);
        }
    }

    pub(crate) fn close_by(&mut self) {
        if self.session == Session::Closing {
            self.end(false);
        }
    }

    fn end(&mut self, is_clean: bool) {
        (self.session, self.is_up) = (Session::Over, false);
        self.timers.clear();
        for (op, one) in self.ops.iter_mut().filter(|(_, one)| one.stage == Stage::Releasing) {
            one.stage = Stage::Over(End::Lost(Loss::Closed));
            self.out.push(Action::Wake(*op));
        }
        self.out.push(Action::End { is_clean });
    }
}
