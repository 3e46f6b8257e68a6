//! The pure state machine that makes all of a session's decisions: events in, actions out. It has no runtime, no
//! client, no clock, no randomness and no text. A driver sends its requests, and passes answers and events to it.
//!
//! 1. Every request follows from the state. A request that could not be sent, or was lost, is derived again when there
//!    is a connection; see `resume`. There are no retry loops.
//! 2. The driver hands each request back with its answer, so the machine keeps no table of requests.
//! 3. [`Event::Abandon`] is the last event of every handle, in every phase. A dropped future sends only this event.
//! 4. A node belongs to the acquisition whose guid it carries. A node of this session with any other guid is an orphan.
//!    Every listing for a waiter deletes orphans.

mod acquisition;
mod downgrade;
mod hold;
mod identity;
mod listing;
mod name;
mod node;
mod queue;
mod session;
mod timers;
mod trust;
mod turn;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use crate::acquisition::Loss;
pub use crate::hold::HoldState;
pub use crate::name::ContenderKind;

pub use crate::acquisition::{Acquisition, Admission, End, GrantedBy, Phase, Spec, StallLimit};
pub use crate::downgrade::{Change, Replacement};
pub use crate::identity::{Identity, OwnListing, Shown};
pub use crate::listing::PathState;
pub use crate::name::{Kind, Listing, Name, is_near_wrap};
pub use crate::node::{Node, Nodes, OpNode, PendingDelete, named_nonce, op_node};
pub use crate::queue::{Position, Queue, WatchState};
pub use crate::session::Life;
pub use crate::timers::{Timer, Timers, fallback_interval};
pub use crate::trust::{Ledger, Moment, Trust};

/// The number of an acquisition, chosen by the driver. No two live acquisitions have the same number.
pub type Op = u32;

/// The highest bit of an `Op` marks a turn of a semaphore (see `turn.rs`). The other bits are the number of the
/// acquisition that takes the turn.
const TURN: Op = 1 << (Op::BITS - 1);

/// Returns the acquisition of the caller: the one that takes the turn if `op` is a turn, otherwise `op`.
pub fn caller_of(op: Op) -> Op {
    op & !TURN
}

/// The number of an acquisition that does not exist. The driver queues requests of the session itself under it.
pub const SESSION: Op = !TURN;

pub fn is_turn(op: Op) -> bool {
    op != caller_of(op)
}

/// Returns the number of the turn that an acquisition of permits may take.
pub fn turn_of(op: Op) -> Op {
    op | TURN
}

/// The number of a lock path. The driver knows the text.
pub type Path = u32;

/// A value that `Eq` and `Hash` ignore. The explorer (`verify/explore`) merges states that differ only in such values,
/// so the explorer's checks must not depend on such values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untracked<T>(pub T);

impl<T> PartialEq for Untracked<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Untracked<T> {}

impl<T> Hash for Untracked<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A request to the servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Creates the nodes of an acquisition in one transaction. `counts`: the transaction also sets the data of the
    /// paths to empty, because the stats in its answer have the numbers of children.
    Create {
        op: Op,
        /// The guid of the first node. The guids of the others count up from it.
        guid: u128,
        spec: Arc<Spec>,
        counts: bool,
        /// Whether the transaction also creates missing parents.
        creates_parents: bool,
    },
    /// A transaction of one check. It changes nothing and needs a quorum, so a listing behind it shows everything
    /// committed before.
    Barrier {
        op: Op,
        path: Path,
    },
    /// Lists the children of a path, for all acquisitions that want a listing. `watches`: also watches the children.
    List {
        op: Op,
        path: Path,
        watches: bool,
    },
    /// Checks in one transaction that all nodes of an acquisition are there.
    Confirm {
        op: Op,
        nodes: Nodes,
    },
    /// Watches a predecessor.
    Watch {
        op: Op,
        path: Path,
        name: Name,
    },
    /// Watches one of our own nodes.
    WatchOwn {
        op: Op,
        path: Path,
        name: Name,
    },
    /// Deletes nodes in one transaction.
    Delete {
        op: Op,
        nodes: Nodes,
    },
    /// Creates a reader's node with the number of a writer, and deletes the writer's node, in one transaction.
    Replace {
        op: Op,
        path: Path,
        name: Name,
        guid: u128,
    },
    /// Lists the nodes of the session that the connection belongs to.
    ListOwn,
    /// A read of `/`, and a transaction of one check of `/`. Both renew trust while there are holds.
    Read,
    Check,
}

