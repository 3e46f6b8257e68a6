//! Owns [`State`]: the log, and what each session and each of its tasks knows.
//!
//! 1. A connection is a queue of requests. A server answers in order: a read from what it has applied, a write once it has
//!    applied it. To be answered and to learn of it is one step, because a late answer is the same as a late server.
//! 2. Events of a transaction come when the session's server applies it, so before the answers to what follows.
//! 3. Sessions refer to nodes by czxid, and to their tasks by index within the session, so sessions that do the same can be
//!    exchanged.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use arrayvec::ArrayVec;
use stateright::Representative;

use crate::log::{Log, NOBODY, NODES, Zxid};
use crate::order::Kind;
use crate::scenario::{Budget, Scenario};

/// What a client has asked its server. `task` is an index within the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Create {
        task: u8,
        acquisition: u8,
    },
    /// The children, for a position.
    List {
        task: u8,
        acquisition: u8,
    },
    /// A transaction of one check: it changes nothing, and needs a quorum.
    Barrier {
        task: u8,
        acquisition: u8,
        grants: bool,
    },
    /// The children, for nodes with a guid. `late` for those that may have been left.
    Find {
        task: u8,
        acquisition: u8,
        late: bool,
    },
    /// `getData` with a watch on the predecessor.
    WatchPredecessor {
        task: u8,
        acquisition: u8,
        node: Zxid,
    },
    /// `getData` with a watch on our own node.
    WatchOwn {
        task: u8,
        acquisition: u8,
        node: Zxid,
    },
    /// `getData` with a watch on the path.
    WatchPath {
        task: u8,
        acquisition: u8,
    },
    Delete {
        node: Zxid,
    },
    /// A reader is created with the digits of a writer, which is deleted.
    Downgrade {
        task: u8,
        node: Zxid,
    },
}

impl Request {
    /// The node that it names.
    fn node_mut(&mut self) -> Option<&mut Zxid> {
        match self {
            Self::WatchPredecessor { node, .. }
            | Self::WatchOwn { node, .. }
            | Self::Delete { node }
            | Self::Downgrade { node, .. } => Some(node),
            Self::Create { .. }
            | Self::List { .. }
            | Self::Barrier { .. }
            | Self::Find { .. }
            | Self::WatchPath { .. } => None,
        }
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Create { .. } | Self::Barrier { .. } | Self::Delete { .. } | Self::Downgrade { .. })
    }
}

/// How a write ended at the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Done,
    NoNode,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InFlight {
    pub(crate) request: Request,
    /// Of a write that is committed: the transaction behind which it is answered, and its outcome.
    pub(crate) committed: Option<(Zxid, Outcome)>,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// The create is under way.
    Entering,
    /// The create has an unknown outcome; a search is under way.
    Searching,
    /// Our node is known; the listing is under way.
    Listing,
    /// Our node was not in the listing; a search is under way.
    Missing,
    /// The watch on the predecessor is under way.
    Watching,
    /// The predecessor is watched.
    Waiting,
    /// The predecessor is gone; the answer to the watch on our own node decides (item 4).
    AwaitingOwn,
    /// The predecessor was found to be a neighbour; the register was not asked yet (item 3).
    Deciding,
    /// The predecessor is a neighbour, whose release wakes us (item 3).
    InMemory,
    /// The neighbour was released; the answers to its delete and to the read of our own node decide (item 3).
    HandOver,
    /// First in the queue; the session has to prove itself.
    Proving,
    Holding,
    Releasing,
}

impl Phase {
    /// Whether it has a place in the queue, or is about to, and waits.
    pub(crate) fn waits(self) -> bool {
        !matches!(self, Self::Idle | Self::Holding | Self::Releasing)
    }
}

/// A watch on our own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnWatch {
    None,
    UnderWay,
    Armed,
    Fired,
}

/// The number that a create is expected to be given, if nobody has queued since our last node (item 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expectation {
    pub(crate) number: u8,
    /// Our last node, and how its delete was answered.
    pub(crate) last: Zxid,
    pub(crate) deleted: Option<Outcome>,
    /// Whether the watch on the path has stood since.
    pub(crate) armed: bool,
}

/// Our last node under the path (item 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Last {
    pub(crate) node: Zxid,
    pub(crate) number: u8,
    pub(crate) alone: bool,
    pub(crate) deleted: Option<Outcome>,
}

