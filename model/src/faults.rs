//! Owns the faults: what connections, clocks and operators do to a client.

use crate::log::{End, NOBODY, Node, Zxid};
use crate::order::Kind;
use crate::server::World;
use crate::state::{OwnWatch, Phase, Request};

impl World<'_> {
    /// The connection breaks: what was not committed may still be, or never; no answer comes.
    pub(crate) fn cut(&mut self, s: usize) {
        self.state.budget.cuts -= 1;
        let flight = std::mem::take(&mut self.state.sessions[s].flight);
        for one in flight {
            match one.request {
                Request::Create { task, acquisition } => {
                    let current = self.task_mut(s, usize::from(task));
                    if current.acquisition == acquisition && current.phase == Phase::Entering {
                        (current.phase, current.uncertain, current.early) = (Phase::Searching, true, false);
                        (current.predecessor, current.expects) = (0, None);
                    } else {
                        self.state.sessions[s].late.push((task, acquisition));
                    }
                }
                Request::Find { task, acquisition, late: true } => {
                    self.state.sessions[s].late.push((task, acquisition));
                }
                Request::Delete { node } => self.delete_unanswered(s, node),
                Request::Downgrade { task, node } if one.committed.is_some() => {
                    // The client would search for it; that is left out.
                    let task = &mut self.state.sessions[s].tasks[usize::from(task)];
                    let nodes = &self.state.log.nodes;
                    let reader =
                        nodes.iter().find(|one| one.kind == Kind::Read && one.acquisition == task.acquisition);
                    if task.own == node {
                        task.own = reader.map_or(node, |reader| reader.created);
                    }
                }
                _ => {}
            }
            let lasting = matches!(one.request, Request::Create { .. } | Request::Delete { .. });
            // A session that has ended has nothing applied any more.
            if one.committed.is_none() && lasting && self.state.sessions[s].closed == 0 {
                self.state.sessions[s].ghosts.push(one.request);
            }
        }
        let rules = self.rules;
        let session = &mut self.state.sessions[s];
        session.connected = false;
        if rules.one_connection {
            (session.arm, session.last) = (None, None);
            session.tasks.iter_mut().for_each(|task| task.expects = None);
        }
        if rules.handover_one_connection {
            session.tasks.iter_mut().for_each(|task| task.direct = false);
        }
    }

    fn delete_unanswered(&mut self, s: usize, node: Zxid) {
        let mut tasks = self.state.sessions[s].tasks.iter();
        let Some(t) = tasks.position(|task| task.phase == Phase::Releasing && task.own == node) else {
            return;
        };
        if self.rules.delete_until_certain {
            self.task_mut(s, t).again = true;
        } else {
            self.check_release(node, true);
            self.task_mut(s, t).finish();
        }
    }

    /// The first write of a lost connection is applied all the same, or none of them ever will be.
    pub(crate) fn late_write(&mut self, s: usize, applied: bool) {
        if applied {
            let request = self.state.sessions[s].ghosts.remove(0);
            self.execute(s, request);
        } else {
            self.state.sessions[s].ghosts.clear();
        }
    }

    /// The client stops trusting its session, after which the servers may end it: its holds are lost.
    pub(crate) fn end_trust(&mut self, s: usize) {
        self.state.budget.expiries -= 1;
        self.state.sessions[s].doubted = true;
        if !self.rules.trust_ends_first {
            return;
        }
        self.state.sessions[s].trusted = false;
        for t in 0..self.state.sessions[s].tasks.len() {
            match self.task(s, t).phase {
                Phase::Holding => self.lose(s, t),
                // The release returns an error; its delete goes on.
                Phase::Releasing => self.task_mut(s, t).finish(),
                _ => {}
            }
        }
    }

    fn is_changing(&self, s: usize) -> bool {
        let flight = &self.state.sessions[s].flight;
        self.rules.change_known && flight.iter().any(|one| matches!(one.request, Request::Downgrade { .. }))
    }

    /// A hold has ended before its release.
    pub(crate) fn lose(&mut self, s: usize, t: usize) {
        let own = self.task(s, t).own;
        self.give_up(s, own);
        self.task_mut(s, t).finish();
        if self.rules.wake_at_loss {
            self.wake(s, t, own);
        }
    }

    /// The servers end a session, with all its nodes.
    pub(crate) fn expire(&mut self, s: usize) {
        let life = self.state.sessions[s].life;
        let closed = self.state.log.close(s as u8, life);
        self.state.sessions[s].closed = closed;
        self.state.sessions[s].ghosts.clear();
    }

    /// Somebody else, who has its password, ends a session that is trusted.
    pub(crate) fn close_by_other(&mut self, s: usize) {
        self.expire(s);
        let at = self.state.log.end;
        let gone = self.state.log.nodes.iter_mut().filter(|node| node.deleted == at);
        gone.for_each(|node| node.end = End::Hand);
    }

    /// The connection comes back with a new session, and the client goes on as before. The old one ends later.
    pub(crate) fn replace(&mut self, s: usize) {
        self.state.budget.replaced -= 1;
        let end = self.state.log.end;
        let session = &mut self.state.sessions[s];
        (session.connected, session.life, session.seen, session.orphan) = (true, session.life + 1, end, true);
        session.ghosts.clear();
        for t in 0..self.state.sessions[s].tasks.len() {
            self.resume(s, t);
        }
    }

    pub(crate) fn expire_orphan(&mut self, s: usize) {
        let life = self.state.sessions[s].life - 1;
        self.state.log.close(s as u8, life);
        self.state.sessions[s].orphan = false;
    }

    /// An operator deletes a node.
    pub(crate) fn delete_by_hand(&mut self, node: Zxid, unseen: bool) {
        self.state.budget.hand -= 1;
        self.state.budget.unseen -= u8::from(unseen);
        self.state.log.delete(node, End::Hand, unseen);
    }

    /// The empty path is deleted, by an operator or as an empty container, and made again.
    pub(crate) fn remake(&mut self, unseen: bool) {
        self.state.budget.remakes -= 1;
        self.state.budget.unseen -= u8::from(unseen);
        self.state.log.remake(unseen);
    }

    /// An operator puts a node in.
    pub(crate) fn create_by_hand(&mut self, number: u8) {
        self.state.budget.creates -= 1;
        self.state.log.create(Node {
            created: 0,
            deleted: 0,
            end: End::Stands,
            unseen: false,
            owner: NOBODY,
            life: 0,
            task: 0,
            acquisition: 0,
            kind: Kind::Lock,
            number,
            count: 0,
            path: 0,
            given_up: false,
            undeletable: false,
        });
    }

    /// The node of a hold that is watched was deleted, or a waiter's.
    pub(crate) fn own_node_gone(&mut self, s: usize, t: usize) {
        self.task_mut(s, t).own_watch = OwnWatch::Fired;
        match self.task(s, t).phase {
            // A downgrade deletes the node itself, and its event comes before its answer.
            Phase::Holding if self.is_changing(s) => {}
            Phase::Holding => self.lose(s, t),
            Phase::InMemory => self.look(s, t),
            _ => {}
        }
    }
}
