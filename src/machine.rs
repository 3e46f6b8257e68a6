//! Everything that a session decides, as one pure state machine: events in, actions out. It has no runtime, no client, no clock,
//! no randomness and no text. A driver sends its requests, and reports answers and events.
//!
//! 1. Every request follows from the state. A request that could not be sent, or was lost, is derived again when there
//!    is a connection; see `resume`. There are no retry loops.
//! 2. A request comes back with its answer, so the machine keeps no table of requests.
//! 3. [`Event::Abandon`] is the last event of every handle, in every phase. A future that is dropped, at any point, sends only this.
//! 4. A node belongs to the acquisition whose guid it carries. A node of this session with another guid is an orphan, and every
//!    listing for a waiter deletes orphans.

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

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use crate::machine::acquisition::Loss;
pub use crate::machine::hold::HoldState;
pub use crate::machine::name::ContenderKind;

pub(crate) use crate::machine::acquisition::{Acquisition, Admission, End, GrantedBy, Phase, Spec};
pub(crate) use crate::machine::downgrade::{Change, Replacement};
pub(crate) use crate::machine::identity::{Identity, OwnListing, Shown};
pub(crate) use crate::machine::listing::PathState;
pub(crate) use crate::machine::name::{Kind, Listing, Name, is_near_wrap};
pub(crate) use crate::machine::node::{Node, Nodes, OpNode, PendingDelete, op_node};
pub(crate) use crate::machine::queue::{Position, Queue, WatchState};
pub(crate) use crate::machine::session::Life;
pub(crate) use crate::machine::timers::{Timer, Timers, fallback_interval};
pub(crate) use crate::machine::trust::{Ledger, Moment, Trust};

/// An acquisition, from its call until its handle is dropped. The driver numbers them, and gives no number to two at a time.
pub(crate) type Op = u32;

/// The highest bit of an `Op` marks a turn. The other bits are the number of the acquisition of permits that the turn is
/// for.
const TURN: Op = 1 << (Op::BITS - 1);

/// The acquisition that a caller waits for: itself, or the one that a turn is for.
pub(crate) fn caller_of(op: Op) -> Op {
    op & !TURN
}

/// The number under which requests for no acquisition are queued.
pub(crate) const SESSION: Op = !TURN;

pub(crate) fn is_turn(op: Op) -> bool {
    op != caller_of(op)
}

/// The acquisition of the turn that one of permits may have.
pub(crate) fn turn_of(op: Op) -> Op {
    op | TURN
}

/// A lock path, which the driver knows by this number.
pub(crate) type Path = u32;

/// Ignored by `Eq` and `Hash`, so that the explorer merges states that differ only in it. No decision may depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Untracked<T>(pub(crate) T);

impl<T> PartialEq for Untracked<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Untracked<T> {}

impl<T> Hash for Untracked<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// Creates the nodes of an acquisition in one transaction. If `counts`, the transaction also writes the empty data of the
    /// paths, whose stats then have the numbers of children.
    Create {
        op: Op,
        /// Of the first node. The others count on from it.
        guid: u128,
        spec: Arc<Spec>,
        counts: bool,
        /// Missing parents are created in the same transaction.
        makes: bool,
    },
    /// A transaction of one check. It changes nothing and needs a quorum, so a read behind it misses nothing older.
    Barrier {
        op: Op,
        path: Path,
    },
    /// The children of the path, for all acquisitions that want a listing. `watches`: also sets a watch on them.
    List {
        op: Op,
        path: Path,
        watches: bool,
    },
    /// Whether all nodes of an acquisition are there, by a transaction of checks.
    Confirm {
        op: Op,
        nodes: Nodes,
    },
    /// A watch on a predecessor.
    Watch {
        op: Op,
        path: Path,
        name: Name,
    },
    /// A watch on our own node.
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
    /// Creates the node of a reader with the number of a writer, and deletes that of the writer, in one transaction.
    Replace {
        op: Op,
        path: Path,
        name: Name,
        guid: u128,
    },
    /// The nodes of the connection's session.
    ListOwn,
    /// A stat of `/`, and a transaction of one check of `/`. They renew trust while there are holds.
    Read,
    Check,
}

impl Ask {
    /// The call whose answers it is queued with; none for the session's own.
    #[must_use]
    pub(crate) fn op(&self) -> Option<Op> {
        self.acquisition().map(caller_of)
    }

