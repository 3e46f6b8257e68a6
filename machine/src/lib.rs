//! Everything that a session decides, as one pure state machine: events in, actions out. It has no runtime, no client, no clock,
//! no randomness and no text. A driver sends what it asks for, and reports what happens.
//!
//! 1. Every request follows from the state. A request that could not be sent, or was lost, is derived again when there
//!    is a connection; see `resume`. There are no retry loops.
//! 2. A request comes back with its answer, so the machine keeps no table of what is under way. An answer names the row that it
//!    ends, and nothing else ends that row.
//! 3. [`Event::Abandon`] is the last word of every handle, in every stage. A future that is dropped, at any point, is
//!    nothing else.
//! 4. A node belongs to the acquisition whose guid it carries. A node of this session with another guid is abandoned, and every
//!    listing deletes abandoned nodes.

#![expect(missing_docs, reason = "not published; a name that is clear has no comment")]
#![expect(clippy::exhaustive_enums, clippy::exhaustive_structs, reason = "not published")]

mod acquisition;
mod downgrade;
mod hold;
mod look;
mod name;
mod node;
mod session;
mod trust;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

pub use crate::acquisition::{Acquisition, Armed, End, Loss, Place, Stage};
pub use crate::downgrade::Change;
pub use crate::hold::HoldState;
pub use crate::look::{Barrier, Doubt, Look, Row};
pub use crate::name::{Kind, Listing, Name};
pub use crate::node::{Leaving, Node};
pub use crate::session::Session;
pub use crate::trust::{Ledger, Moment, Trust};

/// An acquisition, from its call until its handle is dropped. The driver numbers them, and never gives a number twice.
pub type Op = u32;

/// A lock path, which the driver knows by this number.
pub type Path = u32;

/// A value that decides nothing: it is left out when states are compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside<T>(pub T);

impl<T> PartialEq for Aside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Aside<T> {}

impl<T> Hash for Aside<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ask {
    /// Creates a node with this guid. If `counts`, the same transaction writes the empty data of the path, whose stat then has
    /// the number of children.
    Create {
        op: Op,
        path: Path,
        guid: u128,
        kind: Kind,
        counts: bool,
    },
    /// A transaction of one check. It changes nothing and needs a quorum, so a read behind it misses nothing older.
    Barrier {
        op: Op,
        path: Path,
    },
    /// The children of the path, for all acquisitions that want a look.
    List {
        op: Op,
        path: Path,
    },
    /// The owner of a node that a search found.
    Owner {
        op: Op,
        path: Path,
        name: Name,
    },
    /// Whether our node is there, by a transaction of one check.
    Prove {
        op: Op,
        path: Path,
        name: Name,
    },
    /// A watch on the predecessor.
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
    Delete {
        op: Op,
        path: Path,
        name: Name,
    },
    /// Deletes the node of a writer and creates that of a reader with its number, in one transaction.
    Replace {
        op: Op,
        path: Path,
        name: Name,
        guid: u128,
    },
    /// The pair that renews trust.
    Read,
    Check,
}

impl Ask {
    /// The acquisition whose answers it is queued with; none for the session's own.
    #[must_use]
    pub fn op(&self) -> Option<Op> {
        match *self {
            Self::Create { op, .. }
            | Self::Barrier { op, .. }
            | Self::List { op, .. }
            | Self::Owner { op, .. }
            | Self::Prove { op, .. }
            | Self::Watch { op, .. }
            | Self::WatchOwn { op, .. }
            | Self::Delete { op, .. }
            | Self::Replace { op, .. } => Some(op),
            Self::Read | Self::Check => None,
        }
    }

    /// Whether its success is an answer of a quorum.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Barrier { .. }
            | Self::Prove { .. }
            | Self::Delete { .. }
            | Self::Replace { .. }
            | Self::Check => true,
            Self::List { .. } | Self::Owner { .. } | Self::Watch { .. } | Self::WatchOwn { .. } | Self::Read => {
                false
            }
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `others`: how many other children the path had when ours was created, if that was counted.
    Created {
        name: Name,
        czxid: i64,
        others: Option<u32>,
    },
    /// `is_empty`: whether the path has no data.
    Names {
        names: Listing,
        is_empty: bool,
    },
    /// The stat of a node, whose watch is set if one was asked for.
    Stat {
        owner: u64,
    },
    Done,
    NoNode,
    /// The server does not let us write the data of the path.
    DataRefused,
    Refused,
    /// The connection was lost: the request may have been done, or may be yet.
    Unknown,
}

/// A watch of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Watch {
    Predecessor(Op, Name),
    Own(Op, Name),
}

/// A timer of the driver's. It has no moment here, because what it does follows from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    /// Sends again what was lost over a connection that seems to stand.
    Resume,
    /// Sends the check again that a grant waits for.
    Prove,
    /// Looks once more for nodes of lost creates.
    Late(Path),
    /// A sixteenth of the session timeout, while there are holds.
    Tick,
    TrustEnds,
    /// Events may never come, so waiters look now and then.
    SlowLook,
    CloseBy,
}

/// A change of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Connection {
    Up,
    Down,
    /// The session is over.
    Expired,
}

/// What happens to a session.
#[derive(Clone, Debug)]
pub enum Event {
    /// `waits`: the acquisition queues if the lock is contended.
    Acquire {
        op: Op,
        path: Path,
        kind: Kind,
        waits: bool,
    },
    Release(Op),
    /// The holder of a write lock becomes a reader.
    Downgrade(Op),
    /// The handle is gone: a future or a guard was dropped, at any moment, or its result was read.
    Abandon(Op),
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
    Renewed {
        session: u64,
        nonce: u64,
    },
    Timer(Timer),
}

