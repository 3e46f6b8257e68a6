//! An acquisition: its place in the queue, from its create to its grant.

use crate::{Action, Ask, Change, Kind, Machine, Moment, Name, Node, Op, Outcome, Path, Session, Trust, Watch};

/// An acquisition whose handle is alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquisition {
    pub path: Path,
    pub kind: Kind,
    pub stage: Stage,
    pub node: Node,
    /// How many creates it has sent. Each has a guid of its own, so a node of a lost create is never taken for a later one.
    pub attempt: u8,
    /// It queues if the lock is contended.
    pub waits: bool,
    /// The watch on its own node.
    pub own: Armed,
    /// The acquisitions that wait for it in memory.
    pub followers: Vec<Op>,
    /// The downgrade of a writer that holds.
    pub change: Change,
    /// For how many ticks it has been held, up to two: then it is watched.
    pub age: u8,
}

/// Where an acquisition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Queuing(Place),
    Held,
    Releasing,
    Over(End),
}

/// The place of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Its node is being created, or searched for.
    Entering,
    /// It wants a listing, or one is under way.
    Looking,
    /// Its predecessor is a node of this session, which waits itself, or holds.
    Following { predecessor: Name, op: Op },
    /// Its predecessor is a node of another session. `is_only`: no other contender is ahead, as listed on this connection.
    Watching { predecessor: Name, armed: Armed, is_only: bool },
    /// A quorum has to confirm that its node is there. `is_first`: then it holds. Else a listing did not show its node.
    Proving { is_first: bool, is_asked: bool },
}

/// A watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Armed {
    No,
    Sending,
    Set,
    /// The server does not let us set it.
    Refused,
}

/// How an acquisition ended, for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    Released,
    Lost(Loss),
    /// The node of a waiter was deleted by hand.
    Evicted,
    /// The lock is contended, and the acquisition does not wait.
    Contended,
    Refused,
    Closed,
}

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    Expired,
    Deleted,
    Closed,
}

impl<T: Trust> Machine<T> {
    pub(crate) fn acquire(&mut self, now: Moment, op: Op, path: Path, kind: Kind, waits: bool) {
        let one = Acquisition {
            path,
            kind,
            stage: Stage::Queuing(Place::Entering),
            node: Node::None,
            attempt: 0,
            waits,
            own: Armed::No,
            followers: Vec::new(),
            change: Change::None,
            age: 0,
        };
        self.ops.insert(op, one);
        match self.session {
            Session::Open | Session::Renewing => self.enter(now, op),
            Session::Closing | Session::Over => self.finish(now, op, End::Closed),
        }
    }

    /// Creates the node. Where that cannot grant the lock by itself, a listing goes out with it.
    pub(crate) fn enter(&mut self, now: Moment, op: Op) {
        if !self.is_up {
            return;
        }
        let guid = self.guid(op);
        let Some(one) = self.ops.get_mut(&op) else { return };
        let (path, kind, attempt) = (one.path, one.kind, one.attempt);
        let row = self.rows.entry(path).or_default();
        let counts = row.is_empty && !row.is_contended && !row.is_refused;
        let guid = guid | u128::from(attempt);
        one.attempt += 1;
        one.node = Node::Sending { guid };
        row.creating += 1;
        let lists = !counts && row.look.is_none();
        if lists {
            row.wanted.push(op);
        }
        self.send(Ask::Create { op, path, guid, kind, counts });
        if lists {
            self.look(now, path);
        }
    }

    /// The acquisition needs a listing.
    pub(crate) fn want_look(&mut self, now: Moment, op: Op) {
        self.unlink(op);
        let Some(one) = self.ops.get_mut(&op) else { return };
        if matches!(one.stage, Stage::Queuing(_)) && !matches!(one.node, Node::Unknown { .. }) {
            one.stage = Stage::Queuing(Place::Looking);
        }
        let path = one.path;
        self.rows.entry(path).or_default().want(op);
        self.look(now, path);
    }

