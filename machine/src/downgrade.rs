//! The downgrade of a writer that holds: the reader takes its place in the queue, without a gap.

use crate::{
    Acquisition, Armed, Aside, Ask, End, Kind, Loss, Machine, Moment, Name, Node, Op, Outcome, Path, Stage, Trust,
};

/// How the downgrade of a hold stands. The reader's node has one name in all attempts, so there is never a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
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
    /// An attempt had an unknown outcome, and the reader's node is searched for. `is_gone`: the writer's node is gone.
    Unknown {
        guid: u128,
        is_gone: bool,
    },
    /// The server does not let us.
    Refused,
}

impl Change {
    /// Whether an attempt may have been done, or may be yet.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.guid().is_some()
    }

    pub(crate) fn guid(self) -> Option<u128> {
        match self {
            Self::Wanted { guid, is_again: true } | Self::Sending { guid, .. } | Self::Unknown { guid, .. } => {
                Some(guid)
            }
            Self::None | Self::Wanted { .. } | Self::Refused => None,
        }
    }

    /// Whether an attempt had an unknown outcome.
    pub(crate) fn is_lost(self) -> bool {
        matches!(
            self,
            Self::Wanted { is_again: true, .. } | Self::Sending { is_again: true, .. } | Self::Unknown { .. }
        )
    }
}

impl Acquisition {
    /// Whether a listing has to show whether one of its requests was done.
    pub(crate) fn is_searched_for(&self) -> bool {
        matches!(self.node, Node::Unknown { .. }) || matches!(self.change, Change::Unknown { .. })
    }
}

impl<T: Trust> Machine<T> {
    pub(crate) fn downgrade(&mut self, op: Op) {
        let base = self.guid(op);
        let holds = |one: &&mut Acquisition| one.stage == Stage::Held && one.kind == Kind::Write;
        if let Some(one) = self.ops.get_mut(&op).filter(holds) {
            one.change = Change::Wanted { guid: base | u128::from(one.attempt), is_again: false };
            one.attempt += 1;
            self.resume_downgrade(op);
        }
    }

    pub(crate) fn resume_downgrade(&mut self, op: Op) {
        let Some(one) = self.ops.get_mut(&op).filter(|one| one.stage == Stage::Held) else { return };
        if let (Change::Wanted { guid, is_again }, Node::There { name, .. }, true) =
            (one.change, one.node, self.is_up)
        {
            one.change = Change::Sending { guid, is_again };
            let path = one.path;
            self.rows.entry(path).or_default().creating += 1;
            self.send(Ask::Replace { op, path, name, guid });
        }
    }

    pub(crate) fn replaced(
        &mut self,
        now: Moment,
        op: Op,
        path: Path,
        writer: Name,
        guid: u128,
        outcome: Outcome,
    ) {
        let row = self.rows.entry(path).or_default();
        row.creating -= 1;
        let one = self.ops.get_mut(&op);
        let Some((one, is_again)) = one.and_then(|one| match one.change {
            Change::Sending { guid: sent, is_again } if sent == guid => Some((one, is_again)),
            _ => None,
        }) else {
            return self.replaced_for_nobody(now, op, path, writer, outcome);
        };
        match outcome {
            Outcome::Created { name, .. } => self.downgraded(now, op, name),
            Outcome::Unknown => {
                one.change = Change::Unknown { guid, is_gone: false };
                self.rows.entry(path).or_default().want(op);
                self.pause(now);
            }
            // By an earlier attempt, or by hand.
            Outcome::NoNode if is_again => {
                one.change = Change::Unknown { guid, is_gone: true };
                self.want_look(now, op);
            }
            Outcome::NoNode => {
                one.change = Change::None;
                self.finish(now, op, End::Lost(Loss::Deleted));
            }
            _ => {
                one.change = Change::Refused;
                self.wake(op);
            }
        }
    }

    /// The hold ended while its downgrade was under way. The writer's node is being deleted.
    fn replaced_for_nobody(&mut self, now: Moment, op: Op, path: Path, writer: Name, outcome: Outcome) {
        let mut leaving = self.leaving.get_mut(&(path, writer));
        if let Some(leaving) = &mut leaving {
            leaving.replaced_by = None;
        }
        match outcome {
            // Now the reader's node is the one that is released.
            Outcome::Created { name, .. } => {
                let releases = leaving.and_then(|leaving| leaving.releases.take());
                self.delete(op, path, name, releases);
            }
            Outcome::Unknown => {
                if let Some(leaving) = leaving {
                    leaving.is_again = true;
                }
                self.doubt_later(now, path);
            }
            _ => {}
        }
    }

    /// A listing shows the reader's node, or none.
    pub(crate) fn downgrade_searched(&mut self, now: Moment, op: Op, found: Option<Name>, is_certain: bool) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        match (found, one.change) {
            (Some(name), _) => self.downgraded(now, op, name),
            (None, _) if !is_certain => self.want_look(now, op),
            (None, Change::Unknown { is_gone: true, .. }) => {
                one.change = Change::None;
                self.finish(now, op, End::Lost(Loss::Deleted));
            }
            (None, Change::Unknown { guid, .. }) => {
                one.change = Change::Wanted { guid, is_again: true };
                self.resume_downgrade(op);
            }
            (None, _) => {}
        }
    }

    /// The hold ends: the reader's node, if there is or will be one, is abandoned.
    pub(crate) fn give_up_downgrade(&mut self, now: Moment, op: Op) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        let path = one.path;
        if std::mem::replace(&mut one.change, Change::None).is_lost() {
            self.doubt(now, path);
        }
    }

    fn downgraded(&mut self, now: Moment, op: Op, name: Name) {
        let Some(one) = self.ops.get_mut(&op) else { return };
        let czxid = match one.node {
            Node::There { czxid, .. } => czxid,
            _ => Aside(0),
        };
        // The hold keeps its token.
        (one.node, one.kind, one.own, one.change) =
            (Node::There { name, czxid }, Kind::Read, Armed::No, Change::None);
        self.arm(op);
        self.send_followers(now, op);
        self.wake(op);
    }
}