impl Ask {
    /// Returns the acquisition of the caller that the request is for. `None` for a request of the session itself.
    #[must_use]
    pub fn op(&self) -> Option<Op> {
        self.acquisition().map(caller_of)
    }

    /// Returns the acquisition, or the turn, that the request is for.
    #[must_use]
    pub fn acquisition(&self) -> Option<Op> {
        match *self {
            Self::Create { op, .. }
            | Self::Barrier { op, .. }
            | Self::List { op, .. }
            | Self::Confirm { op, .. }
            | Self::Watch { op, .. }
            | Self::WatchOwn { op, .. }
            | Self::Delete { op, .. }
            | Self::Replace { op, .. } => Some(op),
            Self::ListOwn | Self::Read | Self::Check => None,
        }
    }

    /// Returns whether a success proves that a quorum answered.
    #[must_use]
    pub fn is_write(&self) -> bool {
        // List every kind: a new kind of request proves nothing until it is added here.
        let is_change = matches!(self, Self::Create { .. } | Self::Delete { .. } | Self::Replace { .. });
        is_change || matches!(self, Self::Barrier { .. } | Self::Confirm { .. } | Self::Check)
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    Created {
        names: Arc<[Name]>,
        czxid: i64,
        /// The session that owns the nodes, if the server returned it.
        owner: Option<u64>,
        counted: Option<Counted>,
    },
    /// `other_children`: how many children are not contenders. `has_no_data`: whether the path has no data.
    Names {
        names: Listing,
        other_children: u32,
        has_no_data: bool,
    },
    /// The node is there, and the watch on it is set. `owner`: the session that owns the node.
    Stat {
        owner: u64,
    },
    Done,
    NoNode,
    /// The reader's node of a downgrade exists already. Or a node has the name of ours, but is not ours.
    Exists,
    /// The server refused to set the data of a path, which a create does to count the children.
    DataRefused,
    Refused,
    /// The server returned an error code that the client does not know. The request may have been done all the same.
    UnknownError,
    /// No answer came, mostly because the connection was lost; or one that decides nothing, such as that the request was throttled.
    /// The request may have been done, or may still be done.
    #[default]
    Unknown,
}

/// How many children were there when nodes were created, without the new nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    /// The children of all paths of the acquisition.
    pub others: u32,
    /// The children of the path where callers queue for turns, if there is one.
    pub turns: u32,
}

/// A watch that the driver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Watch {
    Predecessor(Op, Path, Name),
    Own(Op, Path, Name),
    /// The watch on the children of a path.
    Path(Path),
}

/// A change of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connection {
    /// The client has reconnected to the same session. It sent the connect request at `since` or later, because the
    /// connection before was still up at `since`.
    Up {
        since: Moment,
    },
    Down,
    /// The session has expired, or the client gave it up.
    Expired,
}

/// What the machine handles: a call, an answer, a watch event, a change of the connection, or time.
#[derive(Clone, Debug)]
pub enum Event {
    Acquire {
        op: Op,
        spec: Arc<Spec>,
    },
    Release(Op),
    /// The holder of a write lock becomes a reader.
    Downgrade(Op),
    /// The work under this hold moves.
    Progress(Op),
    /// The semaphore of this acquisition has another number of permits now.
    Permits {
        op: Op,
        limit: u32,
    },
    /// Somebody asks the holder of this acquisition, or of its turn, to release it.
    AskedBack(Op),
    /// A caller waits for the loss of this hold, so the loss has to be noticed at once.
    WatchForLoss(Op),
    /// The handle is gone: its future or guard was dropped at any point, or its result was read.
    Abandon(Op),
    /// No more locks are granted, and the session closes when no hold is left.
    Drain,
    Close,
    /// `is_stale`: the request was sent over an earlier connection.
    Answer {
        ask: Ask,
        sent: Moment,
        is_stale: bool,
        outcome: Outcome,
    },
    Fired {
        watch: Watch,
        is_deleted: bool,
    },
    Connection(Connection),
    /// A new session has replaced the one that ended. `created`: the session was created then or later. `timeout`: in microseconds.
    Renewed {
        session: u64,
        nonce: u64,
        created: Moment,
        timeout: u64,
    },
    /// A listing for an operator or an observer showed these orphans.
    Orphans {
        path: Path,
        names: Vec<Name>,
    },
    /// The process is running. `slept`: for how many microseconds the computer has slept since the last `Beat`.
    Beat {
        slept: u64,
    },
    /// Fires all timers that are due; see [`Machine::next_deadline`].
    Timeout,
    /// Fires this timer, whether it is due or not.
    Timer(Timer),
}

