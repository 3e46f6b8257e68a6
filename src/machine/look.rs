//! Listings of a lock path: at most one is under way, for all acquisitions that want one, and the next for those that come
//! meanwhile. It also finds the nodes of lost creates.

use std::collections::BTreeSet;

use crate::machine::name::Order;
use crate::machine::{
    Acquisition, Action, Armed, Ask, End, Listing, Machine, Moment, Name, Node, Op, Outcome, Path, Place,
    Position, Stage, Timer, Trust, Watch,
};

/// How long after the first look a create of a lost connection may still be applied, in microseconds. A server was seen to do so.
const SECOND_LOOK: u64 = 1_000_000;

/// How long to wait before a lost request is sent again over a connection that seems to stand.
pub(crate) const PAUSE: u64 = 20_000;

/// What a session knows of a lock path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// How many creates are under way.
    pub(crate) creating: u32,
    /// Whether creates had unknown outcomes whose nodes may turn up.
    pub(crate) doubt: Doubt,
    pub(crate) look: Option<Look>,
    /// The acquisitions that want the next listing.
    pub(crate) wanted: BTreeSet<Op>,
    /// The watch on the path's children, for those that wait for room.
    pub(crate) watch: Armed,
    /// The path was seen to have no data, over this connection.
    pub(crate) is_empty: bool,
    /// The last acquisition found other contenders.
    pub(crate) is_contended: bool,
    /// The server does not let us write the path's data.
    pub(crate) is_refused: bool,
}

/// Whether nodes of lost creates may turn up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Doubt {
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
pub(crate) struct Look {
    pub(crate) ops: BTreeSet<Op>,
    /// The doubt that it settles: then a barrier was sent before it.
    pub(crate) doubt: Doubt,
}

impl Row {
    /// Whether a listing that is under way, or the next, is for this acquisition.
    fn has(&self, op: Op) -> bool {
        self.wanted.contains(&op) || self.look.as_ref().is_some_and(|look| look.ops.contains(&op))
    }

    /// The acquisition wants none of the listings that are under way or wanted.
    pub(crate) fn forget(&mut self, op: Op) {
        self.wanted.remove(&op);
        if let Some(look) = &mut self.look {
            look.ops.remove(&op);
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        let is_searched = self.look.as_ref().is_some_and(|look| look.doubt != Doubt::No);
        self.creating == 0 && self.doubt == Doubt::No && !is_searched
    }

    /// Whether nodes of lost creates were not looked for yet.
    pub(crate) fn is_to_be_searched(&self) -> bool {
        self.doubt == Doubt::First || self.look.as_ref().is_some_and(|look| look.doubt == Doubt::First)
    }

    /// Whether the next create may be granted by its answer.
    pub(crate) fn may_count(&self) -> bool {
        self.is_empty && !self.is_contended && !self.is_refused
    }
}

impl<T: Trust> Machine<T> {
    /// The acquisition needs listings of all paths where its position is unknown, or where it waits for room without a watch.
    pub(crate) fn look_for(&mut self, op: Op) {
        let Some(one) = self.ops.get(&op) else { return };
        for (path, position) in one.queues.iter().map(|queue| (queue.path, queue.position)).collect::<Vec<_>>() {
            let row = self.rows.entry(path).or_default();
            let needs = position == Position::Unknown || (position == Position::Full && row.watch == Armed::No);
            if needs && !row.has(op) {
                row.wanted.insert(op);
            }
            self.look(path);
        }
    }