    /// Finds the position of an acquisition in a listing.
    pub(crate) fn judge(&mut self, now: Moment, op: Op, names: &[Name], is_fresh: bool) {
        let Some(one) = self.ops.get(&op) else { return };
        let Node::There { name: own, .. } = one.node else { return };
        if matches!(one.stage, Stage::Queuing(Place::Proving { .. }) | Stage::Releasing | Stage::Over(_)) {
            return;
        }
        let (kind, waits, stage) = (one.kind, one.waits, one.stage);
        let Ok(at) = names.binary_search(&own) else {
            // A downgrade deletes it.
            if !one.change.is_open() {
                self.prove(now, op, false);
            }
            return;
        };
        if stage == Stage::Held {
            return;
        }
        let excludes = |name: &&Name| kind.waits_for(name.kind) && !self.is_abandoned(**name);
        let mut ahead = names[..at].iter().rev().filter(excludes).copied();
        match (ahead.next(), ahead.next()) {
            (None, _) => self.first(now, op, is_fresh),
            (Some(_), _) if !waits => self.finish(now, op, End::Contended),
            (Some(predecessor), next) => match self.op_of(predecessor) {
                Some(other) => self.follow(op, other, predecessor),
                None => self.watch(op, predecessor, next.is_none()),
            },
        }
    }

    /// Waits in memory for a node of this session.
    fn follow(&mut self, op: Op, ahead: Op, predecessor: Name) {
        self.unlink(op);
        if let Some(one) = self.ops.get_mut(&op) {
            one.stage = Stage::Queuing(Place::Following { predecessor, op: ahead });
        }
        if let Some(ahead) = self.ops.get_mut(&ahead) {
            ahead.followers.push(op);
        }
        self.arm(op);
        self.arm(ahead);
    }

    fn watch(&mut self, op: Op, predecessor: Name, is_only: bool) {
        let Some(one) = self.ops.get(&op) else { return };
        if let Stage::Queuing(Place::Watching { predecessor: before, .. }) = one.stage
            && before == predecessor
        {
            return;
        }
        self.unlink(op);
        if let Some(one) = self.ops.get_mut(&op) {
            one.stage = Stage::Queuing(Place::Watching { predecessor, armed: Armed::No, is_only });
        }
        self.arm_predecessor(op);
        self.at_front(op);
    }

