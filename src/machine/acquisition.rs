//! An acquisition, from its call to the end of its handle: which nodes it needs, and how it ends.

use std::sync::Arc;

use crate::machine::{
    Ask, Change, Kind, Life, Machine, Moment, Node, Op, Path, PathState, Position, Queue, Shown, Timer, Trust,
    Untracked, WatchState,
};

/// What a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spec {
    /// The nodes, which one transaction creates. Several in one path are permits.
    pub(crate) queues: Vec<(Path, Kind)>,
    pub(crate) admission: Admission,
    /// It queues if the lock is contended.
    pub(crate) waits: bool,
    /// Its create may write the empty data of the paths, to count their children.
    pub(crate) may_count: bool,
}

/// When an acquisition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Admission {
    /// As the first in each of its queues.
    #[default]
    First,
    /// While its path has at most `limit` children. Only the caller with the turn may add any. `turn`: the path where
    /// callers queue for the turn; `None` in the create that a caller sends in its turn. A first create without a turn is
    /// sent only if its answer can grant the permits.
    Permits { limit: u32, turn: Option<Path> },
}

impl Admission {
    pub(crate) fn turn(&self) -> Option<&Path> {
        match self {
            Self::Permits { turn, .. } => turn.as_ref(),
            Self::First => None,
        }
    }
}

/// An acquisition whose handle is alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquisition {
    pub(crate) spec: Arc<Spec>,
    /// Permits: what it creates in its turn, once it has asked for one.
    pub(crate) in_turn: Option<Arc<Spec>>,
    pub(crate) phase: Phase,
    pub(crate) node: Node,
    pub(crate) queues: Vec<Queue>,
    /// The acquisitions that wait in memory for its nodes, and in which paths.
    pub(crate) followers: Vec<(Op, Path)>,
    /// How many creates it has sent. Each has guids of its own, so a node of a lost create is never taken for a later one.
    pub(crate) attempt: u16,
    /// A path was missing, so the next create makes the missing parents, too.
    pub(crate) makes: bool,
    /// How many creates in a row were lost that may themselves have closed the connection.
    pub(crate) lost: u8,
    /// The czxid of its nodes, from which the token was made at the grant; 0 if it is not known. After a downgrade it is
    /// that of the reader's node, and not the token any more.
    pub(crate) czxid: Untracked<i64>,
    /// The downgrade of a writer that holds.
    pub(crate) change: Change,
    /// How its release ends when all its nodes are gone.
    pub(crate) released: End,
    /// What granted it.
    pub(crate) granted_by: Untracked<GrantedBy>,
    /// Its caller has taken the grant.
    pub(crate) is_taken: bool,
    /// Ticks since the grant, at most 2; 2 also after a disconnect, or where a loss is watched for. From 2 on its nodes are watched.
    pub(crate) age: u8,
    /// What the last listing of own nodes shows of its nodes.
    pub(crate) shown: Shown,
}

/// What granted a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GrantedBy {
    /// The answer to the create: no other child was there, or few enough for permits.
    Counted,
    /// A listing showed that it is first.
    Listed,
    /// A holder of this session handed it over.
    HandedOver,
    /// The only contender ahead, of another session, was deleted.
    Deleted,
}

/// How far an acquisition has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// A `try` lists before it writes anything.
    Peeking,
    /// Permits: it waits for its turn.
    Turning,
    /// Its nodes are being created.
    Creating,
    /// Its nodes are there. It waits until it is first in each of its queues.
    Waiting,
    /// A quorum has to confirm that its nodes are there. `is_first`: then it holds. Otherwise there are signs that one is gone.
    Confirming {
        is_first: bool,
        is_asked: bool,
    },
    Held,
    Releasing,
    Over(End),
}

impl Phase {
    /// Whether it is not granted yet, and has not ended.
    pub(crate) fn is_queuing(self) -> bool {
        matches!(self, Self::Peeking | Self::Turning | Self::Creating | Self::Waiting | Self::Confirming { .. })
    }

    /// Whether it is held, or was and is being released.
    pub(crate) fn is_hold(self) -> bool {
        matches!(self, Self::Held | Self::Releasing)
    }
}

/// How an acquisition ended, for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Released,
    Lost(Loss),
    /// The node of a waiter was deleted by hand.
    Evicted,
    /// The lock is contended, and the acquisition does not wait.
    Contended,
    Refused,
    /// Its creates are lost again and again, although other requests are answered.
    Unanswered,
    Draining,
    Closed,
}