    /// The acquisition that it is for: that of a call, or of its turn.
    #[must_use]
    pub(crate) fn acquisition(&self) -> Option<Op> {
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

    /// Whether its success is an answer of a quorum.
    #[must_use]
    pub(crate) fn is_write(&self) -> bool {
        // Named one by one: another request proves nothing.
        let is_change = matches!(self, Self::Create { .. } | Self::Delete { .. } | Self::Replace { .. });
        is_change || matches!(self, Self::Barrier { .. } | Self::Confirm { .. } | Self::Check)
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Created {
        names: Arc<[Name]>,
        czxid: i64,
        /// The session that the nodes belong to, if the server returned it.
        owner: Option<u64>,
        counted: Option<Counted>,
    },
    /// `other_children`: how many children are no contenders. `is_empty`: whether the path has no data.
    Names {
        names: Listing,
        other_children: u32,
        is_empty: bool,
    },
    /// The stat of a node, whose watch is set.
    Stat {
        owner: u64,
    },
    Done,
    NoNode,
    /// The reader of a downgrade exists already; or a node with the name of ours exists that is not ours.
    Exists,
    /// The server does not let us write the data of the path.
    DataRefused,
    Refused,
    /// Refused with an error that the client does not know, so it may have been done all the same.
    UnknownError,
    /// The session has no room for the watch.
    NoWatchRoom,
    /// The connection was lost: the request may have been done, or may be yet.
    #[default]
    Unknown,
    /// As `Unknown`, and the create itself may have closed the connection: no create of this form was answered in this session.
    LostByCreate,
}

/// How many children were there when nodes were created, without these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counted {
    /// Under all paths of the acquisition.
    pub(crate) others: u32,
    /// Under the path of the turn, if it has one.
    pub(crate) turns: u32,
}

/// A watch of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Watch {
    Predecessor(Op, Path, Name),
    Own(Op, Path, Name),
    /// The children of a path.
    Path(Path),
}

/// A change of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Connection {
    /// The session was taken back. The request for it was sent at `since` or later: the connection before it still stood then.
    Up {
        since: Moment,
    },
    Down,
    /// The session is over.
    Expired,
}

/// What happens to a session.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Acquire {
        op: Op,
        spec: Arc<Spec>,
    },
    /// The caller takes the grant.
    Take(Op),
    Release(Op),
    /// The holder of a write lock becomes a reader.
    Downgrade(Op),
    /// The hold lasts no longer than until then.
    Limit {
        op: Op,
        until: Moment,
    },
    /// The loss of this hold is to be reported at once.
    WatchForLoss(Op),
    /// The handle is gone: a future or a guard was dropped, at any moment, or its result was read.
    Abandon(Op),
    /// No more locks are granted, and the session closes when the last hold is released.
    Drain,
    Close,
    /// `is_stale`: the request was sent over another connection than the present one.
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
    /// Another session has taken the place of the one that was over.
    /// `created`: it was created then, or later. `timeout`: in microseconds.
    Renewed {
        session: u64,
        nonce: u64,
        created: Option<Moment>,
        timeout: u64,
    },
    /// A listing for an operator or an observer shows these orphans.
    Orphans {
        path: Path,
        names: Vec<Name>,
    },
    /// The process runs. `slept`: for how many microseconds the computer has slept since the last `Beat`.
    Beat {
        slept: u64,
    },
    /// It is time for what is due: see [`Machine::next_deadline`].
    Timeout,
    /// It is time for this, whether it is due or not.
    Timer(Timer),
}

/// What the driver has to do, in this order, before it handles another event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Send(Ask),
    Unwatch(Watch),
    Wake(Op),
    /// The number of contenders ahead of a waiter is known.
    Placed(Op),
    /// Paths that nobody uses were forgotten.
    Forget,
    /// The servers have put another session in the place of ours. The driver drops the client and connects again.
    Replace,
    /// The session gives its client up. `is_clean`: all nodes are certainly gone.
    End {
        is_clean: bool,
    },
}

/// Which of the requests that renew trust are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Renewing {
    pub(crate) read: bool,
    pub(crate) check: bool,
}