/// A command to the driver. The driver carries out all commands, in sequence, before it handles another event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Send(Ask),
    Unwatch(Watch),
    Wake(Op),
    /// The number of contenders ahead of a waiter is known now.
    Placed(Op),
    /// The machine has forgotten unused paths, so the driver may forget them, too.
    Forget,
    /// The connection does not belong to our session, or that cannot be found out. The driver drops the client and
    /// connects again.
    Replace,
    /// Another process has the session's unique name, so the session ends for good.
    Yield,
    /// The session no longer needs its client. `is_clean`: all nodes of the session are certainly gone.
    End {
        is_clean: bool,
    },
}

/// Which of the requests that renew trust are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Renewing {
    pub read: bool,
    pub check: bool,
}

/// The state of a session and of all its acquisitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine<T> {
    /// The upper half of the guids of this session's nodes.
    pub nonce: u64,
    pub id: u64,
    pub(crate) timeout: Untracked<u64>,
    pub life: Life,
    pub is_up: bool,
    pub(crate) identity: Identity,
    pub(crate) own_listing: OwnListing,
    pub trust: T,
    pub(crate) renewing: Renewing,
    /// Boxed, because a map with large values allocates much for one of them.
    pub ops: BTreeMap<Op, Box<Acquisition>>,
    pub paths: BTreeMap<Path, PathState>,
    pub deletes: BTreeMap<OpNode, PendingDelete>,
    /// Nodes whose delete was refused, mostly by an ACL. Each fallback poll tries again.
    pub refused: BTreeSet<OpNode>,
    pub timers: Timers,
    pub out: VecDeque<Action>,
}

/// The machine before the first ZooKeeper session.
impl Default for Machine<Ledger> {
    fn default() -> Self {
        Self::unconnected(0, Ledger::new(0, None, Moment(0)))
    }
}

impl<T: Trust> Machine<T> {
    /// Creates the machine of a session that is connected. `timeout` is in microseconds.
    pub fn new(session: u64, nonce: u64, timeout: u64, trust: T) -> Self {
        Self {
            nonce,
            id: session,
            timeout: Untracked(timeout),
            life: Life::Open,
            is_up: true,
            identity: Identity::Known,
            own_listing: OwnListing::default(),
            trust,
            renewing: Renewing::default(),
            ops: BTreeMap::new(),
            paths: BTreeMap::new(),
            deletes: BTreeMap::new(),
            refused: BTreeSet::new(),
            timers: Timers::default(),
            out: VecDeque::new(),
        }
    }

    /// Creates the machine of a session that has never been connected.
    pub fn unconnected(nonce: u64, trust: T) -> Self {
        let mut machine = Self { life: Life::Renewing, is_up: false, ..Self::new(0, nonce, 0, trust) };
        // The fallback poll forgets paths, also those of calls that end before there is a session.
        machine.schedule_fallback_poll(Moment(0));
        machine
    }

    /// Handles an event. The driver then carries out the actions: see [`next_action`](Self::next_action).
    pub fn handle(&mut self, now: Moment, event: Event) {
        match event {
            Event::Acquire { op, spec } => self.acquire(now, op, &spec),
            Event::Release(op) => self.release(now, op),
            Event::Downgrade(op) => self.downgrade(op),
            Event::Progress(op) => self.progress(now, op),
            Event::Permits { op, limit } => self.change_permits(op, limit),
            Event::AskedBack(op) => self.asked_back(op),
            Event::WatchForLoss(op) => self.watch_for_loss(op),
            Event::Abandon(op) => self.abandon(now, op),
            Event::Drain => self.drain(now),
            Event::Close => self.close(now),
            Event::Answer { ask, sent, is_stale, outcome } => self.answered(now, ask, sent, is_stale, outcome),
            Event::Fired { watch: Watch::Predecessor(op, path, name), is_deleted } => {
                self.predecessor_fired(now, op, path, name, is_deleted);
            }
            Event::Fired { watch: Watch::Own(op, path, name), is_deleted } => {
                self.own_fired(now, op, path, name, is_deleted);
            }
            Event::Fired { watch: Watch::Path(path), .. } => self.path_fired(path),
            Event::Connection(connection) => self.connection(now, connection),
            Event::Renewed { session, nonce, created, timeout } => {
                (self.id, self.nonce, self.timeout) = (session, nonce, Untracked(timeout));
                self.trust.renewed(timeout, created, now);
                self.renewed(now);
            }
            Event::Orphans { path, names } => self.delete_in(path, names),
            Event::Beat { slept } => self.trust.beat(now, slept, self.is_up),
            Event::Timeout => self.timeout(now),
            Event::Timer(timer) => self.fire(now, timer),
        }
        self.end_if_done(now);
    }

