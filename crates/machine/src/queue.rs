//! The position of an acquisition in a queue: found in a listing, watched, and turned into a grant.

use std::collections::BTreeSet;

use crate::name::Order;
use crate::{
    Acquisition, Action, Admission, Ask, Counted, End, GrantedBy, Kind, Loss, Machine, Moment, Name, Node, Nodes,
    Op, Outcome, Path, Phase, Shown, Trust, Untracked, Watch, is_turn, turn_of,
};

/// One of the queues of an acquisition, and its node there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    pub path: Path,
    pub kind: Kind,
    pub name: Option<Name>,
    /// The writer's node that this reader's node replaced in a downgrade. An older listing still shows the writer.
    pub was: Option<Name>,
    pub position: Position,
    /// How many contenders were ahead in the last listing, or how many permits were missing.
    pub ahead: Untracked<u32>,
    /// The watch on our node in this queue.
    pub own_watch: WatchState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The position is not known: there is no node yet, the count of its create may still decide, or a listing is wanted or under
    /// way.
    Unknown,
    First,
    /// Too many permits are taken.
    PermitsTaken,
    /// The predecessor, of this session, was released. The watch on our node is not set yet, so our node may be gone.
    HandedOver,
    /// The predecessor is a node of this session, which waits or holds.
    Following(Op),
    /// The predecessor is a node of another session. `is_only`: no other contender is ahead, as listed on this
    /// connection.
    Watching {
        predecessor: Name,
        watch: WatchState,
        is_only: bool,
    },
}

/// The state of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WatchState {
    #[default]
    Unset,
    Sending,
    Set,
    /// The watch was refused, by the server or by the session's budget.
    Refused,
}

impl Queue {
    pub fn new(path: Path, kind: Kind) -> Self {
        Self {
            path,
            kind,
            name: None,
            was: None,
            position: Position::Unknown,
            ahead: Untracked(0),
            own_watch: WatchState::Unset,
        }
    }

    /// Returns whether the number of our node in this queue is near the wrap.
    pub fn is_near_wrap(&self) -> bool {
        self.name.is_some_and(Name::is_near_wrap)
    }

    /// Returns whether a name is that of our node in this queue, or of the writer's node that it replaced.
    pub(crate) fn is_named(&self, path: Path, name: Name) -> bool {
        self.path == path && (self.name == Some(name) || self.was == Some(name))
    }
}

impl<T: Trust> Machine<T> {
    pub fn queue(&mut self, op: Op, at: usize) -> Option<&mut Queue> {
        self.ops.get_mut(&op)?.queues.get_mut(at)
    }

    /// Returns the index of the queue whose present node has this name.
    fn queue_at(&self, op: Op, path: Path, name: Name) -> Option<usize> {
        let acquisition = self.ops.get(&op).filter(|acquisition| acquisition.node == Node::There)?;
        acquisition.queues.iter().position(|queue| queue.path == path && queue.name == Some(name))
    }

    /// Returns the index of an acquisition's first queue in this path.
    fn queue_in(&self, op: Op, path: Path) -> Option<usize> {
        self.ops.get(&op)?.queues.iter().position(|queue| queue.path == path)
    }

    /// Forgets a position, and requests a listing to find it again.
    pub(crate) fn request_listing(&mut self, op: Op, at: usize) {
        self.move_to(op, at, Position::Unknown);
        let Some(path) = self.queue(op, at).map(|queue| queue.path) else { return };
        self.paths.entry(path).or_default().wanted.insert(op);
        self.send_listing(path);
    }