/// A session and everything that it holds and waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Machine<T> {
    /// The upper half of the guids of this session's nodes.
    pub(crate) nonce: u64,
    pub(crate) id: u64,
    pub(crate) timeout: Untracked<u64>,
    pub(crate) life: Life,
    pub(crate) is_up: bool,
    pub(crate) identity: Identity,
    pub(crate) own_listing: OwnListing,
    /// The own node whose watch was tried again last.
    pub(crate) retried: Untracked<(Op, usize)>,
    pub(crate) trust: T,
    pub(crate) renewing: Renewing,
    pub(crate) ops: BTreeMap<Op, Acquisition>,
    pub(crate) paths: BTreeMap<Path, PathState>,
    pub(crate) deletes: BTreeMap<OpNode, PendingDelete>,
    /// Nodes whose delete was refused by an ACL. Each fallback poll tries again.
    pub(crate) refused: BTreeSet<OpNode>,
    pub(crate) timers: Timers,
    /// The client was given. Its session is not renewed, and goes on when this one is closed.
    pub(crate) is_attached: bool,
    pub(crate) out: Vec<Action>,
}

impl<T: Trust> Machine<T> {
    /// A session that is connected. `timeout` is in microseconds.
    pub(crate) fn new(session: u64, nonce: u64, timeout: u64, trust: T) -> Self {
        Self {
            nonce,
            id: session,
            timeout: Untracked(timeout),
            life: Life::Open,
            is_up: true,
            identity: Identity::Known,
            own_listing: OwnListing::default(),
            retried: Untracked::default(),
            trust,
            renewing: Renewing::default(),
            ops: BTreeMap::new(),
            paths: BTreeMap::new(),
            deletes: BTreeMap::new(),
            refused: BTreeSet::new(),
            timers: Timers::default(),
            is_attached: false,
            out: Vec::new(),
        }
    }

    /// A session that is yet to be made.
    pub(crate) fn unconnected(nonce: u64, trust: T) -> Self {
        Self { life: Life::Renewing, is_up: false, ..Self::new(0, nonce, 0, trust) }
    }

    /// Handles an event. The driver then carries [`actions`](Self::actions) out.
    pub(crate) fn handle(&mut self, now: Moment, event: Event) {
        match event {
            Event::Acquire { op, spec } => self.acquire(now, op, &spec),
            Event::Take(op) => self.take(now, op),
            Event::Release(op) => self.release(now, op),
            Event::Downgrade(op) => self.downgrade(op),
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
                self.is_attached = created.is_none();
                self.trust.renewed(timeout, created, now);
                self.renewed(now);
            }
            Event::Limit { op, until } => self.limit_hold(op, until),
            Event::Orphans { path, names } => self.delete_orphans(path, names),
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
        // The driver may have refused a request by itself, or know that the node is gone.
        let may_be_refused = matches!(ask, Ask::Create { .. } | Ask::Watch { .. } | Ask::WatchOwn { .. });
        let is_answer = match outcome {
            Outcome::Unknown | Outcome::LostByCreate | Outcome::NoWatchRoom => false,
            Outcome::Refused | Outcome::NoNode => !may_be_refused,
            _ => true,
        };
        // An answer over another connection, or perhaps of another session, proves nothing.
        if is_answer && !is_stale && self.identity == Identity::Known {
            // A server may refuse a write by itself.
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

    /// What the driver has to do now.
    pub(crate) fn actions(&mut self) -> impl Iterator<Item = Action> + use<T> {
        std::mem::take(&mut self.out).into_iter()
    }

    /// An acquisition whose handle is alive, or the turn of one.
    #[must_use]
    pub(crate) fn op(&self, op: Op) -> Option<&Acquisition> {
        self.ops.get(&op)
    }

    /// All acquisitions whose handles are alive.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (Op, &Acquisition)> {
        self.ops.iter().map(|(op, acquisition)| (*op, acquisition))
    }

    fn phase(&self, op: Op) -> Option<Phase> {
        self.ops.get(&op).map(|acquisition| acquisition.phase)
    }

    fn send(&mut self, ask: Ask) {
        debug_assert!(self.is_up, "there is a connection");
        self.out.push(Action::Send(ask));
    }

    /// Wakes the caller. Nobody waits for a turn alone.
    fn wake(&mut self, op: Op) {
        if !is_turn(op) {
            self.out.push(Action::Wake(op));
        }
    }
}
