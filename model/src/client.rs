//! Owns the steps of a client as they are today: it queues, looks, waits, holds and releases.

use crate::log::{NODES, Node, Position, Zxid, position};
use crate::server::World;
use crate::state::{Outcome, Phase, Request, Task};

use arrayvec::ArrayVec;

impl World<'_> {
    pub(crate) fn task(&self, s: usize, t: usize) -> &Task {
        &self.state.sessions[s].tasks[t]
    }

    pub(crate) fn task_mut(&mut self, s: usize, t: usize) -> &mut Task {
        &mut self.state.sessions[s].tasks[t]
    }

    fn acquisition(&self, s: usize, t: usize) -> u8 {
        self.task(s, t).acquisition
    }

    pub(crate) fn start(&mut self, s: usize, t: usize) {
        let task = self.task_mut(s, t);
        task.left -= 1;
        task.acquisition += 1;
        self.enter(s, t);
    }

    /// Sends the burst that queues.
    pub(crate) fn enter(&mut self, s: usize, t: usize) {
        let task = self.task_mut(s, t);
        task.phase = Phase::Entering;
        let acquisition = task.acquisition;
        let create = Request::Create { task: t as u8, acquisition };
        if self.enter_undisturbed(s, t, create) {
            return;
        }
        let list = Request::List { task: t as u8, acquisition };
        let burst = if self.rules.listing_after_create { [create, list] } else { [list, create] };
        burst.into_iter().for_each(|request| self.send(s, request));
    }

    /// Looks at the position.
    pub(crate) fn look(&mut self, s: usize, t: usize) {
        let acquisition = self.acquisition(s, t);
        let task = self.task_mut(s, t);
        (task.phase, task.predecessor, task.direct) = (Phase::Listing, 0, false);
        self.send(s, Request::List { task: t as u8, acquisition });
    }

    /// Searches for nodes by their guid, behind a barrier.
    fn find(&mut self, s: usize, task: u8, acquisition: u8, late: bool) {
        if self.rules.barrier {
            self.send(s, Request::Barrier { task, acquisition, grants: false });
        }
        self.send(s, Request::Find { task, acquisition, late });
    }

    fn search(&mut self, s: usize, t: usize, phase: Phase) {
        self.task_mut(s, t).phase = phase;
        let acquisition = self.acquisition(s, t);
        self.find(s, t as u8, acquisition, false);
    }

    /// Searches for what a create with an unknown outcome may have left, when it cannot be applied any more.
    pub(crate) fn second_search(&mut self, s: usize) {
        let (task, acquisition) = self.state.sessions[s].late.remove(0);
        self.find(s, task, acquisition, true);
    }

    /// What a task does when the connection is back.
    pub(crate) fn resume(&mut self, s: usize, t: usize) {
        let task = *self.task(s, t);
        match task.phase {
            Phase::Entering => self.enter(s, t),
            Phase::Searching | Phase::Missing => self.search(s, t, task.phase),
            Phase::Listing | Phase::AwaitingOwn | Phase::HandOver => self.look(s, t),
            Phase::Watching => self.watch(s, t),
            Phase::Proving => self.grant(s, t),
            Phase::Releasing => self.send(s, Request::Delete { node: task.own }),
            Phase::Idle | Phase::Waiting | Phase::Holding | Phase::Deciding | Phase::InMemory => {}
        }
    }

    /// Deletes of nodes that nobody wants any more are repeated until they are answered.
    pub(crate) fn resend_deletes(&mut self, s: usize) {
        let session = &self.state.sessions[s];
        if !self.rules.delete_until_certain {
            return;
        }
        let releasing = |node: &Node| {
            let mut tasks = session.tasks.iter();
            tasks.any(|task| task.phase == Phase::Releasing && task.own == node.created)
        };
        let left = |node: &&Node| {
            usize::from(node.owner) == s && node.given_up && node.stands() && !node.undeletable && !releasing(node)
        };
        let left: ArrayVec<Zxid, NODES> =
            self.state.log.nodes.iter().filter(left).map(|node| node.created).collect();
        left.into_iter().for_each(|node| self.send(s, Request::Delete { node }));
    }

    /// Deletes a node in the background.
    pub(crate) fn give_up(&mut self, s: usize, created: Zxid) {
        if let Some(node) = self.state.log.node_mut(created)
            && !node.given_up
        {
            node.given_up = true;
            self.send(s, Request::Delete { node: created });
        }
    }

    /// The answer to a write.
    pub(crate) fn written(&mut self, s: usize, request: Request, at: Zxid, outcome: Outcome) {
        match request {
            Request::Create { task, acquisition } => {
                let t = usize::from(task);
                if self.acquisition(s, t) == acquisition && self.task(s, t).phase == Phase::Entering {
                    self.task_mut(s, t).own = at;
                    self.created(s, t);
                } else {
                    self.give_up(s, at);
                }
            }
            Request::Barrier { task, acquisition, grants: true } => {
                let t = usize::from(task);
                if self.acquisition(s, t) == acquisition && self.task(s, t).phase == Phase::Proving {
                    self.grant(s, t);
                }
            }
            Request::Delete { node } => self.deleted(s, node, outcome),
            Request::Downgrade { task, node } => self.downgraded(s, usize::from(task), (node, at), outcome),
            _ => {}
        }
    }

    fn created(&mut self, s: usize, t: usize) {
        self.task_mut(s, t).phase = Phase::Listing;
        if self.created_undisturbed(s, t) {
            return;
        }
        let task = *self.task(s, t);
        if !task.early {
            return;
        }
        // The listing came before.
        self.task_mut(s, t).early = false;
        if self.rules.own_node_listed {
            self.search(s, t, Phase::Missing);
        } else if task.predecessor == 0 {
            self.grant(s, t);
        } else {
            self.watch(s, t);
        }
    }

    /// The answer to a read, from what the server has applied.
    pub(crate) fn read(&mut self, s: usize, request: Request) {
        let seen = self.state.sessions[s].seen;
        let shown =
            |created: Zxid, state: &Self| state.state.log.node(created).is_some_and(|node| node.stands_at(seen));
        match request {
            Request::List { task, acquisition } => {
                let t = usize::from(task);
                let task = self.task(s, t);
                match (task.acquisition == acquisition, task.phase) {
                    (true, Phase::Listing) => self.judge(s, t),
                    (true, Phase::Entering) => {
                        let last = self.listing(s, t).last().map_or(0, |node| node.created);
                        let task = self.task_mut(s, t);
                        (task.early, task.predecessor) = (true, last);
                    }
                    _ => {}
                }
            }
            Request::Find { task, acquisition, late } => {
                let guid = |node: &&Node| {
                    usize::from(node.owner) == s
                        && (node.task, node.acquisition) == (task, acquisition)
                        && node.stands_at(seen)
                };
                let found: ArrayVec<Node, NODES> = self.state.log.nodes.iter().filter(guid).copied().collect();
                self.found(s, usize::from(task), acquisition, late, &found);
            }
            Request::WatchPredecessor { task, acquisition, node } => {
                let t = usize::from(task);
                if self.acquisition(s, t) == acquisition && self.task(s, t).phase == Phase::Watching {
                    let there = shown(node, self);
                    self.predecessor_watched(s, t, node, there);
                }
            }
            Request::WatchOwn { task, acquisition, node } => {
                let t = usize::from(task);
                if self.acquisition(s, t) == acquisition && self.task(s, t).own == node {
                    let there = shown(node, self);
                    self.own_watched(s, t, there);
                }
            }
            Request::WatchPath { task, acquisition } => self.path_watched(s, usize::from(task), acquisition),
            _ => {}
        }
    }

    /// A listing as its session sees it: without nodes that it has abandoned, and without doubles of this task's node.
    pub(crate) fn listing(&mut self, s: usize, t: usize) -> ArrayVec<Node, NODES> {
        let seen = self.state.sessions[s].seen;
        let session = &self.state.sessions[s];
        let me = session.tasks[t];
        let hidden = |node: &&Node| {
            if usize::from(node.owner) != s || node.life != session.life {
                return false;
            }
            let owner = session.tasks[usize::from(node.task)];
            let wanted = owner.acquisition == node.acquisition && owner.phase != Phase::Idle;
            let released = owner.phase == Phase::Releasing;
            // Another link has no register of this link's nodes.
            owner.link == me.link && (node.given_up || !wanted || released) && node.created != me.own
        };
        let double = |node: &&Node| {
            usize::from(node.owner) == s
                && usize::from(node.task) == t
                && node.acquisition == me.acquisition
                && me.own != 0
                && node.created != me.own
        };
        let there = |node: &&Node| node.stands_at(seen);
        let nodes = self.state.log.nodes.iter().filter(there);
        let listed = nodes.clone().filter(|node| !hidden(node) && !double(node)).copied().collect();
        let doubles: ArrayVec<Zxid, NODES> = nodes.filter(double).map(|node| node.created).collect();
        doubles.into_iter().for_each(|double| self.give_up(s, double));
        listed
    }

    fn judge(&mut self, s: usize, t: usize) {
        let listing = self.listing(s, t);
        let own = self.task(s, t).own;
        self.task_mut(s, t).alone = listing.len() == 1;
        match position(&listing, own) {
            Position::Granted => self.grant(s, t),
            Position::Unlisted => self.search(s, t, Phase::Missing),
            Position::Behind { predecessor, ahead } => {
                self.task_mut(s, t).predecessor = predecessor;
                if self.wait_in_memory(s, t) {
                    return;
                }
                self.watch(s, t);
                self.watch_for_handover(s, t, ahead);
            }
        }
    }

    fn watch(&mut self, s: usize, t: usize) {
        let task = self.task_mut(s, t);
        task.phase = Phase::Watching;
        let (acquisition, node) = (task.acquisition, task.predecessor);
        self.send(s, Request::WatchPredecessor { task: t as u8, acquisition, node });
    }

    fn predecessor_watched(&mut self, s: usize, t: usize, node: Zxid, there: bool) {
        let own_session = self.state.log.node(node).is_some_and(|node| usize::from(node.owner) == s);
        let direct = !self.rules.other_session || !own_session;
        let task = self.task_mut(s, t);
        task.direct &= direct;
        task.phase = Phase::Waiting;
        if !there && self.rules.look_after_missing {
            self.predecessor_gone(s, t);
        }
    }

    /// The predecessor is gone, by its event or by the answer to the watch.
    pub(crate) fn predecessor_gone(&mut self, s: usize, t: usize) {
        if self.hand_over_between_sessions(s, t) {
        } else if self.rules.look_after_event {
            self.look(s, t);
        } else {
            self.grant(s, t);
        }
    }

    /// The answer to a search.
    fn found(&mut self, s: usize, t: usize, acquisition: u8, late: bool, found: &[Node]) {
        let task = *self.task(s, t);
        let current = task.acquisition == acquisition && task.phase != Phase::Idle;
        if late {
            let unwanted = found.iter().filter(|node| !current || node.created != task.own);
            unwanted.for_each(|node| self.give_up(s, node.created));
            return;
        }
        if !current {
            return;
        }
        let life = self.state.sessions[s].life;
        match task.phase {
            Phase::Searching => {
                let ours = |node: &&Node| node.life == life || !self.rules.owner_checked;
                let first = found.iter().find(ours).map(|node| node.created);
                let others = found.iter().filter(|node| Some(node.created) != first);
                others.for_each(|node| self.give_up(s, node.created));
                match first {
                    Some(own) => {
                        self.task_mut(s, t).own = own;
                        self.look(s, t);
                    }
                    None => self.enter(s, t),
                }
            }
            Phase::Missing if found.iter().any(|node| node.created == task.own) => self.look(s, t),
            // Evicted: the caller gets an error.
            Phase::Missing => self.leave(s, t),
            _ => {}
        }
    }

    /// The end of an acquisition that does not hold, or does not any more: its nodes are deleted.
    pub(crate) fn leave(&mut self, s: usize, t: usize) {
        let task = *self.task(s, t);
        match task.own {
            0 if matches!(task.phase, Phase::Searching) => {
                self.state.sessions[s].late.push((t as u8, task.acquisition));
            }
            0 => {}
            own => {
                self.give_up(s, own);
                if task.uncertain {
                    self.state.sessions[s].late.push((t as u8, task.acquisition));
                }
            }
        }
        self.task_mut(s, t).finish();
        if self.rules.wake_at_leaving {
            self.wake(s, t, task.own);
        }
    }

    /// A delete was answered.
    fn deleted(&mut self, s: usize, node: Zxid, outcome: Outcome) {
        self.note_deleted(s, node, outcome);
        let releasing = |task: &Task| task.phase == Phase::Releasing && task.own == node;
        let Some(t) = self.state.sessions[s].tasks.iter().position(releasing) else {
            return;
        };
        let again = self.task(s, t).again;
        let released = match outcome {
            Outcome::Done => true,
            Outcome::NoNode => again || !self.rules.absent_is_lost,
            Outcome::Refused => false,
        };
        if released {
            self.check_release(node, again);
        }
        self.task_mut(s, t).finish();
    }

    /// The caller gives the lock back.
    pub(crate) fn release(&mut self, s: usize, t: usize) {
        let own = self.task(s, t).own;
        if let Some(node) = self.state.log.node_mut(own) {
            node.given_up = true;
        }
        self.task_mut(s, t).phase = Phase::Releasing;
        self.send(s, Request::Delete { node: own });
        self.remember_last(s, t);
        self.hand_over_in_memory(s, t);
    }

    pub(crate) fn grant(&mut self, s: usize, t: usize) {
        if self.rules.proof_before_grant && !self.state.sessions[s].trusted {
            let task = self.task_mut(s, t);
            task.phase = Phase::Proving;
            let acquisition = task.acquisition;
            self.send(s, Request::Barrier { task: t as u8, acquisition, grants: true });
            return;
        }
        // What was decided before a proof is the window of a deletion by hand; the proof shows that the session lived.
        if self.task(s, t).phase != Phase::Proving {
            self.check_standing(s, t);
        }
        let task = self.task_mut(s, t);
        (task.phase, task.predecessor, task.direct) = (Phase::Holding, 0, false);
        self.check_grant(s, t);
        let task = *self.task(s, t);
        if task.uncertain {
            self.state.sessions[s].late.push((t as u8, task.acquisition));
        }
        self.watch_held_node(s, t);
    }

    /// The session has ended, and the client knows: what it held is lost, and its waiters queue again in the next one.
    pub(crate) fn session_over(&mut self, s: usize) {
        let end = self.state.log.end;
        let session = &mut self.state.sessions[s];
        session.life += 1;
        // The next session is made by a quorum, so its server has applied all that came before.
        (session.connected, session.seen, session.closed) = (true, end, 0);
        (session.trusted, session.doubted) = (true, false);
        (session.arm, session.last) = (None, None);
        session.flight.clear();
        session.ghosts.clear();
        session.late.clear();
        for task in &mut session.tasks {
            if task.phase.waits() {
                task.left += 1;
            }
            if task.phase != Phase::Idle {
                task.finish();
            }
        }
    }
}