    fn answered(&mut self, now: Moment, ask: Ask, sent: Moment, is_stale: bool, outcome: Outcome) {
        if !self.is_of_session(now, &ask, is_stale, &outcome) {
            return;
        }
        // The driver answers some of these requests without a server: it refuses them, or knows that the node is gone.
        let may_be_refused = matches!(ask, Ask::Create { .. } | Ask::Watch { .. } | Ask::WatchOwn { .. });
        let is_answer = match outcome {
            Outcome::Unknown => false,
            Outcome::Refused | Outcome::NoNode => !may_be_refused,
            _ => true,
        };
        // An answer over an earlier connection, or perhaps from another session, proves nothing.
        if is_answer && !is_stale && self.identity == Identity::Known {
            // A server may refuse a write without asking a quorum.
            let is_refusal = matches!(
                outcome,
                Outcome::NoNode
                    | Outcome::Exists
                    | Outcome::Refused
                    | Outcome::UnknownError
                    | Outcome::DataRefused
            );
            self.trust.answered(ask.is_write() && !is_refusal, sent, now);
        }
        let is_fresh = !is_stale && self.trust.is_recent(sent, now);
        match ask {
            Ask::Create { op, guid, spec, .. } => {
                self.created(now, op, &spec, guid, is_fresh, outcome);
                self.identify();
            }
            // Perhaps no quorum has answered the barrier. Then the listing behind it may miss a node, so the path is
            // searched again.
            Ask::Barrier { path, .. } if outcome == Outcome::Unknown => self.search_soon(now, path),
            Ask::Barrier { .. } => {}
            Ask::List { path, watches, .. } => self.listed(now, path, watches, is_stale, is_fresh, outcome),
            Ask::Confirm { op, nodes } => self.confirmed(now, op, &nodes, (sent, is_stale), &outcome),
            Ask::Watch { op, path, name } => self.predecessor_watched(now, op, path, name, &outcome),
            Ask::WatchOwn { op, path, name } => self.own_watched(now, op, path, name, &outcome),
            Ask::Delete { nodes, .. } => self.deleted(now, &nodes, &outcome),
            Ask::Replace { op, path, name: writer, guid } => {
                self.replaced(now, op, Replacement { path, writer, guid }, &outcome);
            }
            Ask::Read => self.renewing.read = false,
            Ask::Check => self.renewing.check = false,
            Ask::ListOwn => {}
        }
    }

    /// Takes the next action that the driver has to carry out.
    pub fn next_action(&mut self) -> Option<Action> {
        self.out.pop_front()
    }

    /// Returns an acquisition whose handle is alive, or its turn.
    #[must_use]
    pub fn op(&self, op: Op) -> Option<&Acquisition> {
        self.ops.get(&op).map(Box::as_ref)
    }

    /// Returns all acquisitions whose handles are alive, and their turns.
    pub fn ops(&self) -> impl Iterator<Item = (Op, &Acquisition)> {
        self.ops.iter().map(|(op, acquisition)| (*op, &**acquisition))
    }

    fn phase(&self, op: Op) -> Option<Phase> {
        self.ops.get(&op).map(|acquisition| acquisition.phase)
    }

    fn send(&mut self, ask: Ask) {
        debug_assert!(self.is_up, "there is a connection");
        self.out.push_back(Action::Send(ask));
    }

    /// Wakes the caller of an acquisition. A turn has no caller of its own.
    fn wake(&mut self, op: Op) {
        if !is_turn(op) {
            self.out.push_back(Action::Wake(op));
        }
    }
}
