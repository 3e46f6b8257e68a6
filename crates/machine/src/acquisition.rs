//! An acquisition, from its call until its handle is dropped: its nodes, its phases and its end.

use std::fmt;
use std::sync::Arc;

use crate::{
    Ask, Change, Kind, Life, Machine, Moment, Node, Op, Path, PathState, Position, Queue, Shown, Timer, Trust,
    Untracked, WatchState,
};

/// A caller's request for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The path and kind of each node. One transaction creates all nodes. Several nodes in one path are permits.
    pub queues: Vec<(Path, Kind)>,
    pub admission: Admission,
    /// Whether the caller queues if the lock is contended.
    pub waits: bool,
    /// The hold is lost when its work has made no progress for this long.
    pub stall_limit: Option<StallLimit>,
    /// Whether the create may set the data of the paths to empty, to count their children.
    pub may_count: bool,
}

/// How long the work under a hold may stand still, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StallLimit {
    /// From the grant to the first progress.
    pub first: u64,
    /// From one progress to the next.
    pub next: u64,
}

/// The condition on which an acquisition is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The acquisition is first in each of its queues.
    #[default]
    First,
    /// The path has at most `limit` children, the acquisition's own included. Callers take turns to create permits, and
    /// queue for the turn at the path `turn`. Before it queues there, a caller may send one create whose answer can grant
    /// the permits. `turn` is `None` in the spec of the create that a caller sends in its turn.
    Permits { limit: u32, turn: Option<Path> },
}

impl Admission {
    pub fn turn(&self) -> Option<&Path> {
        match self {
            Self::Permits { turn, .. } => turn.as_ref(),
            Self::First => None,
        }
    }
}

impl Spec {
    /// Returns the number of permits of a semaphore.
    pub fn permits(&self) -> Option<u32> {
        if let Admission::Permits { limit, .. } = self.admission { Some(limit) } else { None }
    }

    pub fn set_permits(&mut self, permits: u32) {
        if let Admission::Permits { limit, .. } = &mut self.admission {
            *limit = permits;
        }
    }
}

/// An acquisition whose handle is alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquisition {
    pub spec: Arc<Spec>,
    /// What a caller of a semaphore creates in its turn. `None` until it queues for a turn.
    pub in_turn: Option<Arc<Spec>>,
    pub phase: Phase,
    pub node: Node,
    pub queues: Vec<Queue>,
    /// The acquisitions that follow one of these nodes, each with the path.
    pub followers: Vec<(Op, Path)>,
    /// How many guids were given out in this ZooKeeper session: to creates of this acquisition and of its turns, and to
    /// downgrades. So the node of a lost create is never mistaken for that of a later one. Always 0 in a turn: its
    /// guids count in its caller.
    pub attempt: u16,
    /// Whether a path was missing, so that the next create also creates missing parents.
    pub creates_parents: bool,
    /// How many creates in a row were lost, up to `LOST_CREATES`.
    pub lost: u8,
    /// The czxid of the nodes, 0 if unknown. The fencing token is made from it at the grant. After a downgrade the
    /// czxid is that of the reader's node, and the token stays.
    pub czxid: Untracked<i64>,
    /// The progress of a downgrade.
    pub change: Change,
    /// The result of the release, once all nodes are gone.
    pub released: End,
    /// Whether somebody has asked for its release since it joined its queues.
    pub asked_back: bool,
    /// How the lock was granted.
    pub granted_by: Untracked<GrantedBy>,
    /// Ticks since the grant, at most 2. A caller that waits for the loss sets the age to 2. At 2 the nodes of a hold are
    /// watched.
    pub age: u8,
    /// Whether the last listing of our own nodes showed these nodes.
    pub shown: Shown,
}

/// How a lock was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrantedBy {
    /// By the count in the answer to the create: no other child was there, or few enough for the permits.
    Counted,
    /// By a listing that showed the acquisition first, or enough free permits.
    Listed,
    /// By a hand-over in memory, from a holder of this session.
    HandedOver,
    /// By the deletion of the only contender ahead, a node of another session.
    Deleted,
}