    /// Sends a listing, if one is wanted and none is under way.
    pub(crate) fn look(&mut self, path: Path) {
        let Some(row) = self.rows.get_mut(&path) else { return };
        row.wanted.retain(|op| self.ops.contains_key(op));
        let needs_barrier = matches!(row.doubt, Doubt::First | Doubt::Second);
        if !self.is_up || row.look.is_some() || (row.wanted.is_empty() && !needs_barrier) {
            return;
        }
        let ops = std::mem::take(&mut row.wanted);
        let doubt = if needs_barrier { std::mem::take(&mut row.doubt) } else { Doubt::No };
        let is_full = |op: &Op| {
            let mut queues = self.ops.get(op).into_iter().flat_map(|one| &one.queues);
            queues.any(|queue| queue.path == path && queue.position == Position::Full)
        };
        let watches = row.watch == Armed::No && ops.iter().any(is_full);
        if watches {
            row.watch = Armed::Sending;
        }
        let by = ops.first().copied().unwrap_or(Op::MAX);
        row.look = Some(Look { ops, doubt });
        if needs_barrier {
            self.send(Ask::Barrier { op: by, path });
        }
        self.send(Ask::List { op: by, path, watches });
    }

    pub(crate) fn listed(
        &mut self,
        now: Moment,
        path: Path,
        watches: bool,
        is_stale: bool,
        is_fresh: bool,
        outcome: Outcome,
    ) {
        let Some(row) = self.rows.get_mut(&path) else { return };
        if watches {
            let is_set = matches!(outcome, Outcome::Names { .. });
            row.watch = if is_set && !is_stale { Armed::Set } else { Armed::No };
            if is_set && is_stale {
                // It may have fired since.
                self.out.push(Action::Unwatch(Watch::Path(path)));
            }
        }
        let Some(Look { ops, doubt }) = row.look.take() else { return };
        let (names, strangers, is_empty) = match outcome {
            // What another connection has shown may be older than what this one has done.
            _ if is_stale || outcome == Outcome::Unknown => return self.look_again(now, path, ops, doubt),
            Outcome::Names { names, strangers, is_empty } => (names, strangers, is_empty),
            Outcome::NoNode => {
                for op in &ops {
                    self.ops.get_mut(op).into_iter().for_each(|one| one.makes |= one.node == Node::None);
                }
                (Listing::default(), 0, row.is_empty)
            }
            outcome => {
                for op in ops {
                    // A hold goes on without looks.
                    if matches!(self.stage(op), Some(Stage::Queuing(_))) {
                        self.finish(now, op, End::Refused);
                    }
                }
                if outcome == Outcome::Odd && doubt != Doubt::No {
                    // It may be answered yet.
                    return self.look_again(now, path, BTreeSet::new(), doubt);
                }
                self.enter_searched(now, path);
                return self.look(path);
            }
        };
        row.is_empty = is_empty;
        if doubt == Doubt::First {
            self.doubt_late(now, path);
        }
        let (abandoned, names): (Vec<Name>, Vec<Name>) =
            names.iter().partition(|name| self.is_abandoned(path, **name));
        self.delete_abandoned(path, abandoned);
        let order = Order::new(&names);
        for op in ops {
            let Some(one) = self.ops.get(&op) else { continue };
            if one.stage == Stage::Queuing(Place::Peeking) {
                self.peeked(now, op, path, &order, strangers);
            } else if one.node == Node::There {
                let queues = one.queues.iter().enumerate().filter(|(_, queue)| queue.path == path);
                for at in queues.map(|(at, _)| at).collect::<Vec<_>>() {
                    self.judge(now, op, at, (&order, strangers), is_fresh);
                }
                if self.ops.get(&op).is_some_and(Acquisition::is_placed) {
                    self.out.push(Action::Placed(op));
                }
                self.arm_predecessor(op);
                self.at_front(op);
            }
        }
        if doubt == Doubt::First {
            self.enter_searched(now, path);
        }
        self.unwatch_path(path);
        self.look(path);
    }

    /// Deletes abandoned nodes, those of one acquisition together.
    pub(crate) fn delete_abandoned(&mut self, path: Path, mut abandoned: Vec<Name>) {
        abandoned.sort_by_key(|name| name.guid);
        for nodes in abandoned.chunk_by(|one, next| one.guid_op() == next.guid_op()) {
            self.delete(&nodes.iter().map(|name| (path, *name)).collect(), false);
        }
    }