    /// Finds the position of an acquisition in a listing.
    pub(crate) fn find_position(
        &mut self,
        now: Moment,
        op: Op,
        at: usize,
        (order, other_children): (&Order<'_>, u32),
        is_fresh: bool,
    ) {
        let Some(acquisition) = self.ops.get(&op) else { return };
        let Some(Queue { path, kind, name: Some(own), position, .. }) = acquisition.queues.get(at).cloned() else {
            return;
        };
        let Some(place) = order.index_of(own) else {
            if matches!(acquisition.phase, Phase::Held | Phase::Waiting) {
                self.confirm(now, op, false);
            }
            return;
        };
        if !matches!(acquisition.phase, Phase::Waiting | Phase::Confirming { is_first: false, .. }) {
            return;
        }
        let (predecessor, ahead, is_contended) = match acquisition.spec.admission {
            // Contended means what a create would count: any other child of the path.
            Admission::First => {
                let (predecessor, ahead) = order.ahead(place, kind);
                (predecessor, ahead, order.len() > 1 || other_children > 0)
            }
            Admission::Permits { limit, .. } => {
                let excess = (order.len() + other_children as usize).saturating_sub(limit as usize);
                (None, excess, excess > 0)
            }
        };
        let waits = acquisition.spec.waits;
        // A writer of this session may have become a reader since the listing.
        let other = predecessor.and_then(|name| self.op_of(path, name));
        let is_reader = |other| self.ops.get(&other)?.single().filter(|queue| queue.was == predecessor);
        let ahead = if kind == Kind::Read && other.and_then(is_reader).is_some() { 0 } else { ahead };
        self.paths.entry(path).or_default().is_contended = is_contended;
        if let Some(queue) = self.queue(op, at) {
            queue.ahead = Untracked(u32::try_from(ahead).unwrap_or(u32::MAX));
        }
        if is_turn(op) {
            self.turn_listed(now, op, ahead);
        }
        if ahead == 0 {
            return self.came_first(now, op, at, GrantedBy::Listed, is_fresh);
        }
        if !waits {
            return self.finish(now, op, End::Contended);
        }
        let Some(predecessor) = predecessor else {
            if self.ops.get(&op).is_some_and(|acquisition| acquisition.spec.admission.turn().is_some())
                && !self.has_turn(op)
            {
                return self.take_turn(now, op);
            }
            self.move_to(op, at, Position::PermitsTaken);
            // The turn's node keeps the caller's position among the turns, so its deletion must be noticed at once.
            self.watch_for_loss(turn_of(op));
            return self.request_listings(op);
        };
        match other {
            Some(other) => {
                self.move_to(op, at, Position::Following(other));
                if let Some(other) = self.ops.get_mut(&other) {
                    other.followers.push((op, path));
                }
                self.watch_own(other, Some(path));
            }
            None if matches!(position, Position::Watching { predecessor: before, .. } if before == predecessor) => {
            }
            None => self.move_to(
                op,
                at,
                Position::Watching { predecessor, watch: WatchState::Unset, is_only: ahead == 1 },
            ),
        }
    }

    /// Handles a listing of a `try`. If the lock is contended, ends the `try` without a write. Sends the create once all
    /// listings show that the lock is free.
    pub(crate) fn peeked(&mut self, now: Moment, op: Op, path: Path, order: &Order<'_>, other_children: u32) {
        let Some(acquisition) = self.ops.get(&op) else { return };
        let others = u32::try_from(order.len()).unwrap_or(u32::MAX).saturating_add(other_children);
        let is_alone = acquisition.spec.is_granted_by(Counted { others, turns: 0 });
        let mut here = acquisition.queues.iter().filter(|queue| queue.path == path);
        let is_first = |queue: &Queue| order.ahead(order.len(), queue.kind).1 == 0;
        let is_free = is_alone || (acquisition.spec.admission == Admission::First && here.all(is_first));
        if acquisition.spec.admission == Admission::First {
            // A `try` for permits does not set this: permits that are too few for one call may be enough for another.
            self.paths.entry(path).or_default().is_contended = !is_alone;
        }
        if !is_free {
            return self.finish(now, op, End::Contended);
        }
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        for queue in acquisition.queues.iter_mut().filter(|queue| queue.path == path) {
            queue.position = Position::First;
        }
        if acquisition.is_first() {
            acquisition.phase = Phase::Creating;
            self.send_create(now, op);
        }
    }

    /// Watches one predecessor, if none is watched. One is enough: when it is gone, the other queues are listed. If a
    /// watch is refused, the predecessor in another queue is watched.
    pub(crate) fn watch_predecessor(&mut self, op: Op) {
        let Some(acquisition) = self.ops.get_mut(&op).filter(|_| self.is_up) else { return };
        let is_open = |queue: &Queue| {
            let is_watched =
                matches!(queue.position, Position::Watching { watch: WatchState::Sending | WatchState::Set, .. });
            is_watched || queue.position == Position::Unknown
        };
        if acquisition.queues.iter().any(is_open) {
            return;
        }
        let mut unwatched = acquisition.queues.iter_mut().filter_map(|queue| match &mut queue.position {
            Position::Watching { predecessor, watch: watch @ WatchState::Unset, .. } => {
                Some((queue.path, *predecessor, watch))
            }
            _ => None,
        });
        if let Some((path, name, watch)) = unwatched.next() {
            *watch = WatchState::Sending;
            self.send(Ask::Watch { op, path, name });
        }
    }

    /// After a predecessor is gone, lists all queues with unwatched predecessors, because those may be gone, too.
    fn list_unwatched_queues(&mut self, op: Op) {
        let queues = self.ops.get(&op).into_iter().flat_map(|acquisition| acquisition.queues.iter().enumerate());
        let is_unwatched =
            |queue: &Queue| matches!(queue.position, Position::Watching { watch: WatchState::Unset, .. });
        let unwatched: Vec<usize> = queues.filter(|(_, queue)| is_unwatched(queue)).map(|(at, _)| at).collect();
        unwatched.into_iter().for_each(|at| self.request_listing(op, at));
    }

    fn queue_behind(&mut self, op: Op, path: Path, name: Name) -> Option<&mut Queue> {
        self.ops.get_mut(&op)?.queues.iter_mut().find(|queue| {
            let is_it = matches!(queue.position, Position::Watching { predecessor, .. } if predecessor == name);
            is_it && queue.path == path
        })
    }

    pub(crate) fn predecessor_watched(&mut self, now: Moment, op: Op, path: Path, name: Name, outcome: &Outcome) {
        let id = self.id;
        let Some(queue) = self.queue_behind(op, path, name) else {
            if matches!(outcome, Outcome::Stat { .. }) {
                self.out.push_back(Action::Unwatch(Watch::Predecessor(op, path, name)));
            }
            return;
        };
        let Position::Watching { watch: watch @ WatchState::Sending, is_only, .. } = &mut queue.position else {
            return;
        };
        match outcome {
            // The predecessor may be a node that another user of our ZooKeeper session made. At the end of the session it is
            // deleted together with ours, in no certain order, so its deletion alone grants nothing.
            Outcome::Stat { owner } => (*watch, *is_only) = (WatchState::Set, *is_only && *owner != id),
            Outcome::Unknown => {
                *watch = WatchState::Unset;
                self.pause(now);
            }
            Outcome::NoNode => {
                *watch = WatchState::Unset;
                self.list_unwatched_queues(op);
            }
            // The fallback poll will notice when the predecessor goes.
            _ => {
                *watch = WatchState::Refused;
                self.fallback_poll_soon(now);
                self.watch_predecessor(op);
            }
        }
    }

    pub(crate) fn predecessor_fired(&mut self, now: Moment, op: Op, path: Path, name: Name, is_deleted: bool) {
        let Some(queue) = self.queue_behind(op, path, name) else { return };
        let is_near_wrap = name.is_near_wrap() || queue.is_near_wrap();
        let Position::Watching { watch, is_only, .. } = &mut queue.position else { return };
        // A watch is one-shot.
        *watch = WatchState::Unset;
        // A downgrade deletes a writer's node, too, so only plain kinds can be granted without a listing.
        let is_plain = queue.kind.is_plain() && name.kind.is_plain() && !is_near_wrap;
        let is_next = is_deleted && *is_only && is_plain && queue.own_watch == WatchState::Set;
        // If trust does not suffice, a confirm goes out with the listing.
        if is_next && self.trust.suffices(now) && self.op(op).is_some_and(Acquisition::waits_in_one) {
            self.came_first(now, op, 0, GrantedBy::Deleted, true);
        } else {
            self.confirm_early(now, op, path);
            self.list_unwatched_queues(op);
        }
    }

    /// Sends a confirm together with the listing if trust does not suffice for a grant, so that both take one round trip.
    fn confirm_early(&mut self, now: Moment, op: Op, path: Path) {
        let is_shared =
            self.paths.get(&path).is_some_and(|state| state.listing.is_some() || !state.wanted.is_empty());
        // With several nodes, a confirm has to be sent after all of them are first.
        let Some(acquisition) = self.ops.get(&op).filter(|acquisition| acquisition.waits_in_one()) else { return };
        if self.is_up && !is_shared && !self.trust.suffices(now) {
            let nodes = acquisition.nodes();
            self.send(Ask::Confirm { op, nodes });
        }
    }

    /// Hands the lock over to a follower, because the delete of its predecessor's node was sent.
    pub(crate) fn handed_over(&mut self, now: Moment, op: Op, path: Path) {
        let Some(at) = self.queue_in(op, path) else { return };
        let own = self
            .ops
            .get(&op)
            .filter(|acquisition| acquisition.waits_in_one())
            .and_then(|acquisition| acquisition.single());
        match own.filter(|queue| !queue.is_near_wrap()).map(|queue| queue.own_watch) {
            // Without a watch on its own node, the follower would not notice a deletion by hand.
            Some(WatchState::Set) => self.came_first(now, op, at, GrantedBy::HandedOver, true),
            Some(WatchState::Sending) => self.move_to(op, at, Position::HandedOver),
            _ => self.request_listing(op, at),
        }
    }

    /// Notes that an acquisition is first in a queue. If it is first in all, grants the lock, or asks a quorum to
    /// confirm.
    fn came_first(&mut self, now: Moment, op: Op, at: usize, granted_by: GrantedBy, is_fresh: bool) {
        self.move_to(op, at, Position::First);
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        acquisition.granted_by = Untracked(granted_by);
        if acquisition.phase != Phase::Waiting || !acquisition.is_first() {
            return;
        }
        // Listings of several paths show different moments, so a quorum has to confirm.
        let is_one_listing = acquisition.queues.windows(2).all(|pair| matches!(pair, [a, b] if a.path == b.path));
        self.grant_or_confirm(now, op, is_fresh && is_one_listing);
    }

    pub(crate) fn grant_or_confirm(&mut self, now: Moment, op: Op, is_fresh: bool) {
        if is_fresh && self.trust.suffices(now) { self.grant(now, op) } else { self.confirm(now, op, true) }
    }

    /// Asks a quorum whether the nodes are there. Meanwhile a hold stays a hold, but a granted turn has to be granted
    /// again.
    pub(crate) fn confirm(&mut self, now: Moment, op: Op, is_first: bool) {
        let is_held = self.is_held(op);
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        match &mut acquisition.phase {
            Phase::Confirming { is_first: before, .. } => *before &= is_first,
            Phase::Held if is_held => {}
            phase => *phase = Phase::Confirming { is_first, is_asked: false },
        }
        self.send_confirmation(now, op);
        self.watch_local_head(op);
    }

    pub(crate) fn send_confirmation(&mut self, now: Moment, op: Op) {
        let is_up = self.is_up;
        let Some(acquisition) = self.ops.get_mut(&op).filter(|acquisition| acquisition.node == Node::There) else {
            return;
        };
        match &mut acquisition.phase {
            Phase::Confirming { is_asked, .. } if is_up && !*is_asked => *is_asked = true,
            Phase::Held if is_up => {}
            _ => return,
        }
        let nodes = acquisition.nodes();
        self.identify();
        if !self.trust.suffices(now) && !self.renewing.read {
            self.renewing.read = true;
            self.send(Ask::Read);
        }
        self.send(Ask::Confirm { op, nodes });
    }

    /// Handles the answer to a confirm. `is_stale`: as in `Event::Answer`. A slow answer is accepted, because the next
    /// may be as slow.
    pub(crate) fn confirmed(
        &mut self,
        now: Moment,
        op: Op,
        nodes: &Nodes,
        (sent, is_stale): (Moment, bool),
        outcome: &Outcome,
    ) {
        let suffices = self.trust.suffices(now);
        let is_its =
            |acquisition: &&mut Box<Acquisition>| acquisition.node == Node::There && acquisition.nodes() == *nodes;
        let Some(acquisition) = self.ops.get_mut(&op).filter(is_its) else { return };
        if let Shown::Missing(since) = acquisition.shown {
            if *outcome == Outcome::Done && sent < since.0 {
                // A node may have been deleted by hand after this confirm, so ask again.
                if let Phase::Confirming { is_asked, .. } = &mut acquisition.phase {
                    *is_asked = false;
                }
                return self.send_confirmation(now, op);
            }
            acquisition.shown = Shown::Unasked;
            if *outcome == Outcome::Done {
                // The nodes are there, but were not listed: the connection belongs to another session.
                return self.replace(now);
            }
            self.identify();
        }
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        match (acquisition.phase, outcome) {
            (Phase::Held, Outcome::NoNode) if acquisition.change.is_open() => {}
            (Phase::Held, Outcome::NoNode) if !is_turn(op) => self.finish(now, op, End::Lost(Loss::Deleted)),
            // The leader answered in a live session, so the node was deleted by hand.
            (_, Outcome::NoNode) => self.evicted(now, op),
            (Phase::Confirming { is_first, .. }, outcome) => {
                acquisition.phase = Phase::Confirming { is_first, is_asked: false };
                match outcome {
                    Outcome::Unknown => self.pause(now),
                    Outcome::Refused => self.finish(now, op, End::Refused),
                    // The nodes are there, but a lagging server did not list them. List again after a pause.
                    _ if !is_first => {
                        acquisition.phase = Phase::Waiting;
                        for queue in &mut acquisition.queues {
                            if queue.position == Position::First {
                                queue.position = Position::Unknown;
                            }
                        }
                        self.pause(now);
                    }
                    _ if !is_stale && suffices => self.grant(now, op),
                    _ => self.confirm_later(now),
                }
            }
            _ => {}
        }
    }

    /// Changes the position in a queue. Removes what belongs to the old position: a watch, or an entry among followers.
    pub(crate) fn move_to(&mut self, op: Op, at: usize, position: Position) {
        let Some(queue) = self.queue(op, at) else { return };
        let path = queue.path;
        match std::mem::replace(&mut queue.position, position) {
            Position::Following(ahead) => {
                if let Some(ahead) = self.ops.get_mut(&ahead) {
                    ahead.followers.retain(|follower| *follower != (op, path));
                }
            }
            Position::Watching { predecessor, watch: WatchState::Set, .. } => {
                self.out.push_back(Action::Unwatch(Watch::Predecessor(op, path, predecessor)));
            }
            Position::PermitsTaken => self.unwatch_path(path),
            _ => {}
        }
    }

    /// Watches the nodes of an acquisition and of its followers, as far as these watches are needed now.
    pub(crate) fn watch_local_head(&mut self, op: Op) {
        // With several queues, wait for the last listing: otherwise each listing would go through all followers.
        let Some(acquisition) = self.ops.get(&op).filter(|acquisition| acquisition.is_known()) else { return };
        let followers: Vec<Op> = acquisition.followers.iter().map(|(follower, _)| *follower).collect();
        self.watch_own(op, None);
        followers.into_iter().for_each(|follower| self.watch_own(follower, None));
    }

    fn is_local_head(&self, op: Op, path: Path) -> bool {
        self.ops.get(&op).is_some_and(|acquisition| match acquisition.phase {
            Phase::Held => true,
            Phase::Waiting | Phase::Confirming { .. } => acquisition.queues.iter().any(|queue| {
                queue.path == path && !matches!(queue.position, Position::Following(_) | Position::Unknown)
            }),
            _ => false,
        })
    }

    /// Watches the nodes of an acquisition, or those in the path `only`, where a watch is needed and not set.
    pub(crate) fn watch_own(&mut self, op: Op, only: Option<Path>) {
        let Some(acquisition) =
            self.ops.get(&op).filter(|acquisition| acquisition.node == Node::There && self.is_up)
        else {
            return;
        };
        // In several queues, one node may be deleted while the others still wait. A waiter that is first in its only
        // queue is about to be granted, so its node is not watched.
        let waits_for_others = acquisition.spec.admission == Admission::First
            && acquisition.single().is_none()
            && acquisition.is_known();
        let followed: BTreeSet<Path> = acquisition.followers.iter().map(|(_, path)| *path).collect();
        let is_of_use = |queue: &Queue| match (acquisition.phase, queue.position) {
            (Phase::Held, _) => followed.contains(&queue.path) || acquisition.age >= 2,
            (Phase::Waiting | Phase::Confirming { .. }, position) => match position {
                Position::Following(ahead) => self.is_local_head(ahead, queue.path),
                Position::HandedOver => true,
                // A grant without a listing needs this watch. Only behind a plain predecessor is such a grant possible.
                Position::Watching { is_only, predecessor, .. } => {
                    let may_skip_listing = is_only && queue.kind.is_plain() && predecessor.kind.is_plain();
                    may_skip_listing || followed.contains(&queue.path) || waits_for_others
                }
                Position::First => followed.contains(&queue.path) || waits_for_others,
                Position::Unknown | Position::PermitsTaken => false,
            },
            _ => false,
        };
        let is_meant =
            |queue: &Queue| queue.own_watch == WatchState::Unset && only.is_none_or(|path| queue.path == path);
        let queues =
            acquisition.queues.iter().enumerate().filter(|(_, queue)| is_meant(queue) && is_of_use(queue));
        let wanted: Vec<_> = queues.filter_map(|(at, queue)| Some((at, queue.path, queue.name?))).collect();
        for (at, path, name) in wanted {
            self.queue(op, at).into_iter().for_each(|queue| queue.own_watch = WatchState::Sending);
            self.send(Ask::WatchOwn { op, path, name });
        }
    }

    pub(crate) fn own_watched(&mut self, now: Moment, op: Op, path: Path, name: Name, outcome: &Outcome) {
        let Some(at) = self.queue_at(op, path, name) else { return };
        let is_held = self.is_held(op);
        let Some(queue) = self.queue(op, at).filter(|queue| queue.own_watch == WatchState::Sending) else {
            return;
        };
        queue.own_watch = match outcome {
            Outcome::Stat { .. } => WatchState::Set,
            // A node of this name is there, but is not ours. A confirm would succeed, so evict the waiter here.
            Outcome::Exists if !is_held => return self.evicted(now, op),
            Outcome::NoNode | Outcome::Exists => return self.own_fired(now, op, path, name, true),
            Outcome::Unknown => WatchState::Unset,
            _ => WatchState::Refused,
        };
        match (queue.position, queue.own_watch) {
            (Position::HandedOver, WatchState::Set) => self.came_first(now, op, at, GrantedBy::HandedOver, true),
            (Position::HandedOver, _) => self.request_listing(op, at),
            _ => {}
        }
        match outcome {
            Outcome::Stat { .. } => {}
            Outcome::Unknown => self.pause(now),
            _ => self.list_own_soon(now),
        }
    }

    pub(crate) fn own_fired(&mut self, now: Moment, op: Op, path: Path, name: Name, is_deleted: bool) {
        let Some(at) = self.queue_at(op, path, name) else { return };
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        let Some(queue) = acquisition.queues.get_mut(at) else { return };
        queue.own_watch = WatchState::Unset;
        match acquisition.phase {
            // The node's data changed. Watch it again.
            _ if !is_deleted => {
                acquisition.age = if acquisition.phase == Phase::Held { 2 } else { acquisition.age };
                self.watch_own(op, Some(path));
            }
            // A downgrade deletes the node, too. The answer to the downgrade shows whether it did.
            Phase::Held if acquisition.change.is_open() => {}
            Phase::Held if !is_turn(op) => self.finish(now, op, End::Lost(Loss::Deleted)),
            // The end of the session also deletes the node, so ask a quorum.
            _ => self.confirm(now, op, false),
        }
    }

    /// Requests listings for all followers, to find their new predecessors.
    pub(crate) fn send_followers(&mut self, op: Op) {
        let followers = self
            .ops
            .get_mut(&op)
            .map(|acquisition| std::mem::take(&mut acquisition.followers))
            .unwrap_or_default();
        for (op, path) in followers {
            if let Some(at) = self.queue_in(op, path) {
                self.request_listing(op, at);
            }
        }
    }
}