    /// Sets the watch on the predecessor, if it is not set.
    pub(crate) fn arm_predecessor(&mut self, op: Op) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        let Stage::Queuing(Place::Watching { predecessor: name, armed: armed @ Armed::No, .. }) = &mut one.stage
        else {
            return;
        };
        if self.is_up {
            *armed = Armed::Sending;
            let ask = Ask::Watch { op, path: one.path, name: *name };
            self.send(ask);
        }
    }

    pub(crate) fn watched(&mut self, now: Moment, op: Op, name: Name, outcome: &Outcome) {
        let id = self.id;
        let Some(one) = self.ops.get_mut(&op) else { return };
        let Stage::Queuing(Place::Watching { predecessor, armed: armed @ Armed::Sending, is_only }) =
            &mut one.stage
        else {
            return;
        };
        if *predecessor != name {
            return;
        }
        match outcome {
            // A node of another handle on this session goes with our own, in no order.
            Outcome::Stat { owner } => (*armed, *is_only) = (Armed::Set, *is_only && *owner != id),
            Outcome::Unknown => {
                *armed = Armed::No;
                self.pause(now);
            }
            _ => self.want_look(now, op),
        }
    }

    pub(crate) fn predecessor_fired(&mut self, now: Moment, op: Op, name: Name, is_deleted: bool) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        let Stage::Queuing(Place::Watching { predecessor, armed, is_only }) = &mut one.stage else { return };
        if *predecessor != name {
            return;
        }
        // The event uses the watch up.
        *armed = Armed::No;
        let is_plain = one.kind.is_plain() && name.kind.is_plain();
        let is_next = *is_only && is_deleted && is_plain && one.own == Armed::Set;
        if is_next && self.is_trusted_for_long(now) {
            self.first(now, op, true);
        } else {
            self.want_look(now, op);
        }
    }

    /// The acquisition is first in its queue. It holds, unless the session or the answer that shows it has to be confirmed.
    pub(crate) fn first(&mut self, now: Moment, op: Op, is_fresh: bool) {
        self.unlink(op);
        if is_fresh && self.is_trusted(now) { self.hold(now, op) } else { self.prove(now, op, true) }
    }

    /// Asks a quorum whether the node is there.
    pub(crate) fn prove(&mut self, now: Moment, op: Op, is_first: bool) {
        self.unlink(op);
        let Some(one) = self.ops.get_mut(&op) else { return };
        if matches!(one.stage, Stage::Queuing(_)) {
            one.stage = Stage::Queuing(Place::Proving { is_first, is_asked: false });
        }
        self.ask_proof(now, op);
        self.at_front(op);
    }

    pub(crate) fn ask_proof(&mut self, now: Moment, op: Op) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        let Node::There { name, .. } = one.node else { return };
        let path = one.path;
        match &mut one.stage {
            Stage::Queuing(Place::Proving { is_asked, .. }) if self.is_up && !*is_asked => *is_asked = true,
            Stage::Held if self.is_up => {}
            _ => return,
        }
        if !self.is_trusted(now) && self.renewing == 0 {
            self.renewing = 1;
            self.send(Ask::Read);
        }
        self.send(Ask::Prove { op, path, name });
    }

    pub(crate) fn proved(&mut self, now: Moment, op: Op, name: Name, is_fresh: bool, outcome: &Outcome) {
        let is_trusted = self.is_trusted(now);
        let Some(one) = self.ops.get_mut(&op).filter(|one| one.is_there(name)) else { return };
        match (one.stage, outcome) {
            (Stage::Held, Outcome::NoNode) => self.finish(now, op, End::Lost(crate::Loss::Deleted)),
            // The leader has judged it in a session that lived: the node was deleted by hand.
            (Stage::Queuing(Place::Proving { .. }), Outcome::NoNode) => self.finish(now, op, End::Evicted),
            (Stage::Queuing(Place::Proving { is_first, .. }), outcome) => {
                one.stage = Stage::Queuing(Place::Proving { is_first, is_asked: false });
                match outcome {
                    Outcome::Unknown => self.pause(now),
                    // A server that lags behind should show it now. It is not asked in a hurry.
                    _ if !is_first => {
                        one.stage = Stage::Queuing(Place::Looking);
                        self.pause(now);
                    }
                    _ if is_fresh && is_trusted => self.hold(now, op),
                    _ => self.prove_later(now),
                }
            }
            _ => {}
        }
    }

    /// Ends what the acquisition waits for.
    pub(crate) fn unlink(&mut self, op: Op) {
        let Some(one) = self.ops.get(&op) else { return };
        match one.stage {
            Stage::Queuing(Place::Following { op: ahead, .. }) => {
                if let Some(ahead) = self.ops.get_mut(&ahead) {
                    ahead.followers.retain(|follower| *follower != op);
                }
            }
            Stage::Queuing(Place::Watching { predecessor, armed: Armed::Set, .. }) => {
                self.out.push(Action::Unwatch(Watch::Predecessor(op, predecessor)));
            }
            _ => {}
        }
    }

    /// It waits for no node of this session any more, so its end is to be seen, and that of the nodes behind it.
    pub(crate) fn at_front(&mut self, op: Op) {
        self.arm(op);
        let followers = self.ops.get(&op).map(|one| one.followers.clone()).unwrap_or_default();
        followers.into_iter().for_each(|follower| self.arm(follower));
    }

    fn is_front(&self, op: Op) -> bool {
        let is_front =
            |stage| matches!(stage, Stage::Queuing(Place::Watching { .. } | Place::Proving { .. }) | Stage::Held);
        self.stage(op).is_some_and(is_front)
    }

    /// Watches its own node, if that is of use and the watch is not set.
    pub(crate) fn arm(&mut self, op: Op) {
        let Some(one) = self.ops.get(&op) else { return };
        let is_followed = !one.followers.is_empty();
        let is_of_use = match one.stage {
            Stage::Queuing(Place::Following { op: ahead, .. }) => self.is_front(ahead),
            Stage::Queuing(Place::Watching { is_only, .. }) => is_only || is_followed,
            Stage::Queuing(Place::Proving { .. }) => is_followed,
            Stage::Held => is_followed || one.age >= 2,
            _ => false,
        };
        let Some(one) = self.ops.get_mut(&op) else { return };
        if let (Node::There { name, .. }, Armed::No, true, true) = (one.node, one.own, is_of_use, self.is_up) {
            one.own = Armed::Sending;
            let ask = Ask::WatchOwn { op, path: one.path, name };
            self.send(ask);
        }
    }

    pub(crate) fn own_watched(&mut self, now: Moment, op: Op, name: Name, outcome: &Outcome) {
        let Some(one) = self.ops.get_mut(&op).filter(|one| one.is_there(name)) else { return };
        match outcome {
            Outcome::Stat { .. } => one.own = Armed::Set,
            Outcome::NoNode => self.own_fired(now, op, name, true),
            Outcome::Unknown => {
                one.own = Armed::No;
                self.pause(now);
            }
            _ => one.own = Armed::Refused,
        }
    }

    pub(crate) fn own_fired(&mut self, now: Moment, op: Op, name: Name, is_deleted: bool) {
        let Some(one) = self.ops.get_mut(&op).filter(|one| one.is_there(name)) else { return };
        one.own = Armed::No;
        match one.stage {
            _ if !is_deleted => self.arm(op),
            // A downgrade deletes it. Its answer shows whether it did.
            Stage::Held if one.change.is_open() => {}
            Stage::Held => self.finish(now, op, End::Lost(crate::Loss::Deleted)),
            // It will not be in the listing, and then a quorum is asked.
            Stage::Queuing(Place::Following { .. } | Place::Watching { .. }) => {
                self.want_look(now, op);
                self.send_followers(now, op);
            }
            _ => {}
        }
    }

    /// Those that follow it look for another predecessor.
    pub(crate) fn send_followers(&mut self, now: Moment, op: Op) {
        let followers = self.ops.get_mut(&op).map(|one| std::mem::take(&mut one.followers)).unwrap_or_default();
        followers.into_iter().for_each(|follower| self.want_look(now, follower));
    }

    /// Ends an acquisition for its caller, who reads how.
    pub(crate) fn finish(&mut self, now: Moment, op: Op, end: End) {
        self.leave(now, op);
        if let Some(one) = self.ops.get_mut(&op) {
            one.stage = Stage::Over(end);
            self.wake(op);
        }
    }

    pub(crate) fn abandon(&mut self, now: Moment, op: Op) {
        if self.stage(op) == Some(Stage::Held) {
            self.release(now, op);
        }
        self.leave(now, op);
        self.ops.remove(&op);
    }

    /// Gives its node up, and its place.
    fn leave(&mut self, now: Moment, op: Op) {
        self.unlink(op);
        let Some(one) = self.ops.get_mut(&op) else { return };
        let path = one.path;
        match std::mem::replace(&mut one.node, Node::Gone) {
            Node::There { name, .. } => self.delete(op, path, name, None),
            // A create that is under way ends with its answer.
            Node::Unknown { .. } => self.doubt(now, path),
            Node::None | Node::Sending { .. } | Node::Gone => {}
        }
        self.give_up_downgrade(now, op);
        self.send_followers(now, op);
    }
}

impl Acquisition {
    fn is_there(&self, node: Name) -> bool {
        matches!(self.node, Node::There { name, .. } if name == node)
    }
}