    /// The listing shows nothing: it is wanted again, after a pause.
    fn look_again(&mut self, now: Moment, path: Path, ops: BTreeSet<Op>, doubt: Doubt) {
        let row = self.rows.entry(path).or_default();
        row.wanted.extend(ops);
        if doubt != Doubt::No && row.doubt != Doubt::First {
            row.doubt = doubt;
        }
        self.pause(now);
    }

    /// A create had an unknown outcome: its node is to be looked for, after a pause.
    pub(crate) fn doubt_later(&mut self, now: Moment, path: Path) {
        self.rows.entry(path).or_default().doubt = Doubt::First;
        self.pause(now);
    }

    /// A node of a lost create may turn up late. It is looked for once more.
    fn doubt_late(&mut self, now: Moment, path: Path) {
        let row = self.rows.entry(path).or_default();
        if row.doubt == Doubt::No {
            row.doubt = Doubt::Waiting;
        }
        self.timers.set(Timer::Late(path), now.plus(SECOND_LOOK));
    }

    /// A create of a lost connection may have been applied since the first look.
    pub(crate) fn late(&mut self, path: Path) {
        if let Some(row) = self.rows.get_mut(&path).filter(|row| row.doubt == Doubt::Waiting) {
            row.doubt = Doubt::Second;
            self.look(path);
        }
    }

    /// Takes the watch on a path back when nobody waits for room there any more.
    pub(crate) fn unwatch_path(&mut self, path: Path) {
        let waits = |one: &Acquisition| {
            one.queues.iter().any(|queue| queue.path == path && queue.position == Position::Full)
        };
        let Some(row) = self.rows.get_mut(&path).filter(|row| row.watch == Armed::Set) else { return };
        if !self.ops.values().any(waits) {
            row.watch = Armed::No;
            self.out.push(Action::Unwatch(Watch::Path(path)));
        }
    }

    /// The children of a path have changed.
    pub(crate) fn path_fired(&mut self, path: Path) {
        let Some(row) = self.rows.get_mut(&path) else { return };
        row.watch = Armed::No;
        for (op, one) in &self.ops {
            if one.queues.iter().any(|queue| queue.path == path && queue.position == Position::Full) {
                row.wanted.insert(*op);
            }
        }
        self.look(path);
    }

    /// Events may never come, so all that rests looks now and then. What was known of the data of paths is forgotten, and paths
    /// that nobody uses.
    pub(crate) fn look_slowly(&mut self, now: Moment) {
        self.look_later(now);
        self.rows.values_mut().for_each(|row| row.is_empty = false);
        self.delete_refused();
        if self.has_nodes() {
            self.list_own();
        }
        for (op, one) in self.ops.iter().filter(|(_, one)| one.stage == Stage::Queuing(Place::Waiting)) {
            let waits =
                |position| matches!(position, Position::Watching { .. } | Position::Full | Position::First);
            for queue in one.queues.iter().filter(|queue| waits(queue.position)) {
                self.rows.entry(queue.path).or_default().wanted.insert(*op);
            }
        }
        // Predecessors that are not watched, for want of room or of permission, are tried again.
        for op in self.ops.keys().copied().collect::<Vec<Op>>() {
            for queue in self.ops.get_mut(&op).into_iter().flat_map(|one| &mut one.queues) {
                if let Position::Watching { armed: armed @ Armed::Refused, .. } = &mut queue.position {
                    *armed = Armed::No;
                }
            }
            self.arm_predecessor(op);
            self.arm(op, None);
        }
        let used: BTreeSet<Path> = self.ops.values().flat_map(|one| &one.queues).map(|queue| queue.path).collect();
        self.rows.retain(|path, row| row.look.is_some() || !row.is_clean() || used.contains(path));
        self.out.push(Action::Forget);
        self.rows.keys().copied().collect::<Vec<_>>().into_iter().for_each(|path| self.look(path));
    }
}