/// What the driver has to do, in this order, before it handles another event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Send(Ask),
    Unwatch(Watch),
    /// Of several moments the earliest counts, for [`Timer::Late`] the latest.
    Timer(Timer, Moment),
    Wake(Op),
    /// The servers have put another session in the place of ours. The driver drops the client and connects again.
    Replace,
    /// The session gives its client up. `is_clean`: all nodes are certainly gone.
    End {
        is_clean: bool,
    },
}

/// A session and everything that it holds and waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine<T> {
    /// The upper half of the guids of this session's nodes.
    pub nonce: u64,
    pub id: u64,
    pub timeout: Aside<u64>,
    pub session: Session,
    pub is_up: bool,
    pub trust: T,
    /// How many of the requests that renew trust are under way.
    pub renewing: u8,
    pub ops: BTreeMap<Op, Acquisition>,
    pub rows: BTreeMap<Path, Row>,
    pub leaving: BTreeMap<(Path, Name), Leaving>,
    pub out: Vec<Action>,
}

impl<T: Trust> Machine<T> {
    /// A session that is connected. `timeout` is in microseconds.
    pub fn new(session: u64, nonce: u64, timeout: u64, trust: T) -> Self {
        Self {
            nonce,
            id: session,
            timeout: Aside(timeout),
            session: Session::Open,
            is_up: true,
            trust,
            renewing: 0,
            ops: BTreeMap::new(),
            rows: BTreeMap::new(),
            leaving: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// Handles an event. The driver then carries [`actions`](Self::actions) out.
    pub fn handle(&mut self, now: Moment, event: Event) {
        match event {
            Event::Acquire { op, path, kind, waits } => self.acquire(now, op, path, kind, waits),
            Event::Release(op) => self.release(now, op),
            Event::Downgrade(op) => self.downgrade(op),
            Event::Abandon(op) => self.abandon(now, op),
            Event::Close => self.close(now),
            Event::Answer { ask, sent, is_stale, outcome } => self.answered(now, ask, sent, is_stale, outcome),
            Event::Fired { watch: Watch::Predecessor(op, name), is_deleted } => {
                self.predecessor_fired(now, op, name, is_deleted);
            }
            Event::Fired { watch: Watch::Own(op, name), is_deleted } => self.own_fired(now, op, name, is_deleted),
            Event::Connection(connection) => self.connection(now, connection),
            Event::Renewed { session, nonce } => self.renewed(now, session, nonce),
            Event::Timer(timer) => self.timer(now, timer),
        }
        self.end_if_clean();
    }

    fn answered(&mut self, now: Moment, ask: Ask, sent: Moment, is_stale: bool, outcome: Outcome) {
        // An answer over another connection proves nothing about this one.
        if !is_stale && outcome != Outcome::Unknown {
            // A server may refuse a write by itself.
            let is_refusal = matches!(outcome, Outcome::NoNode | Outcome::Refused | Outcome::DataRefused);
            self.trust.answered(ask.is_write() && !is_refusal, sent, now);
        }
        let is_fresh = !is_stale && self.trust.is_recent(sent, now);
        match ask {
            Ask::Create { op, path, guid, .. } => self.created(now, op, path, guid, is_fresh, outcome),
            Ask::Barrier { path, .. } => self.barred(path, is_stale, &outcome),
            Ask::List { path, .. } => self.listed(now, path, is_stale, is_fresh, outcome),
            Ask::Owner { op, path, name } => self.owner_known(now, op, path, name, outcome),
            Ask::Prove { op, name, .. } => self.proved(now, op, name, is_fresh, &outcome),
            Ask::Watch { op, name, .. } => self.watched(now, op, name, &outcome),
            Ask::WatchOwn { op, name, .. } => self.own_watched(now, op, name, &outcome),
            Ask::Delete { path, name, .. } => self.deleted(now, path, name, &outcome),
            Ask::Replace { op, path, name, guid } => self.replaced(now, op, path, name, guid, outcome),
            Ask::Read | Ask::Check => self.renewing -= 1,
        }
    }

    fn timer(&mut self, now: Moment, timer: Timer) {
        match timer {
            Timer::Resume => self.resume(now),
            Timer::Prove => self.prove_all(now),
            Timer::Late(path) => self.late(now, path),
            Timer::Tick => self.tick(now),
            Timer::TrustEnds => self.trust_ended(now),
            Timer::SlowLook => self.look_slowly(now),
            Timer::CloseBy => self.close_by(),
        }
    }

    /// What the driver has to do now.
    pub fn actions(&mut self) -> impl Iterator<Item = Action> + use<T> {
        std::mem::take(&mut self.out).into_iter()
    }

    /// An acquisition whose handle is alive.
    #[must_use]
    pub fn op(&self, op: Op) -> Option<&Acquisition> {
        self.ops.get(&op)
    }

    /// All acquisitions whose handles are alive.
    pub fn ops(&self) -> impl Iterator<Item = (Op, &Acquisition)> {
        self.ops.iter().map(|(op, one)| (*op, one))
    }

    fn stage(&self, op: Op) -> Option<Stage> {
        self.ops.get(&op).map(|one| one.stage)
    }

    fn send(&mut self, ask: Ask) {
        debug_assert!(self.is_up, "there is a connection");
        self.out.push(Action::Send(ask));
    }

    fn wake(&mut self, op: Op) {
        self.out.push(Action::Wake(op));
    }
}
