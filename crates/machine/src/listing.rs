//! Lists lock paths. One listing of a path is under way at a time. It serves all acquisitions that wanted one when it
//! was sent. Acquisitions that want one later share the next. Listings also find the nodes of lost creates.

use std::collections::BTreeSet;

use crate::name::Order;
use crate::{
    Acquisition, Action, Ask, End, Life, Listing, Machine, Moment, Name, Node, Op, Outcome, Path, Phase, Position,
    Queue, SESSION, Timer, Trust, Watch, WatchState, caller_of,
};

/// Microseconds from the first search to the second. A server was seen to apply a create of a lost connection after the
/// first search.
const SECOND_SEARCH: u64 = 1_000_000;

/// Microseconds before a lost request is sent again, if the connection is still up.
pub(crate) const PAUSE: u64 = 20_000;

/// What a session knows of a lock path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathState {
    /// How many creates are under way.
    pub creating: u32,
    pub search: OrphanSearch,
    pub listing: Option<ActiveListing>,
    /// The acquisitions that want the next listing.
    pub wanted: BTreeSet<Op>,
    /// The watch on the path's children. Waiters for permits use it.
    pub watch: WatchState,
    /// Whether the path was seen to have no data, over this connection.
    pub has_no_data: bool,
    /// Whether the last acquisition found other contenders.
    pub is_contended: bool,
    /// Whether the server refused to set the path's data.
    pub is_refused: bool,
    /// Whether another client has deleted a node of ours here. It may have been another process of our unique name.
    pub lost_a_node: bool,
}

/// The search for nodes whose creates were lost. A server may apply such a create late, so there are two searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OrphanSearch {
    #[default]
    None,
    /// The next listing is the first search.
    Due,
    /// The first search is done. The second starts a second later.
    Later,
    /// The next listing is the second search.
    DueAgain,
}

/// A listing that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ActiveListing {
    pub ops: BTreeSet<Op>,
    /// The orphan search that this listing does. A barrier is sent before a search.
    pub search: OrphanSearch,
}

impl PathState {
    /// Returns whether the listing under way, or the next one, serves this acquisition.
    fn has(&self, op: Op) -> bool {
        self.wanted.contains(&op) || self.listing.as_ref().is_some_and(|listing| listing.ops.contains(&op))
    }

    /// Removes an acquisition from the listing under way, and from the next one.
    pub fn forget(&mut self, op: Op) {
        self.wanted.remove(&op);
        if let Some(listing) = &mut self.listing {
            listing.ops.remove(&op);
        }
    }

    pub fn is_clean(&self) -> bool {
        let is_searched = self.listing.as_ref().is_some_and(|listing| listing.search != OrphanSearch::None);
        self.creating == 0 && self.search == OrphanSearch::None && !is_searched
    }

    /// Returns whether the next create may write the path's data, so that its answer counts the children and can grant
    /// the lock.
    pub(crate) fn may_count(&self) -> bool {
        self.has_no_data && !self.is_contended && !self.is_refused
    }
}

impl<T: Trust> Machine<T> {
    /// Requests listings of all paths where the position is unknown, or where permits are taken and no watch is set.
    pub(crate) fn request_listings(&mut self, op: Op) {
        let mut at = 0;
        while let Some(&mut Queue { path, position, .. }) = self.queue(op, at) {
            at += 1;
            let state = self.paths.entry(path).or_default();
            let needs = position == Position::Unknown
                || (position == Position::PermitsTaken && state.watch == WatchState::Unset);
            if needs && !state.has(op) {
                state.wanted.insert(op);
            }
            self.send_listing(path);
        }
    }

    /// Sends a listing, if one is wanted and none is under way.
    pub(crate) fn send_listing(&mut self, path: Path) {
        let Some(state) = self.paths.get_mut(&path).filter(|state| self.is_up && state.listing.is_none()) else {
            return;
        };
        state.wanted.retain(|op| self.ops.contains_key(op));
        let needs_barrier = matches!(state.search, OrphanSearch::Due | OrphanSearch::DueAgain);
        if state.wanted.is_empty() && !needs_barrier {
            return;
        }
        let ops = std::mem::take(&mut state.wanted);
        let search = if needs_barrier { std::mem::take(&mut state.search) } else { OrphanSearch::None };
        let is_full = |op: &Op| {
            let mut queues = self.ops.get(op).into_iter().flat_map(|acquisition| &acquisition.queues);
            queues.any(|queue| queue.path == path && queue.position == Position::PermitsTaken)
        };
        let watches = state.watch == WatchState::Unset && ops.iter().any(is_full);
        let by = ops.first().copied().unwrap_or(SESSION);
        state.listing = Some(ActiveListing { ops, search });
        if needs_barrier {
            self.send(Ask::Barrier { op: by, path });
        }
        self.send(Ask::List { op: by, path, watches });
    }

