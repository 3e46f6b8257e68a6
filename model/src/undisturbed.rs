//! Owns the steps of the undisturbed mutex (item 2): the create's answer, or the Stat of the path behind it, is the grant.

use crate::log::Zxid;
use crate::order::Kind;
use crate::server::World;
use crate::state::{Arm, Expectation, Last, Outcome, Phase, Request};

impl World<'_> {
    /// Sends the create without a listing, if that may be enough.
    pub(crate) fn enter_undisturbed(&mut self, s: usize, t: usize, create: Request) -> bool {
        let task = *self.task(s, t);
        if !self.rules.undisturbed || (self.rules.mutex_only && task.kind != Kind::Lock) {
            return false;
        }
        let session = &self.state.sessions[s];
        let may_expect = |last: &Last| last.alone || !self.rules.alone;
        match (session.last.filter(may_expect), session.arm) {
            (Some(last), Some(_)) => {
                if self.rules.used_up_once {
                    self.state.sessions[s].last = None;
                }
                let expects =
                    Expectation { number: last.number + 1, last: last.node, deleted: last.deleted, armed: true };
                self.task_mut(s, t).expects = Some(expects);
                self.send(s, create);
                true
            }
            (_, None) => {
                self.send(s, create);
                self.send(s, Request::WatchPath { task: t as u8, acquisition: task.acquisition });
                true
            }
            (None, Some(_)) => false,
        }
    }

    /// Our node was created: grants, or looks, unless that is for another answer to decide.
    pub(crate) fn created_undisturbed(&mut self, s: usize, t: usize) -> bool {
        let task = *self.task(s, t);
        let number = self.state.log.node(task.own).map(|node| node.number);
        let session = &self.state.sessions[s];
        let Some(expected) = task.expects else {
            let asked = Request::WatchPath { task: t as u8, acquisition: task.acquisition };
            return session.flight.iter().any(|one| one.request == asked);
        };
        let Expectation { number: next, deleted, armed, .. } = match session.last {
            // The record as it is now, not as it was when the create was sent.
            Some(last) if !self.rules.used_up_once => {
                Expectation { number: last.number + 1, deleted: last.deleted, ..expected }
            }
            _ => expected,
        };
        let deleted = deleted == Some(Outcome::Done) || !self.rules.delete_answered_ok;
        let armed = armed && session.arm.is_some_and(|arm| arm.proved || !self.rules.arm_proved);
        self.task_mut(s, t).expects = None;
        if number == Some(next) && deleted && armed {
            if let Some(last) = self.state.sessions[s].last.as_mut().filter(|_| !self.rules.used_up_once) {
                last.number = next;
            }
            self.task_mut(s, t).alone = true;
            self.grant(s, t);
        } else {
            self.look(s, t);
        }
        true
    }

    /// The Stat of the path, with a watch on it.
    pub(crate) fn path_watched(&mut self, s: usize, t: usize, acquisition: u8) {
        let task = *self.task(s, t);
        if task.acquisition != acquisition || !matches!(task.phase, Phase::Listing | Phase::Holding) {
            return;
        }
        let stat = self.state.log.stat(self.state.sessions[s].seen);
        let number = self.state.log.node(task.own).map_or(0, |node| node.number);
        let ours = match self.rules.stat_by_pzxid {
            true => stat.pzxid == task.own,
            false => stat.creates == number + 1,
        };
        let alone = ours && stat.children == 1;
        self.state.sessions[s].arm.get_or_insert(Arm { node: task.own, proved: alone });
        if task.phase == Phase::Holding {
        } else if alone {
            self.task_mut(s, t).alone = true;
            self.grant(s, t);
        } else {
            self.look(s, t);
        }
    }

    /// A holder sends a watch on the path, for want of one that stands.
    pub(crate) fn arm(&mut self, s: usize, t: usize) {
        let acquisition = self.task(s, t).acquisition;
        self.send(s, Request::WatchPath { task: t as u8, acquisition });
    }

    /// The watch on the path has fired.
    pub(crate) fn path_changed(&mut self, s: usize) {
        let session = &mut self.state.sessions[s];
        if self.rules.event_ends_arm {
            session.arm = None;
        }
        // What was expected under this watch is not to be taken for granted under the next.
        if self.rules.event_ends_arm && self.rules.arm_before_delete {
            session.last = None;
            session
                .tasks
                .iter_mut()
                .filter_map(|task| task.expects.as_mut())
                .for_each(|expects| expects.armed = false);
        }
    }

    /// A release was sent.
    pub(crate) fn remember_last(&mut self, s: usize, t: usize) {
        let task = *self.task(s, t);
        if self.rules.undisturbed
            && (task.kind == Kind::Lock || !self.rules.mutex_only)
            && self.state.sessions[s].connected
            && let Some(node) = self.state.log.node(task.own)
        {
            let last = Last { node: task.own, number: node.number, alone: task.alone, deleted: None };
            self.state.sessions[s].last = Some(last);
        }
    }

    /// A delete was answered.
    pub(crate) fn note_deleted(&mut self, s: usize, node: Zxid, outcome: Outcome) {
        let session = &mut self.state.sessions[s];
        if let Some(last) = session.last.as_mut().filter(|last| last.node == node) {
            last.deleted = Some(outcome);
        }
        let expected = session.tasks.iter_mut().filter_map(|task| task.expects.as_mut());
        expected.filter(|expects| expects.last == node).for_each(|expects| expects.deleted = Some(outcome));
        if let Some(arm) = session.arm.as_mut().filter(|arm| arm.node == node && outcome == Outcome::Done) {
            arm.proved = true;
        }
    }
}
