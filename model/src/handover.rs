//! Owns the steps of the hand-over without a second listing: between sessions (item 4), and between neighbours in one process
//! (item 3).

use arrayvec::ArrayVec;

use crate::log::Zxid;
use crate::order::Kind;
use crate::server::World;
use crate::state::{Outcome, OwnWatch, Phase, Request, Task};

impl World<'_> {
    /// Behind the watch on the predecessor goes one on our own node, if the event of the former may then be the grant.
    pub(crate) fn watch_for_handover(&mut self, s: usize, t: usize, ahead: u8) {
        let task = *self.task(s, t);
        let mutex = self.state.log.node(task.predecessor).is_some_and(|node| node.kind == Kind::Lock);
        let single = ahead == 1 || !self.rules.only_one_ahead;
        if !self.rules.handover
            || task.kind != Kind::Lock
            || !single
            || (self.rules.predecessor_is_mutex && !mutex)
        {
            return;
        }
        self.task_mut(s, t).direct = true;
        if self.rules.own_watch && task.own_watch == OwnWatch::None {
            self.watch_own(s, t);
        }
    }

    pub(crate) fn watch_own(&mut self, s: usize, t: usize) {
        let task = self.task_mut(s, t);
        task.own_watch = OwnWatch::UnderWay;
        let (acquisition, node) = (task.acquisition, task.own);
        self.send(s, Request::WatchOwn { task: t as u8, acquisition, node });
    }

    /// The predecessor is gone: grants without a listing, or waits for the answer that decides.
    pub(crate) fn hand_over_between_sessions(&mut self, s: usize, t: usize) -> bool {
        let task = *self.task(s, t);
        if !task.direct {
            return false;
        }
        match task.own_watch {
            OwnWatch::Armed => self.grant(s, t),
            OwnWatch::UnderWay => self.task_mut(s, t).phase = Phase::AwaitingOwn,
            OwnWatch::None | OwnWatch::Fired if !self.rules.own_watch => self.grant(s, t),
            OwnWatch::None | OwnWatch::Fired => return false,
        }
        true
    }

    /// The answer to the watch on our own node.
    pub(crate) fn own_watched(&mut self, s: usize, t: usize, there: bool) {
        let task = self.task_mut(s, t);
        task.own_watch = if there { OwnWatch::Armed } else { OwnWatch::Fired };
        match (task.phase, there) {
            (Phase::AwaitingOwn | Phase::HandOver, true) => self.grant(s, t),
            (Phase::AwaitingOwn | Phase::HandOver | Phase::InMemory, false) => self.look(s, t),
            (Phase::Holding, false) => self.lose(s, t),
            _ => {}
        }
    }

    /// The index of the task with a node, if that is a live place which this task's link has in its register.
    fn neighbour(&self, s: usize, t: usize) -> Option<usize> {
        let session = &self.state.sessions[s];
        let me = session.tasks[t];
        let node = self.state.log.node(me.predecessor)?;
        if usize::from(node.owner) != s || node.life != session.life {
            return None;
        }
        let live = |one: &Task| {
            one.own == node.created
                && !matches!(one.phase, Phase::Idle | Phase::Releasing)
                && (one.link == me.link || !self.rules.by_link)
        };
        session.tasks.iter().position(live)
    }

    /// Leaves it to a neighbour to wake us.
    pub(crate) fn wait_in_memory(&mut self, s: usize, t: usize) -> bool {
        let waits = self.rules.neighbour && self.neighbour(s, t).is_some();
        if waits {
            self.task_mut(s, t).phase = Phase::Deciding;
        }
        waits
    }

    /// Enters the register behind a neighbour, if it is still there.
    pub(crate) fn enter_memory(&mut self, s: usize, t: usize) {
        let neighbour = self.neighbour(s, t);
        if neighbour.is_none() && self.rules.live_in_register {
            self.look(s, t);
            return;
        }
        self.task_mut(s, t).phase = Phase::InMemory;
        if self.task(s, t).own_watch == OwnWatch::None {
            self.watch_own(s, t);
        }
        if let Some(holder) = neighbour {
            self.watch_held_node(s, holder);
        }
    }

    /// A hold with a waiter in memory has its node watched.
    pub(crate) fn watch_held_node(&mut self, s: usize, t: usize) {
        let task = *self.task(s, t);
        let unwatched = task.phase == Phase::Holding && task.own_watch == OwnWatch::None;
        if self.rules.watch_holder && unwatched && !self.behind(s, t, task.own).is_empty() {
            self.watch_own(s, t);
        }
    }

    /// The tasks of the same link that wait in memory for a node.
    fn behind(&self, s: usize, t: usize, own: Zxid) -> ArrayVec<usize, 3> {
        let link = self.task(s, t).link;
        let waits = |task: &Task| task.phase == Phase::InMemory && task.predecessor == own && task.link == link;
        let tasks = self.state.sessions[s].tasks.iter().enumerate();
        tasks.filter(|(_, task)| waits(task)).map(|(index, _)| index).collect()
    }

    /// Wakes the waiters in memory behind a node that is not held any more, to look.
    pub(crate) fn wake(&mut self, s: usize, t: usize, own: Zxid) {
        if self.rules.neighbour {
            self.behind(s, t, own).into_iter().for_each(|waiter| self.look(s, waiter));
        }
    }

    /// The release of a hold hands over to all who wait in memory for it.
    pub(crate) fn hand_over_in_memory(&mut self, s: usize, t: usize) {
        if !self.rules.neighbour {
            return;
        }
        let holder = *self.task(s, t);
        let mut waiters = self.behind(s, t, holder.own);
        if !self.rules.wake_all {
            waiters.truncate(1);
        }
        for waiter in waiters {
            let armed = self.task(s, waiter).own_watch == OwnWatch::Armed;
            if holder.kind == Kind::Read {
                self.look(s, waiter);
            } else if armed || !self.rules.own_watch_in_memory {
                self.grant(s, waiter);
            } else {
                self.task_mut(s, waiter).phase = Phase::HandOver;
                self.watch_own(s, waiter);
            }
        }
    }

    /// A writer becomes a reader, in one transaction.
    pub(crate) fn downgrade(&mut self, s: usize, t: usize) {
        self.state.budget.downgrades -= 1;
        let task = self.task_mut(s, t);
        task.kind = Kind::Read;
        let node = task.own;
        self.send(s, Request::Downgrade { task: t as u8, node });
    }

    pub(crate) fn downgraded(&mut self, s: usize, t: usize, (writer, reader): (Zxid, Zxid), outcome: Outcome) {
        if self.task(s, t).own != writer || self.task(s, t).phase != Phase::Holding {
            return;
        }
        if outcome != Outcome::Done {
            self.lose(s, t);
            return;
        }
        let task = self.task_mut(s, t);
        (task.own, task.own_watch) = (reader, OwnWatch::None);
        if self.rules.wake_at_downgrade {
            self.wake(s, t, writer);
        }
    }
}