/// A watch on the path that stands (item 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Arm {
    /// Our node at that time.
    pub(crate) node: Zxid,
    /// Whether it is known to have been in the path then.
    pub(crate) proved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    pub(crate) kind: Kind,
    /// Sessions of the crate that share one session of the servers differ in this.
    pub(crate) link: u8,
    pub(crate) left: u8,
    pub(crate) acquisition: u8,
    pub(crate) phase: Phase,
    /// The czxid of our node, once it is known.
    pub(crate) own: Zxid,
    pub(crate) predecessor: Zxid,
    /// A create of this acquisition had an unknown outcome.
    pub(crate) uncertain: bool,
    /// The delete of a release was sent before.
    pub(crate) again: bool,
    /// A listing that came before our create was answered, of which `predecessor` is the last contender.
    pub(crate) early: bool,
    pub(crate) own_watch: OwnWatch,
    pub(crate) expects: Option<Expectation>,
    /// Our node was alone when it was granted.
    pub(crate) alone: bool,
    /// The event of the predecessor may grant without a listing.
    pub(crate) direct: bool,
}

impl Task {
    /// Leaves the queue, or what is left of it.
    pub(crate) fn finish(&mut self) {
        *self = Self { kind: self.kind, link: self.link, left: self.left, acquisition: self.acquisition, ..IDLE };
        if self.left == 0 {
            // What is over for good need not be kept apart.
            self.link = 0;
        }
    }
}

const IDLE: Task = Task {
    kind: Kind::Lock,
    link: 0,
    left: 0,
    acquisition: 0,
    phase: Phase::Idle,
    own: 0,
    predecessor: 0,
    uncertain: false,
    again: false,
    early: false,
    own_watch: OwnWatch::None,
    expects: None,
    alone: false,
    direct: false,
};

/// A write of a lost connection, which may still be applied.
pub(crate) type Ghost = Request;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    /// Which session of this client it is.
    pub(crate) life: u8,
    pub(crate) connected: bool,
    /// How much of the log its server has applied, or the last one had.
    pub(crate) seen: Zxid,
    /// Whether the client trusts it; and whether the servers may end it.
    pub(crate) trusted: bool,
    pub(crate) doubted: bool,
    /// The transaction that ended it; 0 while it lives.
    pub(crate) closed: Zxid,
    pub(crate) flight: ArrayVec<InFlight, 12>,
    pub(crate) ghosts: ArrayVec<Ghost, 6>,
    /// Guids whose nodes may be left: task and acquisition.
    pub(crate) late: ArrayVec<(u8, u8), 4>,
    pub(crate) tasks: ArrayVec<Task, 3>,
    pub(crate) arm: Option<Arm>,
    pub(crate) last: Option<Last>,
    /// The client does not notice the next session.
    pub(crate) orphan: bool,
}

/// Rules that were broken in a step; the others can be seen in a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Broken {
    pub(crate) order: bool,
    pub(crate) standing: bool,
    pub(crate) honest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) sessions: ArrayVec<Session, 3>,
    pub(crate) budget: Budget,
    pub(crate) broken: Broken,
}

