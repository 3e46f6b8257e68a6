//! The session: its connection, its end, and the session that replaces it.

use std::collections::HashSet;

use crate::acquisition::LOST_CREATES;
use crate::listing::PAUSE;
use crate::{
    Action, Change, Connection, End, Identity, Loss, Machine, Moment, Name, Node, Op, Path, PathState, Phase,
    Position, Renewing, Shown, Timer, Trust,
};

/// Microseconds from a reconnect to the next create of an acquisition whose last creates were lost.
const LATER: u64 = 1_000_000;

/// The life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    Open,
    /// A ZooKeeper session is being created: the first, or the next after the last one ended.
    Renewing,
    /// No lock is granted any more; holds go on.
    Draining,
    /// The session's nodes are being deleted.
    Closing,
    Over,
}

/// Values for the driver.
impl<T: Trust> Machine<T> {
    /// Returns the id of the ZooKeeper session, 0 before the first one.
    pub fn session_id(&self) -> u64 {
        self.id
    }

    pub fn life(&self) -> Life {
        self.life
    }

    pub fn is_connected(&self) -> bool {
        self.is_up
    }

    /// Returns the session timeout in microseconds.
    pub fn session_timeout(&self) -> u64 {
        self.timeout.0
    }

    /// Returns the paths that the driver must keep: those of acquisitions, turns and pending deletes, and all that
    /// the machine has a state of.
    pub fn used_paths(&self) -> HashSet<Path> {
        let queues = self.ops.values().flat_map(|acquisition| acquisition.queues.iter().map(|queue| queue.path));
        let turns = self.ops.values().filter_map(|acquisition| acquisition.spec.admission.turn().copied());
        let deleted = self.nodes_to_delete().map(|(path, _)| path);
        self.paths.keys().copied().chain(queues).chain(turns).chain(deleted).collect()
    }

    /// Returns the names of this session's nodes.
    pub fn own_nodes(&self) -> HashSet<Name> {
        let queues =
            self.ops.values().flat_map(|acquisition| acquisition.queues.iter().filter_map(|queue| queue.name));
        queues.chain(self.nodes_to_delete().map(|(_, name)| name)).collect()
    }
}

impl<T: Trust> Machine<T> {
    pub fn connection(&mut self, now: Moment, connection: Connection) {
        match connection {
            Connection::Down => {
                self.is_up = false;
                for queue in self.ops.values_mut().flat_map(|acquisition| &mut acquisition.queues) {
                    // After a reconnect, events do not come in the order of the servers' log. So a grant without a
                    // listing must not rest on an earlier listing.
                    match &mut queue.position {
                        Position::Watching { is_only, .. } => *is_only = false,
                        position @ Position::HandedOver => *position = Position::Unknown,
                        _ => {}
                    }
                }
                // Another client may write data to a path while we are disconnected.
                self.paths.values_mut().for_each(|state| state.has_no_data = false);
            }
            Connection::Up { since } if matches!(self.life, Life::Open | Life::Draining | Life::Closing) => {
                self.is_up = true;
                self.trust.reconnected(since);
                self.doubt_identity();
                self.resume(now, true);
                if self.trust.is_reconnected(now) {
                    self.renew(now);
                }
            }
            Connection::Up { .. } => {}
            Connection::Expired => self.expired(now),
        }
    }

    /// Ends the ZooKeeper session. Holds are lost, and waiters queue again in the next session. The driver drops the
    /// requests and watches of the old session.
    pub(crate) fn expired(&mut self, now: Moment) {
        (self.is_up, self.renewing) = (false, Renewing::default());
        self.own_listing = self.own_listing.in_next_session();
        self.deletes.clear();
        self.refused.clear();
        self.paths.clear();
        self.timers.clear();
        // It forgets the paths of calls that end before the next session.
        self.schedule_fallback_poll(now);
        let loss = if self.life == Life::Closing { Loss::Closed } else { Loss::Expired };
        match self.life {
            Life::Open => self.life = Life::Renewing,
            // No hold is left to wait for.
            Life::Draining => self.life = Life::Closing,
            _ => {}
        }
        self.forget_turns();
        for op in self.ops.keys().copied().collect::<Vec<_>>() {
            let Some(acquisition) = self.ops.get_mut(&op) else { continue };
            (acquisition.node, acquisition.attempt, acquisition.age, acquisition.lost, acquisition.shown) =
                (Node::None, 0, 0, 0, Shown::Unasked);
            acquisition.forget_positions();
            acquisition.change = Change::None;
            acquisition.followers.clear();
            match acquisition.phase {
                Phase::Over(_) => {}
                Phase::Held | Phase::Releasing => {
                    acquisition.phase = Phase::Over(End::Lost(loss));
                    self.wake(op);
                }
                _ if self.life == Life::Closing => self.finish(now, op, End::Closed),
                _ => (acquisition.phase, acquisition.asked_back) = (acquisition.initial_phase(), false),
            }
        }
        if self.life == Life::Closing {
            // Not clean: the client may have given the session up before the servers do.
            self.end(false);
        }
    }