/// How far an acquisition has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A `try` lists the contenders before it writes anything.
    Peeking,
    /// A caller of a semaphore waits for its turn.
    Turning,
    /// The nodes are being created.
    Creating,
    /// The nodes are there. The acquisition waits until it is first in each of its queues.
    Waiting,
    /// A quorum has to confirm that the nodes are there. `is_first`: a success grants the lock. Otherwise there were
    /// signs that a node is gone. `is_asked`: the request is under way.
    Confirming {
        is_first: bool,
        is_asked: bool,
    },
    Held,
    Releasing,
    Over(End),
}

impl Phase {
    /// Returns whether the acquisition is neither granted nor over.
    pub fn is_queuing(self) -> bool {
        matches!(self, Self::Peeking | Self::Turning | Self::Creating | Self::Waiting | Self::Confirming { .. })
    }

    /// Returns whether the lock is held or being released.
    pub(crate) fn is_hold(self) -> bool {
        matches!(self, Self::Held | Self::Releasing)
    }
}

/// How an acquisition ended, for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    Released,
    Lost(Loss),
    /// The node of a waiter was deleted by hand.
    Evicted,
    /// The lock is contended, and the caller does not wait.
    Contended,
    Refused,
    Draining,
    Closed,
}

/// Why a hold ended before it was released.
///
/// Whatever the reason, another contender may hold the lock from now on. Stop your work, or let a store that checks
/// fencing tokens refuse late writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The session has expired: the servers ended it, or the client gave it up.
    Expired,
    /// No answer came in time to prove that the session is alive, so the servers may expire it from now on. The session
    /// may also survive: after an outage, a pause or slow writes of less than the session timeout it can be granted
    /// locks again.
    TrustEnded,
    /// The node of the hold was deleted by hand. Or the session ended, and the event of the node's deletion came first.
    Deleted,
    /// The session was closed during the hold.
    Closed,
    /// The work under the lock made no progress for as long as the options allow.
    Stalled,
}

impl Loss {
    /// Returns the loss as a word, for labels.
    #[doc(hidden)]
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TrustEnded => "trust_ended",
            Self::Deleted => "deleted",
            Self::Closed => "closed",
            Self::Stalled => "stalled",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "session has expired",
            Self::TrustEnded => "no answer came in time to prove that the session lives",
            Self::Deleted => "node was deleted",
            Self::Closed => "session was closed",
            Self::Stalled => "work made no progress in time",
        })
    }
}

impl std::error::Error for Loss {}

/// After this many lost creates in a row, the create itself may be what makes the server close the connection. After a reconnect
/// the next create then waits for up to a second, so that the session's other requests are answered first.
pub(crate) const LOST_CREATES: u8 = 2;

impl Acquisition {
    fn new(spec: &Arc<Spec>) -> Box<Self> {
        Box::new(Self {
            spec: Arc::clone(spec),
            in_turn: None,
            phase: Phase::Creating,
            node: Node::None,
            queues: spec.queues.iter().map(|(path, kind)| Queue::new(*path, *kind)).collect(),
            followers: Vec::new(),
            attempt: 0,
            creates_parents: false,
            lost: 0,
            czxid: Untracked(0),
            change: Change::None,
            released: End::Released,
            asked_back: false,
            granted_by: Untracked(GrantedBy::Listed),
            age: 0,
            shown: Shown::Unasked,
        })
    }

    /// Returns the phase in which an acquisition begins, or begins again. A `try` peeks first.
    pub(crate) fn initial_phase(&self) -> Phase {
        if self.spec.waits { Phase::Creating } else { Phase::Peeking }
    }

    /// Returns whether only the answer to the create can grant the permits, because the caller has not queued for a
    /// turn.
    pub(crate) fn is_in_one_request(&self) -> bool {
        self.spec.admission.turn().is_some() && self.in_turn.is_none()
    }

    /// Returns the queue of an acquisition that has only one.
    pub fn single(&self) -> Option<&Queue> {
        if let [queue] = self.queues.as_slice() { Some(queue) } else { None }
    }

    /// Returns the largest number of contenders ahead in any queue, or the number of missing permits.
    pub fn ahead(&self) -> usize {
        self.queues.iter().map(|queue| queue.ahead.0 as usize).max().unwrap_or_default()
    }

    /// Returns whether the acquisition waits, and has only one queue.
    pub(crate) fn waits_in_one(&self) -> bool {
        self.single().is_some() && self.phase == Phase::Waiting
    }