    pub fn listed(
        &mut self,
        now: Moment,
        path: Path,
        watches: bool,
        is_stale: bool,
        is_fresh: bool,
        outcome: Outcome,
    ) {
        let Some(state) = self.paths.get_mut(&path) else { return };
        if watches {
            let is_set = matches!(outcome, Outcome::Names { .. });
            state.watch = if is_set && !is_stale { WatchState::Set } else { WatchState::Unset };
            if is_set && is_stale {
                // The watch may have fired since.
                self.out.push_back(Action::Unwatch(Watch::Path(path)));
            }
        }
        let Some(ActiveListing { ops, search }) = state.listing.take() else { return };
        let (names, other_children, has_no_data) = match outcome {
            // An answer over an earlier connection may not show what requests over this one have done.
            _ if is_stale || outcome == Outcome::Unknown => return self.retry_listing(now, path, ops, search),
            Outcome::Names { names, other_children, has_no_data } => (names, other_children, has_no_data),
            Outcome::NoNode => {
                for op in &ops {
                    self.ops
                        .get_mut(op)
                        .into_iter()
                        .for_each(|acquisition| acquisition.creates_parents |= acquisition.node == Node::None);
                }
                (Listing::default(), 0, state.has_no_data)
            }
            _ => {
                for op in ops {
                    // A hold needs no listing, so it goes on.
                    if self.phase(op).is_some_and(Phase::is_queuing) {
                        self.finish(now, op, End::Refused);
                    }
                }
                if search != OrphanSearch::None {
                    // A later listing may be permitted and answered, so repeat the search.
                    self.search_again_later(now, path);
                }
                return self.send_listing(path);
            }
        };
        state.has_no_data = has_no_data;
        let lost_a_node = state.lost_a_node;
        if search == OrphanSearch::Due {
            self.search_again_later(now, path);
        }
        let orphans: Vec<Name> = names.iter().copied().filter(|name| self.is_orphan(path, *name)).collect();
        let names = match orphans[..] {
            [] => names,
            _ => names.iter().copied().filter(|name| !self.is_orphan(path, *name)).collect(),
        };
        self.delete_in(path, orphans);
        // A session that is about to end deletes no nodes of its unique name: the next process may have created them.
        if self.life == Life::Open {
            // These nodes stay in the order, so no waiter comes first before they are gone.
            let of_name: Vec<Name> = names.iter().copied().filter(|name| self.has_name_of(*name)).collect();
            if lost_a_node && !of_name.is_empty() {
                return self.yield_name(now);
            }
            self.delete_in(path, of_name);
        }
        let order = Order::new(&names);
        for op in ops {
            let Some(acquisition) = self.ops.get(&op) else { continue };
            if acquisition.phase == Phase::Peeking {
                self.peeked(now, op, path, &order, other_children);
            } else if acquisition.node == Node::There {
                for at in 0..acquisition.queues.len() {
                    if self.queue(op, at).is_some_and(|queue| queue.path == path) {
                        self.find_position(now, op, at, (&order, other_children), is_fresh);
                    }
                }
                if self.op(op).is_some_and(Acquisition::is_placed) {
                    self.out.push_back(Action::Placed(caller_of(op)));
                }
                self.watch_predecessor(op);
                self.watch_local_head(op);
            }
        }
        self.unwatch_path(path);
        self.send_listing(path);
    }

    /// Deletes nodes of a path: one transaction for those with the same `Op`.
    pub(crate) fn delete_in(&mut self, path: Path, mut names: Vec<Name>) {
        names.sort_by_key(|name| name.guid);
        for nodes in names.chunk_by(|one, next| one.guid_op() == next.guid_op()) {
            self.delete(nodes.iter().map(|name| (path, *name)).collect(), false);
        }
    }