/// Why a hold ended before it was released.
///
/// For every reason, another contender may hold the lock from now on: stop, or let a store that checks fencing tokens refuse late
/// writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The session has expired: the servers ended it, or the client gave it up.
    Expired,
    /// No answer came in time to prove that the session lives, so the servers may end it from now on. It may go on: after a cut,
    /// a pause or slow writes that were shorter than the session timeout, the next lock of the same session can be granted.
    TrustEnded,
    /// The node of the hold was deleted: by a person, or by the servers together with its session, if the deletion was
    /// reported first.
    Deleted,
    /// The session was closed under the hold.
    Closed,
    /// The hold reached the longest time that its options allow.
    MaxHold,
}

/// This number of lost creates in a row is an error.
const LOST_CREATES: u8 = 11;

impl Acquisition {
    fn new(spec: &Arc<Spec>) -> Self {
        Self {
            spec: Arc::clone(spec),
            in_turn: None,
            phase: Phase::Creating,
            node: Node::None,
            queues: spec.queues.iter().map(|(path, kind)| Queue::new(*path, *kind)).collect(),
            followers: Vec::new(),
            attempt: 0,
            makes: false,
            lost: 0,
            czxid: Untracked(0),
            change: Change::None,
            released: End::Released,
            granted_by: Untracked(GrantedBy::Listed),
            is_taken: false,
            age: 0,
            shown: Shown::Unasked,
        }
    }

    /// The place of a caller before its create.
    pub(crate) fn initial_phase(&self) -> Phase {
        if self.spec.waits { Phase::Creating } else { Phase::Peeking }
    }

    /// Permits: whether the answer to the create has to grant them, because it has no turn.
    pub(crate) fn is_in_one_request(&self) -> bool {
        self.spec.admission.turn().is_some() && self.in_turn.is_none()
    }

    /// Whether it was granted, and its caller has not taken the grant yet.
    pub(crate) fn is_untaken(&self) -> bool {
        self.phase == Phase::Held && !self.is_taken
    }

    /// The only queue of an acquisition that has one.
    pub(crate) fn single(&self) -> Option<&Queue> {
        if let [queue] = self.queues.as_slice() { Some(queue) } else { None }
    }

    /// The largest number of contenders that are ahead of it in any of its queues, or how many permits are missing.
    pub(crate) fn ahead(&self) -> usize {
        self.queues.iter().map(|queue| queue.ahead.0 as usize).max().unwrap_or_default()
    }

    /// Whether it waits in its only queue.
    pub(crate) fn waits_in_one(&self) -> bool {
        self.single().is_some() && self.phase == Phase::Waiting
    }

    pub(crate) fn is_known(&self) -> bool {
        self.queues.iter().all(|queue| queue.position != Position::Unknown)
    }

    /// Whether it waits, and it is known behind how many.
    pub(crate) fn is_placed(&self) -> bool {
        self.phase.is_queuing() && self.is_known() && self.ahead() > 0
    }

    pub(crate) fn is_first(&self) -> bool {
        self.queues.iter().all(|queue| queue.position == Position::First)
    }

    pub(crate) fn forget_positions(&mut self) {
        for queue in &mut self.queues {
            (queue.position, queue.own_watch, queue.ahead) = (Position::Unknown, WatchState::Unset, Untracked(0));
        }
    }
}

impl<T: Trust> Machine<T> {
    pub(crate) fn acquire(&mut self, now: Moment, op: Op, spec: &Arc<Spec>) {
        let mut acquisition = Acquisition::new(spec);
        acquisition.phase = acquisition.initial_phase();
        for queue in &acquisition.queues {
            self.paths.entry(queue.path).or_default();
        }
        self.ops.insert(op, acquisition);
        match self.life {
            Life::Open | Life::Renewing => self.send_create(now, op),
            Life::Draining => self.finish(now, op, End::Draining),
            Life::Closing | Life::Over => self.finish(now, op, End::Closed),
        }
    }

