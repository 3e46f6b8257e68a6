//! A client: the machine of a session, what is under way for it, and its users.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::alive::Alive;
use crate::machine::{Ask, Machine, Moment, Op, Outcome, Spec, Timer, Trust, Watch, caller_of};
use crate::server::Zxid;

/// A request that was sent, in the order of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) ask: Ask,
    pub(crate) sent: Moment,
    /// Over which connection, as its driver counts them.
    pub(crate) epoch: u16,
    /// Where its transaction is in the log, and its answer.
    pub(crate) committed: Option<(Zxid, Outcome)>,
}

impl Flight {
    pub(crate) fn answered(self, outcome: Outcome) -> Mail {
        Mail::Answer { ask: self.ask, sent: self.sent, epoch: self.epoch, outcome }
    }
}

/// What has come for a client, and nobody has read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mail {
    Answer { ask: Ask, sent: Moment, epoch: u16, outcome: Outcome },
    Fired(Watch),
}

impl Mail {
    /// The acquisition that it is read with; none for the session's own.
    pub(crate) fn op(&self) -> Option<Op> {
        match self {
            Self::Answer { ask, .. } => ask.op(),
            Self::Fired(Watch::Predecessor(op, ..) | Watch::Own(op, ..)) => Some(caller_of(*op)),
            Self::Fired(Watch::Path(_)) => None,
        }
    }

    /// Over which connection an answer came.
    pub(crate) fn epoch(&self) -> Option<u16> {
        if let Self::Answer { epoch, .. } = self { Some(*epoch) } else { None }
    }

    pub(crate) fn ask(&mut self) -> Option<&mut Ask> {
        if let Self::Answer { ask, .. } = self { Some(ask) } else { None }
    }

    pub(crate) fn outcome(&mut self) -> Option<&mut Outcome> {
        if let Self::Answer { outcome, .. } = self { Some(outcome) } else { None }
    }

    /// Whether a watch is known only when this has been read.
    fn sets(&self, watch: &Watch) -> bool {
        matches!(self, Self::Answer { ask, .. } if watch_of(ask) == Some(*watch))
    }
}

/// The watch that a request sets.
pub(crate) fn watch_of(ask: &Ask) -> Option<Watch> {
    match *ask {
        Ask::List { path, watches: true, .. } => Some(Watch::Path(path)),
        Ask::Watch { op, path, name } => Some(Watch::Predecessor(op, path, name)),
        Ask::WatchOwn { op, path, name } => Some(Watch::Own(op, path, name)),
        _ => None,
    }
}

/// A user: it locks, holds and releases, several times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct User {
    pub(crate) spec: Arc<Spec>,
    /// A writer that holds may become a reader.
    pub(crate) downgrades: bool,
    /// How long it holds, where time passes, and until when.
    pub(crate) keeps: u64,
    pub(crate) done_at: Moment,
    pub(crate) left: u8,
    /// How many acquisitions it has made.
    pub(crate) count: u8,
    pub(crate) op: Option<Op>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client<T> {
    pub(crate) machine: Machine<T>,
    pub(crate) session: u64,
    /// Sessions that the client has given up, and that live on.
    pub(crate) orphans: Vec<u64>,
    /// The session that a server has put in the place of ours.
    pub(crate) foreign_session: Option<u64>,
    /// A connection since our session began was of another one.
    pub(crate) met_foreign_session: bool,
    pub(crate) is_up: bool,
    /// Its users have closed the session.
    pub(crate) is_closed: bool,
    /// Its server is cut off from the others: it answers reads, and passes nothing on.
    pub(crate) is_cut_off: bool,
    pub(crate) alive: Alive,
    pub(crate) seen: Zxid,
    /// The transaction that ended its session.
    pub(crate) closed: Zxid,
    pub(crate) flight: VecDeque<Flight>,
    /// What has come and was not read, in the order in which it came. Where time passes, that is all that comes, and each
    /// acquisition reads its own whenever it runs. Else it is what came before a cut.
    pub(crate) mail: Vec<Mail>,
    /// How often its driver has seen the connection end.
    pub(crate) epoch: u16,
    /// The connection has changed, and its driver has not looked.
    pub(crate) is_news: bool,
    /// When its driver last saw the connection stand.
    pub(crate) last_seen_up: Moment,
    /// Requests of a lost connection that may be applied yet, and their sessions.
    pub(crate) ghosts: VecDeque<(Ask, u64)>,
    /// And the transaction that created the node, or before which a path was read.
    pub(crate) watches: Vec<(Watch, Zxid)>,
    pub(crate) users: Vec<User>,
}

impl<T: Trust> Client<T> {
    pub(crate) fn new(session: u64, timeout: u64, trust: T, users: Vec<User>) -> Self {
        Self {
            machine: Machine::new(session, session, timeout, trust),
            session,
            orphans: Vec::new(),
            foreign_session: None,
            met_foreign_session: false,
            is_up: true,
            is_closed: false,
            is_cut_off: false,
            alive: Alive::new(timeout, session),
            seen: 0,
            closed: 0,
            flight: VecDeque::new(),
            mail: Vec::new(),
            epoch: 0,
            is_news: false,
            last_seen_up: Moment(0),
            ghosts: VecDeque::new(),
            watches: Vec::new(),
            users,
        }
    }