    /// Repeats a lost listing, after a pause.
    fn retry_listing(&mut self, now: Moment, path: Path, ops: BTreeSet<Op>, search: OrphanSearch) {
        let state = self.paths.entry(path).or_default();
        state.wanted.extend(ops);
        if search != OrphanSearch::None && state.search != OrphanSearch::Due {
            state.search = search;
        }
        self.pause(now);
    }

    /// Searches for the nodes of a create with an unknown outcome, after a pause.
    pub(crate) fn search_soon(&mut self, now: Moment, path: Path) {
        self.paths.entry(path).or_default().search = OrphanSearch::Due;
        self.pause(now);
    }

    /// Schedules the second search, because a lost create's node may appear late.
    fn search_again_later(&mut self, now: Moment, path: Path) {
        let state = self.paths.entry(path).or_default();
        if state.search == OrphanSearch::None {
            state.search = OrphanSearch::Later;
        }
        self.timers.set(Timer::SearchAgain(path), now.plus(SECOND_SEARCH));
    }

    /// Starts the second search. A create of a lost connection may have been applied since the first.
    pub(crate) fn search_again(&mut self, path: Path) {
        if let Some(state) = self.paths.get_mut(&path).filter(|state| state.search == OrphanSearch::Later) {
            state.search = OrphanSearch::DueAgain;
            self.send_listing(path);
        }
    }

    /// Removes the watch on a path's children when no caller waits for permits there any more.
    pub(crate) fn unwatch_path(&mut self, path: Path) {
        let waits = |acquisition: &Acquisition| {
            acquisition.queues.iter().any(|queue| queue.path == path && queue.position == Position::PermitsTaken)
        };
        let Some(state) = self.paths.get_mut(&path).filter(|state| state.watch == WatchState::Set) else { return };
        if !self.ops.values().any(|acquisition| waits(acquisition)) {
            state.watch = WatchState::Unset;
            self.out.push_back(Action::Unwatch(Watch::Path(path)));
        }
    }

    /// Lists a path whose children have changed, for all callers that wait for permits.
    pub(crate) fn path_fired(&mut self, path: Path) {
        let Some(state) = self.paths.get_mut(&path) else { return };
        state.watch = WatchState::Unset;
        for (op, acquisition) in &self.ops {
            if acquisition
                .queues
                .iter()
                .any(|queue| queue.path == path && queue.position == Position::PermitsTaken)
            {
                state.wanted.insert(*op);
            }
        }
        self.send_listing(path);
    }

    /// Runs the fallback poll, because an event may never come. Lists for all waiters but followers, lists our own
    /// nodes, and retries refused deletes and watches. Forgets which paths have no data, and the paths that no
    /// acquisition uses.
    pub(crate) fn fallback_poll(&mut self, now: Moment) {
        self.schedule_fallback_poll(now);
        self.paths.values_mut().for_each(|state| state.has_no_data = false);
        self.delete_refused();
        if self.has_nodes() {
            self.list_own_again();
        }
        for (op, acquisition) in self.ops.iter().filter(|(_, acquisition)| acquisition.phase == Phase::Waiting) {
            let waits = |position| {
                matches!(position, Position::Watching { .. } | Position::PermitsTaken | Position::First)
            };
            for queue in acquisition.queues.iter().filter(|queue| waits(queue.position)) {
                self.paths.entry(queue.path).or_default().wanted.insert(*op);
            }
        }
        // Retry refused watches on predecessors, and unset watches on our own nodes.
        for op in self.ops.keys().copied().collect::<Vec<Op>>() {
            for queue in self.ops.get_mut(&op).into_iter().flat_map(|acquisition| &mut acquisition.queues) {
                if let Position::Watching { watch: watch @ WatchState::Refused, .. } = &mut queue.position {
                    *watch = WatchState::Unset;
                }
            }
            self.watch_predecessor(op);
            self.watch_own(op, None);
        }
        let used: BTreeSet<Path> =
            self.ops.values().flat_map(|acquisition| &acquisition.queues).map(|queue| queue.path).collect();
        self.paths.retain(|path, state| {
            state.listing.is_some() || !state.is_clean() || state.lost_a_node || used.contains(path)
        });
        self.out.push_back(Action::Forget);
        self.paths.keys().copied().collect::<Vec<_>>().into_iter().for_each(|path| self.send_listing(path));
    }
}
