//! The downgrade of a writer that holds: the reader takes its place in the queue, without a gap.

use crate::machine::{
    Acquisition, Armed, Aside, Ask, End, Kind, Loss, Machine, Moment, Name, Node, Op, Outcome, Path, Shown, Stage,
    Trust, op_node,
};

/// How the downgrade of a hold stands. The reader's node has one name in all attempts, so there is never a second one, and a
/// second attempt finds that of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    #[default]
    None,
    /// It is to be sent when there is a connection. `is_again`: an earlier attempt had an unknown outcome.
    Wanted {
        guid: u128,
        is_again: bool,
    },
    Sending {
        guid: u128,
        is_again: bool,
    },
    /// The server does not let us.
    Refused,
}

/// A writer that becomes a reader.
#[derive(Clone, Copy)]
pub(crate) struct Replacement {
    pub(crate) path: Path,
    pub(crate) writer: Name,
    /// Of the reader.
    pub(crate) guid: u128,
}

impl Change {
    /// Whether an attempt may have been done, or may be yet.
    #[must_use]
    pub(crate) fn is_open(self) -> bool {
        self.guid().is_some()
    }

    pub(crate) fn guid(self) -> Option<u128> {
        match self {
            Self::Wanted { guid, is_again: true } | Self::Sending { guid, .. } => Some(guid),
            Self::None | Self::Wanted { .. } | Self::Refused => None,
        }
    }

    pub(crate) fn is_sending(self) -> bool {
        matches!(self, Self::Sending { .. })
    }

    /// Whether an attempt had an unknown outcome.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Wanted { is_again: true, .. } | Self::Sending { is_again: true, .. })
    }
}

impl<T: Trust> Machine<T> {
    pub(crate) fn downgrade(&mut self, op: Op) {
        let base = self.guid(op);
        let holds = |one: &&mut Acquisition| {
            // One that is under way goes on, also if its call was dropped.
            let is_free = matches!(one.change, Change::None | Change::Refused);
            let is_writer = one.single().is_some_and(|queue| queue.kind == Kind::Write);
            one.stage == Stage::Held && is_free && is_writer
        };
        if let Some(one) = self.ops.get_mut(&op).filter(holds) {
            one.change = Change::Wanted { guid: base | u128::from(one.attempt) << 16, is_again: false };
            one.attempt = one.attempt.wrapping_add(1);
            self.resume_downgrade(op);
        }
    }

    pub(crate) fn resume_downgrade(&mut self, op: Op) {
        let is_up = self.is_up;
        let holds = |one: &&mut Acquisition| one.stage == Stage::Held && one.node == Node::There;
        let Some(one) = self.ops.get_mut(&op).filter(holds) else { return };
        let Some((path, name)) = one.nodes().first().copied() else { return };
        if let Change::Wanted { guid, is_again } = one.change
            && is_up
        {
            one.change = Change::Sending { guid, is_again };
            self.rows.entry(path).or_default().creating += 1;
            self.send(Ask::Replace { op, path, name, guid });
        }
    }

    pub(crate) fn replaced(&mut self, now: Moment, op: Op, what: Replacement, outcome: &Outcome) {
        let Replacement { path, writer, guid } = what;
        self.create_answered(path);
        let one = self.ops.get_mut(&op);
        let Some((one, is_again)) = one.and_then(|one| match one.change {
            Change::Sending { guid: sent, is_again } if sent == guid => Some((one, is_again)),
            _ => None,
        }) else {
            return self.replaced_for_nobody(now, what, outcome);
        };
        match outcome {
            Outcome::Created { czxid, .. } => self.downgraded(op, writer, guid, *czxid),
            // By an earlier attempt.
            Outcome::Exists if is_again => self.downgraded(op, writer, guid, 0),
            Outcome::Unknown => {
                one.change = Change::Wanted { guid, is_again: true };
                self.doubt_later(now, path);
            }
            // By hand, whether it was the writer or already the reader.
            Outcome::NoNode => {
                one.change = Change::None;
                self.finish(now, op, End::Lost(Loss::Deleted));
            }
            // It may have been done, or an earlier attempt: then the writer is gone, and a quorum has to show that.
            _ if is_again || *outcome == Outcome::Odd => {
                one.change = Change::Refused;
                self.doubt_later(now, path);
                self.prove(now, op, false);
                self.wake(op);
            }
            _ => {
                one.change = Change::Refused;
                self.wake(op);
            }
        }
    }

    /// The hold ended while its downgrade was under way. The writer's node is being deleted.
    fn replaced_for_nobody(&mut self, now: Moment, what: Replacement, outcome: &Outcome) {
        let Replacement { path, writer, guid } = what;
        let mut leaving = self.leaving.get_mut(&op_node((path, writer)));
        if let Some(leaving) = &mut leaving {
            leaving.replaced_by = None;
        }
        match outcome {
            // Now the reader's node is the one that is released.
            Outcome::Created { .. } | Outcome::Exists => {
                let releases = leaving.is_some_and(|leaving| std::mem::take(&mut leaving.releases));
                self.delete(&[(path, writer.reader(guid))].into(), releases);
            }
            Outcome::Unknown | Outcome::Odd => {
                if let Some(leaving) = leaving {
                    leaving.is_again = true;
                }
                self.doubt_later(now, path);
            }
            _ => {}
        }
    }

    /// The hold ends: the reader's node, if there is or will be one, is abandoned.
    pub(crate) fn give_up_downgrade(&mut self, now: Moment, op: Op) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        let is_lost = std::mem::take(&mut one.change).is_lost();
        if let Some(path) = one.queues.first().map(|queue| queue.path).filter(|_| is_lost) {
            self.doubt_later(now, path);
        }
    }

    fn downgraded(&mut self, op: Op, writer: Name, guid: u128, czxid: i64) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        // The hold keeps its token.
        (one.change, one.czxid, one.shown) = (Change::None, Aside(czxid), Shown::Unasked);
        if let Some(queue) = one.queues.first_mut() {
            (queue.name, queue.was) = (Some(writer.reader(guid)), Some(writer));
            (queue.kind, queue.own) = (Kind::Read, Armed::No);
        }
        self.arm(op, None);
        self.send_followers(op);
        self.wake(op);
    }
}
