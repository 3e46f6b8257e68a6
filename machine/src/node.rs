//! Nodes of this session: created, searched for after a lost create, and deleted until that is certain.

use crate::{
    Acquisition, Aside, Ask, Change, End, Loss, Machine, Moment, Name, Op, Outcome, Path, Place, Stage, Trust,
};

/// The node of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// Nothing was sent.
    None,
    Sending {
        guid: u128,
    },
    /// The create has an unknown outcome; it is searched for.
    Unknown {
        guid: u128,
    },
    There {
        name: Name,
        czxid: Aside<i64>,
    },
    /// Deleted, or left to be deleted.
    Gone,
}

/// A node that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaving {
    pub op: Op,
    /// An earlier delete had an unknown outcome.
    pub is_again: bool,
    pub is_sent: bool,
    /// Its answer ends the release of this acquisition.
    pub releases: Option<Op>,
    /// The guid of the reader of a downgrade that is under way. Its answer decides what becomes of that node.
    pub replaced_by: Option<u128>,
}

impl Name {
    /// The acquisition that created it, if it is a node of this session.
    pub(crate) fn guid_op(self) -> Op {
        (self.guid >> 32) as Op
    }
}

impl<T: Trust> Machine<T> {
    /// The guid of an acquisition's creates, without their number.
    pub(crate) fn guid(&self, op: Op) -> u128 {
        u128::from(self.nonce) << 64 | u128::from(op) << 32
    }

    /// The acquisition that a node of this session belongs to.
    pub(crate) fn op_of(&self, name: Name) -> Option<Op> {
        let op = name.guid_op();
        let is_own = |one: &Acquisition| match one.node {
            Node::Sending { guid } | Node::Unknown { guid } => guid == name.guid,
            Node::There { name: own, .. } => own == name || one.change.guid() == Some(name.guid),
            Node::None | Node::Gone => false,
        };
        (self.is_ours(name) && self.ops.get(&op).is_some_and(is_own)).then_some(op)
    }

    fn is_ours(&self, name: Name) -> bool {
        name.guid >> 64 == u128::from(self.nonce)
    }

    /// Whether it is a node of this session that belongs to no acquisition.
    pub(crate) fn is_abandoned(&self, name: Name) -> bool {
        let is_awaited = || self.leaving.values().any(|one| one.replaced_by == Some(name.guid));
        self.is_ours(name) && self.op_of(name).is_none() && !is_awaited()
    }

    pub(crate) fn created(
        &mut self,
        now: Moment,
        op: Op,
        path: Path,
        guid: u128,
        is_fresh: bool,
        outcome: Outcome,
    ) {
        let row = self.rows.entry(path).or_default();
        row.creating -= 1;
        if let Outcome::Created { others: Some(others), .. } = outcome {
            row.is_contended = others > 0;
        }
        row.is_refused |= outcome == Outcome::DataRefused;
        let is_listed = row.has(op);
        let one = self.ops.get_mut(&op).filter(|one| one.node == Node::Sending { guid });
        match (outcome, one) {
            (Outcome::Created { name, czxid, others }, Some(one)) => {
                one.node = Node::There { name, czxid: Aside(czxid) };
                one.stage = Stage::Queuing(Place::Looking);
                if others == Some(0) {
                    self.first(now, op, is_fresh);
                } else if !is_listed {
                    self.want_look(now, op);
                }
            }
            (Outcome::Created { name, .. }, None) => self.delete(op, path, name, None),
            (Outcome::Unknown, Some(one)) => {
                one.node = Node::Unknown { guid };
                row_of(&mut self.rows, path).want(op);
                self.pause(now);
            }
            (Outcome::Unknown, None) => self.doubt_later(now, path),
            (Outcome::DataRefused, Some(one)) => {
                one.node = Node::None;
                self.enter(now, op);
            }
            (_, Some(one)) => {
                one.node = Node::Gone;
                self.finish(now, op, End::Refused);
            }
            (_, None) => {}
        }
    }

    /// A listing behind a barrier shows this node of a lost create, or none.
    pub(crate) fn searched(&mut self, now: Moment, op: Op, found: Option<Name>) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        let path = one.path;
        match found {
            Some(name) => self.send(Ask::Owner { op, path, name }),
            None => {
                one.node = Node::None;
                // It may turn up late.
                self.doubt_late(now, path);
                // Somebody may have seen it, and deleted it by hand.
                self.send_followers(now, op);
                self.enter(now, op);
            }
        }
    }

    pub(crate) fn owner_known(&mut self, now: Moment, op: Op, path: Path, name: Name, outcome: Outcome) {
        let id = self.id;
        let one = self.ops.get_mut(&op).filter(|one| one.node == Node::Unknown { guid: name.guid });
        let Some(one) = one else { return };
        match outcome {
            Outcome::Stat { owner } if owner == id => {
                one.node = Node::There { name, czxid: Aside(0) };
                self.want_look(now, op);
            }
            // The servers have put another session in the place of ours, and the node belongs to that.
            Outcome::Stat { .. } => {
                self.expired(now);
                self.out.push(crate::Action::Replace);
            }
            Outcome::Unknown => {
                row_of(&mut self.rows, path).want(op);
                self.pause(now);
            }
            // It was there: it was deleted by hand.
            _ => self.finish(now, op, End::Evicted),
        }
    }

    /// Deletes a node until that is certain.
    pub(crate) fn delete(&mut self, op: Op, path: Path, name: Name, releases: Option<Op>) {
        if self.leaving.contains_key(&(path, name)) {
            return;
        }
        let is_sent = self.is_up;
        if is_sent {
            self.send(Ask::Delete { op, path, name });
        }
        // A downgrade with an unknown outcome may delete it first.
        let change = self.ops.get(&op).map_or(Change::None, |one| one.change);
        let (is_again, replaced_by) = (change.is_lost(), change.guid());
        self.leaving.insert((path, name), Leaving { op, is_again, is_sent, releases, replaced_by });
    }

    pub(crate) fn deleted(&mut self, now: Moment, path: Path, name: Name, outcome: &Outcome) {
        let Some(one) = self.leaving.get_mut(&(path, name)) else { return };
        let Leaving { is_again, releases, .. } = *one;
        if *outcome == Outcome::Unknown {
            (one.is_again, one.is_sent) = (true, false);
            return self.pause(now);
        }
        self.leaving.remove(&(path, name));
        if let Some(op) = releases.filter(|op| self.stage(*op) == Some(Stage::Releasing)) {
            let end = match outcome {
                // After a delete with an unknown outcome nobody can know who deleted it.
                Outcome::NoNode if !is_again => End::Lost(Loss::Deleted),
                Outcome::Refused => End::Refused,
                _ => End::Released,
            };
            self.finish(now, op, end);
        }
    }

    /// Sends again the deletes that were not sent, or were lost.
    pub(crate) fn delete_again(&mut self) {
        let mut asks = Vec::new();
        for ((path, name), one) in self.leaving.iter_mut().filter(|(_, one)| !one.is_sent) {
            one.is_sent = true;
            asks.push(Ask::Delete { op: one.op, path: *path, name: *name });
        }
        asks.into_iter().for_each(|ask| self.send(ask));
    }
}

fn row_of(rows: &mut std::collections::BTreeMap<Path, crate::Row>, path: Path) -> &mut crate::Row {
    rows.entry(path).or_default()
}
