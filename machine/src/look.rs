//! Listings of a lock path: at most one is under way, for all acquisitions that want one, and the next for those that come
//! meanwhile. It also finds the nodes of lost creates.

use crate::{Action, Ask, Change, Listing, Machine, Moment, Node, Op, Outcome, Path, Timer, Trust};

/// How long after the first look a create of a lost connection may still be applied, in microseconds. A server was seen to do so.
const SECOND_LOOK: u64 = 1_000_000;

/// How long to wait before a lost request is sent again over a connection that seems to stand.
pub(crate) const PAUSE: u64 = 20_000;

/// What a session knows of a lock path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    /// How many creates are under way.
    pub creating: u32,
    /// Whether creates had unknown outcomes whose nodes may turn up.
    pub doubt: Doubt,
    pub look: Option<Look>,
    /// The acquisitions that want the next listing.
    pub wanted: Vec<Op>,
    /// The path was seen to have no data, over this connection.
    pub is_empty: bool,
    /// The last acquisition found other contenders.
    pub is_contended: bool,
    /// The server does not let us write the path's data.
    pub is_refused: bool,
}

/// Whether nodes of lost creates may turn up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Doubt {
    #[default]
    No,
    /// They are to be looked for now.
    First,
    /// And a second time, after a while.
    Waiting,
    Second,
}

/// A listing that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    pub ops: Vec<Op>,
    pub barrier: Barrier,
    /// The doubt that it settles.
    pub doubt: Doubt,
}

/// Whether a listing misses nothing that was done before it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Barrier {
    No,
    Sent,
    Passed,
}

impl Row {
    pub(crate) fn want(&mut self, op: Op) {
        if !self.wanted.contains(&op) {
            self.wanted.push(op);
        }
    }

    /// Whether a listing that is under way, or the next, is for this acquisition.
    pub(crate) fn has(&self, op: Op) -> bool {
        self.wanted.contains(&op) || self.look.as_ref().is_some_and(|look| look.ops.contains(&op))
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.creating == 0 && self.doubt == Doubt::No
    }
}

impl<T: Trust> Machine<T> {
    /// Sends a listing, if one is wanted and none is under way.
    pub(crate) fn look(&mut self, _now: Moment, path: Path) {
        let Some(row) = self.rows.get_mut(&path) else { return };
        row.wanted.retain(|op| self.ops.contains_key(op));
        let is_due = matches!(row.doubt, Doubt::First | Doubt::Second);
        if !self.is_up || row.look.is_some() || (row.wanted.is_empty() && !is_due) {
            return;
        }
        let ops = std::mem::take(&mut row.wanted);
        let doubt = if is_due { std::mem::take(&mut row.doubt) } else { Doubt::No };
        let is_lost = |op: &Op| self.ops.get(op).is_some_and(crate::Acquisition::is_searched_for);
        let needs_barrier = is_due || ops.iter().any(is_lost);
        let by = ops.first().copied().unwrap_or(Op::MAX);
        let barrier = if needs_barrier { Barrier::Sent } else { Barrier::No };
        row.look = Some(Look { ops, barrier, doubt });
        if needs_barrier {
            self.send(Ask::Barrier { op: by, path });
        }
        self.send(Ask::List { op: by, path });
    }

    pub(crate) fn barred(&mut self, path: Path, is_stale: bool, outcome: &Outcome) {
        let look = self.rows.get_mut(&path).and_then(|row| row.look.as_mut());
        // Refused or not, a quorum has judged it.
        if let Some(look) = look.filter(|_| !is_stale && *outcome != Outcome::Unknown) {
            look.barrier = Barrier::Passed;
        }
    }

    pub(crate) fn listed(&mut self, now: Moment, path: Path, is_stale: bool, is_fresh: bool, outcome: Outcome) {
        let Some(row) = self.rows.get_mut(&path) else { return };
        let Some(Look { ops, barrier, doubt }) = row.look.take() else { return };
        let (names, is_empty) = match outcome {
            // What another connection has shown may be older than what this one has done.
            Outcome::Unknown => return self.look_again(now, path, ops, doubt),
            _ if is_stale || barrier == Barrier::Sent => return self.look_again(now, path, ops, doubt),
            Outcome::Names { names, is_empty } => (names, is_empty),
            Outcome::NoNode => (Listing::default(), false),
            _ => {
                ops.into_iter().for_each(|op| self.finish(now, op, crate::End::Refused));
                return self.look(now, path);
            }
        };
        row.is_empty = is_empty;
        if doubt == Doubt::First {
            self.doubt_late(now, path);
        }
        for name in names.iter() {
            if self.is_abandoned(*name) {
                self.delete(name.guid_op(), path, *name, None);
            }
        }
        for op in ops {
            if let Some(Change::Unknown { guid, .. }) = self.ops.get(&op).map(|one| one.change) {
                let found = names.iter().find(|name| name.guid == guid).copied();
                self.downgrade_searched(now, op, found, barrier == Barrier::Passed);
                continue;
            }
            match self.ops.get(&op).map(|one| one.node) {
                Some(Node::Unknown { guid }) if barrier == Barrier::Passed => {
                    self.searched(now, op, names.iter().find(|name| name.guid == guid).copied());
                }
                Some(Node::Unknown { .. }) => self.want_look(now, op),
                Some(Node::There { .. }) => self.judge(now, op, &names, is_fresh),
                _ => {}
            }
        }
        let row = self.rows.entry(path).or_default();
        row.is_contended = names.len() > 1;
        self.look(now, path);
    }

    /// The listing shows nothing: it is wanted again, after a pause.
    fn look_again(&mut self, now: Moment, path: Path, ops: Vec<Op>, doubt: Doubt) {
        let row = self.rows.entry(path).or_default();
        ops.into_iter().for_each(|op| row.want(op));
        if doubt != Doubt::No && row.doubt != Doubt::First {
            row.doubt = doubt;
        }
        self.pause(now);
    }

    /// As [`doubt`](Self::doubt), after a pause.
    pub(crate) fn doubt_later(&mut self, now: Moment, path: Path) {
        self.rows.entry(path).or_default().doubt = Doubt::First;
        self.pause(now);
    }

    /// A create had an unknown outcome, and nobody searches for its node.
    pub(crate) fn doubt(&mut self, now: Moment, path: Path) {
        self.rows.entry(path).or_default().doubt = Doubt::First;
        self.look(now, path);
    }

    /// A search found no node of a lost create. It is looked for once more.
    pub(crate) fn doubt_late(&mut self, now: Moment, path: Path) {
        let row = self.rows.entry(path).or_default();
        if row.doubt == Doubt::No {
            row.doubt = Doubt::Waiting;
        }
        self.out.push(Action::Timer(Timer::Late(path), now.plus(SECOND_LOOK)));
    }

    /// A create of a lost connection may have been applied since the first look.
    pub(crate) fn late(&mut self, now: Moment, path: Path) {
        if let Some(row) = self.rows.get_mut(&path).filter(|row| row.doubt == Doubt::Waiting) {
            row.doubt = Doubt::Second;
            self.look(now, path);
        }
    }

    pub(crate) fn look_slowly(&mut self, now: Moment) {
        let rests = |one: &crate::Acquisition| {
            matches!(one.stage, crate::Stage::Queuing(crate::Place::Watching { .. }) | crate::Stage::Held)
        };
        let ops: Vec<(Op, Path)> =
            self.ops.iter().filter(|(_, one)| rests(one)).map(|(op, one)| (*op, one.path)).collect();
        for (op, path) in ops {
            self.rows.entry(path).or_default().want(op);
            self.look(now, path);
        }
    }
}
