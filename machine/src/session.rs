//! The session: its connection, its end, and the session that replaces it.

use crate::look::PAUSE;
use crate::{
    Action, Armed, Change, Connection, End, Loss, Machine, Moment, Node, Op, Path, Place, Stage, Timer, Trust,
};

/// The life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Session {
    Open,
    /// The last one is over, and the next is being made.
    Renewing,
    /// No lock is granted any more; nodes are being deleted.
    Closing,
    Over,
}

impl<T: Trust> Machine<T> {
    pub(crate) fn connection(&mut self, now: Moment, connection: Connection) {
        match connection {
            Connection::Down => {
                self.is_up = false;
                for one in self.ops.values_mut() {
                    // The order of events after a reconnect is not that of the log, so what was listed before is of no use for a turn.
                    if let Stage::Queuing(Place::Watching { is_only, .. }) = &mut one.stage {
                        *is_only = false;
                    }
                }
                // Somebody may write data to a path meanwhile.
                self.rows.values_mut().for_each(|row| row.is_empty = false);
            }
            Connection::Up if matches!(self.session, Session::Open | Session::Closing) => {
                self.is_up = true;
                self.resume(now);
            }
            Connection::Up => {}
            Connection::Expired => self.expired(now),
        }
    }

    /// Holds are lost, and waiters queue again in the next session. The driver drops the requests, watches and timers of a session
    /// with it.
    pub(crate) fn expired(&mut self, _now: Moment) {
        (self.is_up, self.renewing) = (false, 0);
        self.leaving.clear();
        self.rows.clear();
        let loss = if self.session == Session::Closing { Loss::Closed } else { Loss::Expired };
        if self.session == Session::Open {
            self.session = Session::Renewing;
        }
        for op in self.ops.keys().copied().collect::<Vec<_>>() {
            let Some(one) = self.ops.get_mut(&op) else { continue };
            (one.node, one.own, one.attempt, one.age) = (Node::None, Armed::No, 0, 0);
            one.change = Change::None;
            one.followers.clear();
            match one.stage {
                Stage::Queuing(_) => one.stage = Stage::Queuing(Place::Entering),
                Stage::Held | Stage::Releasing => {
                    one.stage = Stage::Over(End::Lost(loss));
                    self.wake(op);
                }
                Stage::Over(_) => {}
            }
        }
    }

    pub(crate) fn renewed(&mut self, now: Moment, session: u64, nonce: u64) {
        (self.id, self.nonce) = (session, nonce);
        self.trust.renewed(now);
        if self.session == Session::Renewing {
            self.session = Session::Open;
        }
        self.is_up = true;
        self.resume(now);
    }

    /// Sends again after a pause what was lost over a connection that seems to stand.
    pub(crate) fn pause(&mut self, now: Moment) {
        if self.is_up {
            self.out.push(Action::Timer(Timer::Resume, now.plus(PAUSE)));
        }
    }

    /// Sends everything that follows from the state and is not under way.
    pub(crate) fn resume(&mut self, now: Moment) {
        if !self.is_up {
            return;
        }
        for op in self.ops.keys().copied().collect::<Vec<_>>() {
            let Some(one) = self.ops.get(&op) else { continue };
            let path = one.path;
            match (one.stage, one.node) {
                (Stage::Queuing(Place::Entering), Node::None) => self.enter(now, op),
                (Stage::Queuing(Place::Looking), Node::There { .. }) => {
                    let row = self.rows.entry(path).or_default();
                    if !row.has(op) {
                        row.want(op);
                    }
                }
                (Stage::Queuing(Place::Watching { .. }), _) => self.arm_predecessor(op),
                (Stage::Queuing(Place::Proving { .. }), _) => self.ask_proof(now, op),
                _ => {}
            }
            self.arm(op);
            self.resume_downgrade(op);
        }
        self.delete_again();
        let paths: Vec<Path> = self.rows.keys().copied().collect();
        paths.into_iter().for_each(|path| self.look(now, path));
    }

    /// Holds are lost and waiters leave. When nothing is left the session ends.
    pub(crate) fn close(&mut self, now: Moment) {
        if !matches!(self.session, Session::Open | Session::Renewing) {
            return;
        }
        self.session = Session::Closing;
        for op in self.ops.keys().copied().collect::<Vec<Op>>() {
            match self.stage(op) {
                Some(Stage::Queuing(_)) => self.finish(now, op, End::Closed),
                Some(Stage::Held) => self.finish(now, op, End::Lost(Loss::Closed)),
                _ => {}
            }
        }
        self.out.push(Action::Timer(Timer::CloseBy, now.plus(self.timeout.0 / 4)));
    }

    /// Whether all nodes of the session are certainly gone.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.leaving.is_empty() && self.rows.values().all(crate::Row::is_clean)
    }

    pub(crate) fn end_if_clean(&mut self) {
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
        self.out.push(Action::End { is_clean });
    }
}
