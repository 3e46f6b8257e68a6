//! Downgrades a held write lock: a reader's node takes the writer's place in the queue, without a gap.

use crate::{
    Acquisition, Ask, End, Kind, Loss, Machine, Moment, Name, Node, Op, Outcome, Path, Phase, Shown, Trust,
    Untracked, WatchState, op_node,
};

/// The progress of a downgrade. All attempts use one name for the reader's node, so there is never a second reader, and
/// a later attempt finds the node of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Change {
    #[default]
    None,
    /// The request is to be sent when there is a connection. `may_be_done`: an earlier attempt had an unknown outcome.
    Wanted {
        guid: u128,
        may_be_done: bool,
    },
    Sending {
        guid: u128,
        may_be_done: bool,
    },
    /// The server refused the request.
    Refused,
}

/// A writer that becomes a reader.
#[derive(Clone, Copy)]
pub struct Replacement {
    pub path: Path,
    pub writer: Name,
    /// The guid of the reader's node.
    pub guid: u128,
}

impl Change {
    /// Returns whether an attempt may have been done, or may still be done.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.guid().is_some()
    }

    pub fn guid(self) -> Option<u128> {
        match self {
            Self::Wanted { guid, may_be_done: true } | Self::Sending { guid, .. } => Some(guid),
            Self::None | Self::Wanted { .. } | Self::Refused => None,
        }
    }

    pub(crate) fn is_sending(self) -> bool {
        matches!(self, Self::Sending { .. })
    }

    /// Returns whether an attempt had an unknown outcome.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Wanted { may_be_done: true, .. } | Self::Sending { may_be_done: true, .. })
    }
}

impl<T: Trust> Machine<T> {
    pub fn downgrade(&mut self, op: Op) {
        let holds = |acquisition: &Acquisition| {
            // A downgrade under way goes on, even if its call was dropped.
            let is_free = matches!(acquisition.change, Change::None | Change::Refused);
            let is_writer = acquisition.single().is_some_and(|queue| queue.kind == Kind::Write);
            acquisition.phase == Phase::Held && is_free && is_writer
        };
        if self.op(op).is_some_and(holds)
            && let Some(guid) = self.next_guid(op)
            && let Some(acquisition) = self.ops.get_mut(&op)
        {
            acquisition.change = Change::Wanted { guid, may_be_done: false };
            self.resume_downgrade(op);
        }
    }

    pub(crate) fn resume_downgrade(&mut self, op: Op) {
        let is_up = self.is_up;
        let holds = |acquisition: &&mut Box<Acquisition>| {
            acquisition.phase == Phase::Held && acquisition.node == Node::There
        };
        let Some(acquisition) = self.ops.get_mut(&op).filter(holds) else { return };
        let Some((path, name)) = acquisition.nodes().first().copied() else { return };
        if let Change::Wanted { guid, may_be_done } = acquisition.change
            && is_up
        {
            acquisition.change = Change::Sending { guid, may_be_done };
            self.paths.entry(path).or_default().creating += 1;
            self.send(Ask::Replace { op, path, name, guid });
        }
    }

    pub(crate) fn replaced(&mut self, now: Moment, op: Op, what: Replacement, outcome: &Outcome) {
        let Replacement { path, writer, guid } = what;
        self.create_answered(path);
        let acquisition = self.ops.get_mut(&op);
        let Some((acquisition, may_be_done)) = acquisition.and_then(|acquisition| match acquisition.change {
            Change::Sending { guid: sent, may_be_done } if sent == guid => Some((acquisition, may_be_done)),
            _ => None,
        }) else {
            return self.replaced_for_nobody(now, what, outcome);
        };
        match outcome {
            Outcome::Created { czxid, .. } => self.downgraded(op, writer, guid, *czxid),
            // An earlier attempt created the reader's node.
            Outcome::Exists if may_be_done => self.downgraded(op, writer, guid, 0),
            Outcome::Unknown => {
                acquisition.change = Change::Wanted { guid, may_be_done: true };
                self.search_soon(now, path);
            }
            // The node was deleted by hand: the writer's, or the reader's if an earlier attempt was done.
            Outcome::NoNode => {
                acquisition.change = Change::None;
                self.finish(now, op, End::Lost(Loss::Deleted));
            }
            // This attempt or an earlier one may have been done. Then the writer's node is gone, and a quorum has to
            // show that.
            _ if may_be_done || *outcome == Outcome::UnknownError => {
                acquisition.change = Change::Refused;
                self.search_soon(now, path);
                self.confirm(now, op, false);
                self.wake(op);
            }
            _ => {
                acquisition.change = Change::Refused;
                self.wake(op);
            }
        }
    }

    /// Handles the answer to a downgrade whose hold has ended. The writer's node is being deleted.
    fn replaced_for_nobody(&mut self, now: Moment, what: Replacement, outcome: &Outcome) {
        let Replacement { path, writer, guid } = what;
        let mut delete = self.deletes.get_mut(&op_node((path, writer)));
        if let Some(delete) = &mut delete {
            delete.replaced_by = None;
        }
        match outcome {
            // The reader's node has replaced the writer's, so it has to be deleted instead.
            Outcome::Created { .. } | Outcome::Exists => {
                let releases = delete.is_some_and(|delete| std::mem::take(&mut delete.releases));
                self.delete([(path, writer.reader(guid))].into(), releases);
            }
            Outcome::Unknown | Outcome::UnknownError => {
                if let Some(delete) = delete {
                    delete.may_be_done = true;
                }
                self.search_soon(now, path);
            }
            _ => {}
        }
    }

    /// Abandons the downgrade of a hold that ends. If a reader's node may have been created, a search deletes it.
    pub(crate) fn give_up_downgrade(&mut self, now: Moment, op: Op) {
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        let is_lost = std::mem::take(&mut acquisition.change).is_lost();
        if let Some(path) = acquisition.queues.first().map(|queue| queue.path).filter(|_| is_lost) {
            self.search_soon(now, path);
        }
    }

    fn downgraded(&mut self, op: Op, writer: Name, guid: u128, czxid: i64) {
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        // The hold keeps its fencing token, although the czxid changes.
        (acquisition.change, acquisition.czxid, acquisition.shown) =
            (Change::None, Untracked(czxid), Shown::Unasked);
        if let Some(queue) = acquisition.queues.first_mut() {
            (queue.name, queue.was) = (Some(writer.reader(guid)), Some(writer));
            (queue.kind, queue.own_watch) = (Kind::Read, WatchState::Unset);
        }
        self.watch_own(op, None);
        self.send_followers(op);
        self.wake(op);
    }
}