    pub fn renewed(&mut self, now: Moment) {
        self.identity = Identity::Known;
        if self.life == Life::Renewing {
            self.life = Life::Open;
        }
        self.is_up = true;
        self.schedule_fallback_poll(now);
        self.resume(now, true);
    }

    /// Schedules lost requests to be sent again over the same connection, after [`PAUSE`].
    pub(crate) fn pause(&mut self, now: Moment) {
        if self.is_up {
            self.timers.set(Timer::Resume, now.plus(PAUSE));
        }
    }

    /// Sends all requests that the state asks for and that are not under way: after a reconnect, or a pause.
    pub(crate) fn resume(&mut self, now: Moment, is_reconnect: bool) {
        if !self.is_up {
            return;
        }
        self.identify();
        for op in self.ops.keys().copied().collect::<Vec<_>>() {
            let Some(acquisition) = self.ops.get(&op) else { continue };
            match (acquisition.phase, acquisition.node) {
                (Phase::Peeking, _) => self.request_listings(op),
                (Phase::Creating, Node::None) if is_reconnect && acquisition.lost >= LOST_CREATES => {
                    self.timers.set(Timer::Resume, now.plus(LATER));
                }
                (Phase::Creating, Node::None) => self.send_create(now, op),
                (Phase::Waiting | Phase::Confirming { .. }, Node::There) => {
                    self.send_confirmation(now, op);
                    self.request_listings(op);
                    self.watch_predecessor(op);
                }
                _ => {}
            }
            self.watch_own(op, None);
            self.resume_downgrade(op);
        }
        self.delete_again();
        let paths: Vec<Path> = self.paths.keys().copied().collect();
        paths.into_iter().for_each(|path| self.send_listing(path));
    }

    /// Ends all waiters. The session closes when no hold is left.
    pub fn drain(&mut self, now: Moment) {
        if !matches!(self.life, Life::Open | Life::Renewing) {
            return;
        }
        self.life = Life::Draining;
        self.end_waiters(now, End::Draining);
    }

    fn end_waiters(&mut self, now: Moment, end: End) {
        let waiters = self.ops.iter().filter(|(_, acquisition)| acquisition.phase.is_queuing());
        let ops: Vec<Op> = waiters.map(|(op, _)| *op).collect();
        ops.into_iter().for_each(|op| self.finish(now, op, end));
    }

    /// Ends all waiters and holds. The session ends when all its nodes are gone.
    pub fn close(&mut self, now: Moment) {
        if matches!(self.life, Life::Closing | Life::Over) {
            return;
        }
        self.life = Life::Closing;
        self.end_waiters(now, End::Closed);
        self.delete_refused();
        for op in self.ops.keys().copied().collect::<Vec<Op>>() {
            if self.phase(op) == Some(Phase::Held) {
                self.finish(now, op, End::Lost(Loss::Closed));
            }
        }
        self.timers.set(Timer::CloseBy, now.plus(self.timeout.0 / 4));
    }

    /// Ends the session because another process has its unique name, and has deleted a node of ours. The process that has
    /// lost a node yields, so that the two do not go on to take a lock from each other.
    pub(crate) fn yield_name(&mut self, now: Moment) {
        self.out.push_back(Action::Yield);
        self.close(now);
    }

    /// Returns whether no delete is outstanding, and no path may have an unknown node of the session.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.deletes.is_empty() && self.paths.values().all(PathState::is_clean)
    }

    pub(crate) fn end_if_done(&mut self, now: Moment) {
        if self.life == Life::Draining && self.holds().next().is_none() {
            self.close(now);
        }
        if self.life == Life::Closing && self.is_clean() {
            // Nodes whose delete the ACLs refuse go with the ZooKeeper session.
            self.end(self.refused.is_empty());
        }
    }

    pub(crate) fn close_by(&mut self) {
        if self.life == Life::Closing {
            self.end(false);
        }
    }

    /// Replaces the machine after a panic under the lock. The session is over, so nothing is granted any more.
    pub fn fail(&mut self, trust: T) {
        let before = std::mem::replace(self, Self::new(0, 0, 0, trust));
        (self.id, self.timeout) = (before.id, before.timeout);
        (self.life, self.is_up) = (Life::Over, false);
    }

    /// Clears all timers, because the task of the session ends.
    pub fn stop(&mut self) {
        self.timers.clear();
    }

    fn end(&mut self, is_clean: bool) {
        (self.life, self.is_up) = (Life::Over, false);
        self.timers.clear();
        for (op, acquisition) in
            self.ops.iter_mut().filter(|(_, acquisition)| acquisition.phase == Phase::Releasing)
        {
            acquisition.phase = Phase::Over(End::Lost(Loss::Closed));
            self.out.push_back(Action::Wake(*op));
        }
        self.out.push_back(Action::End { is_clean });
    }
}
