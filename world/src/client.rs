//! A client: the machine of a session, what is under way for it, and its users.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::machine::{Admission, Ask, Machine, Moment, Op, Outcome, Path, Spec, Timer, Trust, Watch};
use crate::server::Zxid;

/// A request that was sent, in the order of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) ask: Ask,
    pub(crate) sent: Moment,
    /// Where its transaction is in the log, and its answer.
    pub(crate) committed: Option<(Zxid, Outcome)>,
}

/// A user: it locks, holds and releases, several times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct User {
    pub(crate) spec: Arc<Spec>,
    /// Where a user of a semaphore queues for its turn.
    pub(crate) turns: Option<Path>,
    /// A writer that holds may become a reader.
    pub(crate) downgrades: bool,
    pub(crate) left: u8,
    /// How many acquisitions it has made.
    pub(crate) count: u8,
    pub(crate) op: Option<Op>,
    /// The acquisition of its turn.
    pub(crate) turn: Option<Op>,
}

impl User {
    /// The first attempt of a semaphore's user takes no turn.
    pub(crate) fn in_one_request(&self) -> Option<Arc<Spec>> {
        let Admission::Room { limit, .. } = self.spec.admission else { return None };
        let admission = Admission::Room { limit, turn: Some(self.turns?) };
        Some(Arc::new(Spec { admission, ..Spec::clone(&self.spec) }))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client<T> {
    pub(crate) machine: Machine<T>,
    pub(crate) session: u64,
    /// Sessions that the client has given up, and that live on.
    pub(crate) orphans: Vec<u64>,
    /// The session that a server has put in the place of ours.
    pub(crate) stranger: Option<u64>,
    pub(crate) is_up: bool,
    /// Its server is cut off from the others: it answers reads, and passes nothing on.
    pub(crate) is_cut_off: bool,
    pub(crate) touched: Moment,
    pub(crate) seen: Zxid,
    /// The transaction that ended its session.
    pub(crate) closed: Zxid,
    pub(crate) flight: VecDeque<Flight>,
    /// Answers that came before a cut, and that nobody has read yet.
    pub(crate) late: VecDeque<(Ask, Moment, Outcome)>,
    /// Requests of a lost connection that may be applied yet, and their sessions.
    pub(crate) ghosts: VecDeque<(Ask, u64)>,
    /// And the transaction that created the node, or before which a path was read.
    pub(crate) watches: Vec<(Watch, Zxid)>,
    pub(crate) timers: BTreeMap<Timer, Moment>,
    pub(crate) users: Vec<User>,
}

impl<T: Trust> Client<T> {
    pub(crate) fn new(session: u64, timeout: u64, trust: T, users: Vec<User>) -> Self {
        Self {
            machine: Machine::new(session, session, timeout, trust),
            session,
            orphans: Vec::new(),
            stranger: None,
            is_up: true,
            is_cut_off: false,
            touched: Moment(0),
            seen: 0,
            closed: 0,
            flight: VecDeque::new(),
            late: VecDeque::new(),
            ghosts: VecDeque::new(),
            watches: Vec::new(),
            timers: BTreeMap::new(),
            users,
        }
    }

    /// Whether it has anything to lose.
    pub(crate) fn is_busy(&self) -> bool {
        self.machine.ops().next().is_some() || !self.machine.is_clean() || !self.flight.is_empty()
    }

    /// Whether an answer of the same acquisition has to be read before the first answer under way.
    pub(crate) fn is_behind_a_late_answer(&self) -> bool {
        self.flight.front().is_some_and(|first| self.late.iter().any(|(ask, ..)| ask.op() == first.ask.op()))
    }

    /// What its users do, from the beginning.
    pub(crate) fn program(&self) -> Vec<(Arc<Spec>, Option<Path>, bool)> {
        self.users.iter().map(|user| (Arc::clone(&user.spec), user.turns, user.downgrades)).collect()
    }

    /// The session that its connection belongs to.
    pub(crate) fn owner(&self) -> u64 {
        self.stranger.unwrap_or(self.session)
    }

    /// Sets a timer as a driver does.
    pub(crate) fn set(&mut self, timer: Timer, at: Moment) {
        let before = self.timers.entry(timer).or_insert(at);
        *before = if matches!(timer, Timer::Late(_)) { at.max(*before) } else { at.min(*before) };
    }
}