    /// Creates the nodes. Where that cannot grant the lock by itself, listings go out with it. A caller that does not queue
    /// sends the listings alone first.
    pub(crate) fn send_create(&mut self, now: Moment, op: Op) {
        let Some(acquisition) = self.ops.get(&op).filter(|_| self.is_up) else { return };
        if acquisition.phase == Phase::Peeking {
            return self.request_listings(op);
        }
        // After two lost creates, the next waits until its paths were searched. Then the servers do answer other requests,
        // so a create that is lost again is itself the cause.
        let is_searched = |path| self.paths.get(path).is_none_or(|state| !state.awaits_search());
        if acquisition.lost > 1 && !acquisition.spec.queues.iter().all(|(path, _)| is_searched(path)) {
            return;
        }
        let may_count = |path| self.paths.get(path).is_some_and(PathState::may_count);
        let spec = Arc::clone(acquisition.in_turn.as_ref().unwrap_or(&acquisition.spec));
        let mut paths = spec.queues.iter().map(|(path, _)| path).chain(spec.admission.turn());
        let makes = acquisition.makes;
        let counts = !makes && spec.may_count && paths.all(may_count);
        if acquisition.is_in_one_request() && !counts {
            return self.take_turn(now, op);
        }
        let Some(guid) = self.next_guid(op) else { return };
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        (acquisition.node, acquisition.shown) = (Node::Sending { guid }, Shown::Unasked);
        acquisition.forget_positions();
        for (path, _) in &spec.queues {
            let state = self.paths.entry(*path).or_default();
            state.creating += 1;
            // A listing that is under way does not show these nodes, and may show the path as missing.
            state.forget(op);
        }
        self.send(Ask::Create { op, guid, spec, counts, makes });
        if !counts && !makes {
            self.request_listings(op);
        }
    }

    /// A create was lost. Its nodes are not looked for: others are created, and what turns up is deleted.
    /// `is_suspect`: it may be what the connection was lost for.
    pub(crate) fn create_was_lost(&mut self, now: Moment, op: Op, is_suspect: bool) {
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        acquisition.lost += u8::from(is_suspect);
        acquisition.node = Node::None;
        if acquisition.lost >= LOST_CREATES {
            return self.finish(now, op, End::Unanswered);
        }
        acquisition.phase = acquisition.initial_phase();
        self.send_followers(op);
        self.pause(now);
    }

    /// Sends the creates that have waited until their path was searched.
    pub(crate) fn send_waiting_creates(&mut self, now: Moment, path: Path) {
        let waits = |acquisition: &Acquisition| {
            acquisition.lost > 1
                && (acquisition.phase, acquisition.node) == (Phase::Creating, Node::None)
                && acquisition.queues.iter().any(|queue| queue.path == path)
        };
        let waiting: Vec<Op> =
            self.ops.iter().filter(|(_, acquisition)| waits(acquisition)).map(|(op, _)| *op).collect();
        waiting.into_iter().for_each(|op| self.send_create(now, op));
    }

    /// Ends an acquisition for its caller, who reads how.
    pub(crate) fn finish(&mut self, now: Moment, op: Op, end: End) {
        self.leave(now, op, false);
        if let Some(acquisition) = self.ops.get_mut(&op) {
            acquisition.phase = Phase::Over(end);
            self.wake(op);
            self.turn_or_caller_ended(now, op, end);
        }
    }

    /// The node of a waiter was deleted by hand. In several queues it joins all of them again.
    pub(crate) fn evicted(&mut self, now: Moment, op: Op) {
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        if !acquisition.spec.waits
            || acquisition.single().is_some()
            || acquisition.spec.admission != Admission::First
        {
            return self.finish(now, op, End::Evicted);
        }
        acquisition.phase = acquisition.initial_phase();
        self.leave(now, op, false);
        self.send_create(now, op);
    }

    pub(crate) fn abandon(&mut self, now: Moment, op: Op) {
        if self.phase(op) == Some(Phase::Held) {
            self.release(now, op);
        }
        self.leave(now, op, false);
        self.ops.remove(&op);
        self.give_turn_up(now, op);
    }

    /// Deletes its nodes and forgets its positions. `releases`: the answer to the delete ends its release.
    pub(crate) fn leave(&mut self, now: Moment, op: Op, releases: bool) {
        self.timers.remove(Timer::Limit(op));
        self.timers.remove(Timer::Turn(op));
        for at in 0..self.ops.get(&op).map_or(0, |acquisition| acquisition.queues.len()) {
            self.move_to(op, at, Position::Unknown);
        }
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        let node = std::mem::replace(&mut acquisition.node, Node::None);
        if node == Node::There {
            let nodes = acquisition.nodes();
            self.delete(&nodes, releases);
        }
        // A create that is under way ends with its answer.
        self.give_up_downgrade(now, op);
        self.send_followers(op);
    }
}