    /// Whether it has anything to lose.
    pub(crate) fn is_busy(&self) -> bool {
        self.machine.ops().next().is_some() || !self.machine.is_clean() || !self.flight.is_empty()
    }

    /// Whether an answer of the same acquisition has to be read before the first answer under way.
    pub(crate) fn is_behind_a_late_answer(&self) -> bool {
        self.flight.front().is_some_and(|first| self.mail.iter().any(|one| one.op() == first.ask.op()))
    }

    /// Whose mail can be read.
    pub(crate) fn readers(&self, is_timed: bool) -> Vec<Option<Op>> {
        if !is_timed {
            return self.mail.first().map(Mail::op).into_iter().collect();
        }
        let mut readers: Vec<Option<Op>> = self.mail.iter().map(Mail::op).collect();
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// The mail that an acquisition can read now: answers, and the events of watches whose answers were read.
    fn known_mail(&self, op: Option<Op>) -> impl Iterator<Item = usize> {
        let is_known = |at: usize| match &self.mail[at] {
            Mail::Fired(watch) => !self.mail[..at].iter().any(|one| one.sets(watch)),
            Mail::Answer { .. } => true,
        };
        (0..self.mail.len()).filter(move |at| self.mail[*at].op() == op && is_known(*at))
    }

    /// What an acquisition reads next, in the order of the driver. Any other order holds as well, because everything is read
    /// before a grant is taken.
    pub(crate) fn next_mail(&mut self, op: Option<Op>) -> Option<Mail> {
        let at = self.known_mail(op).min_by_key(|at| matches!(self.mail[*at], Mail::Fired(_)))?;
        Some(self.mail.remove(at))
    }

    /// Requests are lost with their connection. Those that change something may be applied yet.
    pub(crate) fn lose<'a>(&mut self, lost: impl IntoIterator<Item = &'a Flight>) {
        let may_be_applied = |one: &&'a Flight| {
            one.committed.is_none()
                && matches!(one.ask, Ask::Create { .. } | Ask::Delete { .. } | Ask::Replace { .. })
        };
        if self.closed == 0 {
            let owner = self.owner();
            self.ghosts.extend(lost.into_iter().filter(may_be_applied).map(|one| (one.ask.clone(), owner)));
        }
    }

    /// All that belongs to a session which the client has no more.
    pub(crate) fn forget_session(&mut self) {
        (self.is_up, self.is_cut_off, self.is_news) = (false, false, false);
        self.flight.clear();
        self.mail.clear();
        self.watches.clear();
        self.last_seen_up = Moment(0);
        self.alive.forget();
    }

    /// When something is due by the clock.
    pub(crate) fn due(&self) -> Vec<Moment> {
        let wakes_at = self.alive.wakes_at();
        let is_cut = !self.is_up || self.is_cut_off;
        let ends = is_cut.then_some(self.alive.lasts_until);
        let is_silent = is_cut || wakes_at.is_some() || self.foreign_session.is_some();
        let expires_at = (is_silent && self.closed == 0).then(|| self.alive.expires_at());
        let own = self.machine.timers.set.values().copied().chain(self.users.iter().map(|user| user.done_at));
        let ends_by = self.alive.ends_by().filter(|_| self.closed == 0);
        own.filter(|_| wakes_at.is_none()).chain(wakes_at).chain(ends).chain(expires_at).chain(ends_by).collect()
    }

    /// What its users do, from the beginning.
    pub(crate) fn program(&self) -> Vec<(Arc<Spec>, bool)> {
        self.users.iter().map(|user| (Arc::clone(&user.spec), user.downgrades)).collect()
    }

    /// Its driver looks at the connection.
    pub(crate) fn look(&mut self, now: Moment) {
        if self.is_up && self.machine.is_up && !self.is_news {
            self.last_seen_up = now;
        }
    }

    /// Whether the session of its connection lives.
    pub(crate) fn is_served(&self) -> bool {
        self.closed == 0 || self.foreign_session.is_some()
    }

    /// The session that its connection belongs to.
    pub(crate) fn owner(&self) -> u64 {
        self.foreign_session.unwrap_or(self.session)
    }

    /// Where no time passes, timers fire at any moment, or as steps of the world.
    pub(crate) fn forget_times(&mut self) {
        let timers = std::mem::take(&mut self.machine.timers);
        for (timer, at) in timers.set {
            let is_kept = match timer {
                Timer::Tick | Timer::Renew | Timer::ListOwn | Timer::FallbackPoll => false,
                Timer::TrustEnds => at == Moment(0),
                _ => true,
            };
            if is_kept {
                self.machine.timers.set(timer, Moment(0));
            }
        }
    }
}