    pub(crate) fn is_known(&self) -> bool {
        self.queues.iter().all(|queue| queue.position != Position::Unknown)
    }

    /// Returns whether contenders are ahead of the acquisition, and their number is known.
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
    pub fn acquire(&mut self, now: Moment, op: Op, spec: &Arc<Spec>) {
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

    /// Sends the create, and listings with it unless the answer to the create can grant the lock. A `try` first sends
    /// the listings alone.
    pub(crate) fn send_create(&mut self, now: Moment, op: Op) {
        let Some(acquisition) = self.ops.get(&op).filter(|_| self.is_up) else { return };
        if acquisition.phase == Phase::Peeking {
            return self.request_listings(op);
        }
        let may_count = |path| self.paths.get(path).is_some_and(PathState::may_count);
        let spec = Arc::clone(acquisition.in_turn.as_ref().unwrap_or(&acquisition.spec));
        let mut paths = spec.queues.iter().map(|(path, _)| path).chain(spec.admission.turn());
        let creates_parents = acquisition.creates_parents;
        let counts = !creates_parents && spec.may_count && paths.all(may_count);
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
            // A listing that was sent before does not show these nodes, and may not show the path.
            state.forget(op);
        }
        self.send(Ask::Create { op, guid, spec, counts, creates_parents });
        if !counts && !creates_parents {
            self.request_listings(op);
        }
    }

    /// Handles a lost create. The next create makes other nodes, and a search deletes those of the lost one.
    pub(crate) fn create_was_lost(&mut self, now: Moment, op: Op) {
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        acquisition.lost = LOST_CREATES.min(acquisition.lost + 1);
        acquisition.node = Node::None;
        acquisition.phase = acquisition.initial_phase();
        self.send_followers(op);
        self.pause(now);
    }

    /// Ends an acquisition, and wakes its caller.
    pub fn finish(&mut self, now: Moment, op: Op, end: End) {
        if end == End::Lost(Loss::Deleted) {
            self.note_deletion(op);
        }
        self.leave(now, op, false);
        if let Some(acquisition) = self.ops.get_mut(&op) {
            acquisition.phase = Phase::Over(end);
            self.wake(op);
            self.turn_or_caller_ended(now, op, end);
        }
    }

    /// Notes where another client has deleted a node of this acquisition, if the session has a unique name.
    fn note_deletion(&mut self, op: Op) {
        let acquisition = self.ops.get(&op).filter(|_| self.has_name());
        for queue in acquisition.into_iter().flat_map(|acquisition| &acquisition.queues) {
            self.paths.entry(queue.path).or_default().lost_a_node = true;
        }
    }

    /// Handles the deletion of a waiter's node by hand. A waiter in several queues joins all of them again. Any other
    /// acquisition ends.
    pub(crate) fn evicted(&mut self, now: Moment, op: Op) {
        self.note_deletion(op);
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        if !acquisition.spec.waits
            || acquisition.single().is_some()
            || acquisition.spec.admission != Admission::First
        {
            return self.finish(now, op, End::Evicted);
        }
        (acquisition.phase, acquisition.asked_back) = (acquisition.initial_phase(), false);
        self.leave(now, op, false);
        self.send_create(now, op);
    }

    pub fn abandon(&mut self, now: Moment, op: Op) {
        if self.phase(op) == Some(Phase::Held) {
            self.release(now, op);
        }
        self.leave(now, op, false);
        self.ops.remove(&op);
        self.give_turn_up(now, op);
    }

    /// Deletes the nodes of an acquisition, and forgets its positions. `releases`: the answer to the delete ends the
    /// release.
    pub fn leave(&mut self, now: Moment, op: Op, releases: bool) {
        self.timers.remove(Timer::Stall(op));
        self.timers.remove(Timer::Turn(op));
        for at in 0..self.ops.get(&op).map_or(0, |acquisition| acquisition.queues.len()) {
            self.move_to(op, at, Position::Unknown);
        }
        let Some(acquisition) = self.ops.get_mut(&op) else { return };
        let node = std::mem::replace(&mut acquisition.node, Node::None);
        if node == Node::There {
            let nodes = acquisition.nodes();
            self.delete(nodes, releases);
        }
        // If a create is under way, its answer deletes the nodes.
        self.give_up_downgrade(now, op);
        self.send_followers(op);
    }
}