impl State {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let sessions = scenario.sessions.iter().map(|tasks| Session {
            life: 0,
            connected: true,
            seen: 0,
            trusted: true,
            doubted: false,
            closed: 0,
            flight: ArrayVec::new(),
            ghosts: ArrayVec::new(),
            late: ArrayVec::new(),
            tasks: tasks
                .iter()
                .map(|one| Task { kind: one.kind, link: one.link, left: one.times, ..IDLE })
                .collect(),
            arm: None,
            last: None,
            orphan: false,
        });
        Self { log: Log::new(), sessions: sessions.collect(), budget: scenario.budget, broken: Broken::default() }
    }

    /// The session and the task of all that is under way.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = (usize, &Task)> {
        self.sessions
            .iter()
            .enumerate()
            .flat_map(|(index, session)| session.tasks.iter().map(move |task| (index, task)))
    }

    /// Whether a transaction means something to a session: only then does it matter whether its server has applied it.
    fn concerns(&self, session: &Session, at: Zxid) -> bool {
        let watched = |created: Zxid| {
            session.tasks.iter().any(|task| {
                (task.own == created && matches!(task.own_watch, OwnWatch::Armed | OwnWatch::UnderWay))
                    || (task.predecessor == created && task.phase == Phase::Waiting)
            })
        };
        session.closed == at
            || session.flight.iter().any(|one| one.committed.is_some_and(|(answered, _)| answered == at))
            || self.log.nodes.iter().any(|node| node.deleted == at && watched(node.created))
            || (session.arm.is_some() && self.log.remakes.iter().any(|remake| remake.at == at))
    }

    /// Brings states that have the same future together.
    ///
    /// 1. Nodes that are gone for everybody are forgotten, unless somebody still has one in mind. The Stat of the path needs
    ///    all of them.
    /// 2. Transactions that nobody refers to are forgotten, too: only the order of the others counts. So it is with the
    ///    numbers in names, unless the next one is expected or somebody chooses one.
    pub(crate) fn normalise(&mut self, counts: bool, chosen: bool) {
        if !counts {
            self.forget_nodes();
        }
        self.renumber_transactions();
        if !counts && !chosen {
            let mut numbers: ArrayVec<u8, NODES> = self.log.nodes.iter().map(|node| node.number).collect();
            numbers.sort_unstable();
            let rank = |number: u8| {
                let below = numbers
                    .iter()
                    .enumerate()
                    .filter(|(at, one)| **one < number && numbers[..*at].last() != Some(*one));
                below.count() as u8
            };
            self.log.counter = rank(self.log.counter);
            self.log.nodes.iter_mut().for_each(|node| (node.number, node.count) = (rank(node.number), 0));
        }
    }

    fn renumber_transactions(&mut self) {
        let mut used: u64 = 1 | 1 << self.log.end;
        self.each_zxid(&mut |at| used |= 1 << *at);
        let rank = |at: Zxid| (used & ((1 << at) - 1)).count_ones() as Zxid;
        self.each_zxid(&mut |at| *at = rank(*at));
        self.log.end = rank(self.log.end);
    }

    /// Every place where a transaction is named, but the end of the log.
    fn each_zxid(&mut self, visit: &mut impl FnMut(&mut Zxid)) {
        for node in &mut self.log.nodes {
            visit(&mut node.created);
            visit(&mut node.deleted);
        }
        self.log.remakes.iter_mut().for_each(|remake| visit(&mut remake.at));
        for session in &mut self.sessions {
            visit(&mut session.seen);
            visit(&mut session.closed);
            for one in &mut session.flight {
                one.request.node_mut().into_iter().for_each(&mut *visit);
                one.committed.iter_mut().for_each(|(at, _)| visit(at));
            }
            session.ghosts.iter_mut().filter_map(Request::node_mut).for_each(&mut *visit);
            session.arm.iter_mut().for_each(|arm| visit(&mut arm.node));
            session.last.iter_mut().for_each(|last| visit(&mut last.node));
            for task in &mut session.tasks {
                visit(&mut task.own);
                visit(&mut task.predecessor);
                task.expects.iter_mut().for_each(|expects| visit(&mut expects.last));
            }
        }
    }

    /// A server that has no read to answer next applies at once what does not concern the session: nobody would notice when
    /// it did.
    pub(crate) fn skip_what_concerns_nobody(&mut self) {
        for index in 0..self.sessions.len() {
            let session = &self.sessions[index];
            let reads_next = session.flight.first().is_some_and(|one| !one.request.is_write());
            // What is sent first when the connection is back, unless that is a write.
            let reads_later = |task: &Task| {
                matches!(
                    task.phase,
                    Phase::Listing
                        | Phase::Watching
                        | Phase::AwaitingOwn
                        | Phase::HandOver
                        | Phase::Searching
                        | Phase::Missing
                ) || task.own_watch == OwnWatch::UnderWay
            };
            if reads_next || (!session.connected && session.tasks.iter().any(reads_later)) {
                continue;
            }
            let mut seen = session.seen;
            while seen < self.log.end && !self.concerns(session, seen + 1) {
                seen += 1;
            }
            self.sessions[index].seen = seen;
        }
    }

    fn forget_nodes(&mut self) {
        let oldest = self.sessions.iter().map(|session| session.seen).min().unwrap_or_default();
        let Self { log, sessions, .. } = self;
        log.nodes.retain(|node| {
            node.stands()
                || node.deleted > oldest
                || sessions.iter().any(|session| {
                    let in_mind = |task: &Task| task.own == node.created || task.predecessor == node.created;
                    let asked =
                        |mut request: Request| request.node_mut().is_some_and(|asked| *asked == node.created);
                    session.tasks.iter().any(in_mind)
                        || session.flight.iter().any(|one| asked(one.request))
                        || session.ghosts.iter().any(|ghost| asked(*ghost))
                })
        });
    }
}

/// Sessions that do the same may be exchanged: the representative has them in an order of their contents. No content names
/// another session; only nodes name their owners.
impl Representative for State {
    fn representative(&self) -> Self {
        let mut keyed: ArrayVec<(u64, usize), 3> = ArrayVec::new();
        for (index, session) in self.sessions.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            session.hash(&mut hasher);
            // Nodes that their owner does not know of make a difference, too.
            let nodes = self.log.nodes.iter().filter(|node| usize::from(node.owner) == index);
            nodes.for_each(|node| node.created.hash(&mut hasher));
            keyed.push((hasher.finish(), index));
        }
        keyed.sort_unstable();
        let mut new = [0; 3];
        keyed.iter().enumerate().for_each(|(to, (_, from))| new[*from] = to as u8);
        let mut state = self.clone();
        for (to, (_, from)) in keyed.iter().enumerate() {
            state.sessions[to] = self.sessions[*from].clone();
        }
        let owned = state.log.nodes.iter_mut().filter(|node| node.owner != NOBODY);
        owned.for_each(|node| node.owner = new[usize::from(node.owner)]);
        state
    }
}
