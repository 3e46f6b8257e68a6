//! The machine under its lock, with what it has under way: requests, watches and timers.
//!
//! 1. Requests are sent before the lock is released: the first poll of a client's future sends it.
//! 2. The answers of one acquisition are read in the order in which they were asked for; only the first is polled. Its caller polls it,
//!    while there is one, and else the driver.
//! 3. Before anything else is handled, the state of the connection is. So an answer is never taken for one of a connection that it
//!    did not come over.
//! 4. No user code runs under the lock. Callers are woken, and wakers, spans and holds dropped, after it is released: see
//!    [`StateGuard`]. Log events and metrics are left to [`Reports`].
//! 5. A panic under the lock ends the session: its state may be torn, so nothing is granted any more, and all holds are lost.

use std::collections::{HashMap, VecDeque};
use std::error::Error as _;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_client::{Client, EventType, OneshotWatcher, SessionId, SessionState};

use crate::clock::{micros, now};
use crate::driver::budget::{Budget, Reservation};
use crate::driver::draft::Draft;
use crate::driver::entry::{Entry, Flight, HoldListener, Next, OpWaker, Ready, Watching};
use crate::driver::names::{self, Paths};
use crate::driver::progress::Progress;
use crate::driver::reports::{JOURNAL, Reports};
use crate::driver::wire::{self, Answer, Answered};
use crate::error::Error;
use crate::locked::locked;
use crate::machine::{
    Action, Ask, Connection, Event, HoldState, Kind, Ledger, Life, Loss, Machine, Moment, Name, Op, Outcome, Path,
    Phase, SESSION, Timer, Watch, caller_of, is_turn, turn_of,
};
use crate::options::REVOKE;
use crate::session::state_changes::StateChanges;

/// After this number of session timeouts behind one node a waiter asks whether it is there.
const LONG_WAIT: u64 = 10;

/// The longest time between two looks at whether the process runs, in microseconds.
const LONGEST_BEAT: u64 = 1_000_000;

/// A predecessor of another client may have a name that is longer than ours by this. One that is longer is not watched.
const LONGER_NAME: usize = 128;

/// Why a session ended without having been closed.
pub(super) const ORPHANED: &str = "the runtime that it ran on is gone, or a task of it has panicked";

/// The same for a panic under the lock.
const TORN: &str = "a panic has left its state torn; please report it";

pub(super) fn ended(reason: impl Into<String>) -> Error {
    Error::SessionEnded { reason: reason.into() }
}

/// What is known of the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Its nodes are gone, and the session is or will be.
    Confirmed,
    /// Its nodes are gone, but for those that may not be deleted, and the session lives for as long as somebody has a clone
    /// of its client.
    ClientKept,
    /// The servers could not be asked.
    Unconfirmed,
}

/// A session: the machine, and one task.
pub(crate) struct Core {
    state: Mutex<State>,
    pub(super) ready: Arc<Ready>,
    pub(crate) reports: Arc<Reports>,
    /// Notifies of each change of the connection and of the session's life, and of the end of its task.
    pub(crate) changes: watch::Sender<()>,
    /// How often the state was locked.
    #[cfg(test)]
    pub(super) locks: std::sync::atomic::AtomicUsize,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// Who reads the answers of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The caller polls right after this, so it need not be woken.
    Caller,
    Driver,
}

/// A session that is not connected yet.
impl Default for Machine<Ledger> {
    fn default() -> Self {
        Self::unconnected(nonce(), Ledger::new(0, None, Moment(0)))
    }
}

/// What the lock guards.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) machine: Machine<Ledger>,
    pub(crate) client: Option<Arc<Client>>,
    /// The client has been handed out, so that a clone of it may keep the session open.
    pub(crate) is_client_shared: bool,
    pub(super) paths: Paths,
    pub(super) budget: Budget,
    /// The bytes of the chroot, which the servers count with every path.
    root_bytes: usize,
    /// Counts connections: an answer to a request of an earlier one is stale.
    epoch: u64,
    /// Counts sessions: an answer to a request of an earlier one is for nobody.
    pub(crate) generation: u64,
    /// Of the ZooKeeper session, while there is one, connected or not.
    pub(crate) connection: Option<StateChanges>,
    /// When the connection was last seen to stand; the clock was read before that look. The request that takes the session
    /// back is sent later.
    stood_at: Moment,
    entries: HashMap<Op, Entry>,
    next: Op,
    /// The acquisition that its caller is reading.
    reading: Option<Op>,
    /// When the driver looks at the timers next, without being woken.
    wakes_at: Moment,
    /// Why there will be no other session.
    pub(crate) error: Option<Error>,
    /// What is known of the end of the last session, when the task has ended.
    pub(crate) closing: Option<Closing>,
    /// How many tasks keep nodes that are to be deleted before the session is over.
    pub(crate) kept: usize,
    /// The servers refuse the credentials; they are tried again.
    pub(crate) is_refused: bool,
    /// The runtime of the client is gone.
    pub(super) is_orphaned: bool,
    /// Why the last listing of a path was refused.
    refused: HashMap<Path, Error>,
    /// How many nodes the metrics count as being cleaned up.
    in_cleanup: usize,
    /// Somebody wants the journal.
    is_journaled: bool,
    /// They ask a quorum for nodes behind which waiters have waited for long.
    stuck_checks: JoinSet<()>,
    pub(super) reports: Arc<Reports>,
    deferred: Deferred,
}

/// The answer to a listing while it is polled without the lock. If its reader panics, it counts as lost.
struct Taken<'a> {
    core: &'a Arc<Core>,
    op: Op,
    generation: u64,
    sent: Moment,
    answer: Option<Answer>,
}

impl Taken<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answered> {
        self.answer.as_mut().map_or(Poll::Pending, |answer| answer.poll_unpin(cx))
    }

    /// The requests of the acquisition, if the listing is still the first of them.
    fn flights<'s>(&self, state: &'s mut State) -> Option<&'s mut VecDeque<Flight>> {
        let is_present = state.generation == self.generation;
        let flights = &mut state.entries.get_mut(&self.op).filter(|_| is_present)?.flights;
        flights.front().filter(|first| first.answer.is_none() && first.sent == self.sent)?;
        Some(flights)
    }

    /// Leaves the answer to the next reader.
    fn put_back(&self, state: &mut State, answer: Answer) {
        let Some(listing) = self.flights(state).and_then(VecDeque::front_mut) else { return };
        listing.answer = Some(answer);
        if listing.is_missed {
            state.wake(self.op);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.answer.take().is_some() {
            let mut state = self.core.lock();
            self.put_back(&mut state, std::future::ready(Outcome::Unknown.into()).boxed());
            state.wake(self.op);
        }
    }
}

/// What is done when the lock is released.
#[derive(Default)]
struct Deferred {
    wakers: Vec<Arc<OpWaker>>,
    ready: Vec<Op>,
    placed: Vec<(Arc<Progress>, usize)>,
    changed: Vec<(Arc<dyn HoldListener>, HoldState)>,
    seen: Vec<(Arc<dyn HoldListener>, Vec<u8>)>,
    /// Dropping an entry may run the user's code, for example that of a waker.
    dropped: Vec<Entry>,
    listeners: Vec<Arc<dyn HoldListener>>,
    callers: Vec<Waker>,
    is_driver: bool,
    is_session: bool,
}

impl Deferred {
    /// Whether nobody is woken or informed.
    fn is_empty(&self) -> bool {
        let Self {
            wakers,
            ready: _,
            placed,
            changed,
            seen,
            dropped,
            listeners,
            callers,
            is_driver: _,
            is_session,
        } = self;
        let is_quiet = wakers.is_empty() && placed.is_empty() && changed.is_empty() && seen.is_empty();
        is_quiet && dropped.is_empty() && listeners.is_empty() && callers.is_empty() && !is_session
    }
}

/// The state under its lock. When it is dropped, the lock is released first, and then those are woken that have to be.
pub(crate) struct StateGuard<'a> {
    core: &'a Core,
    state: Option<MutexGuard<'a, State>>,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_deref().expect("it is locked until it is dropped")
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_deref_mut().expect("it is locked until it is dropped")
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let (deferred, session) = (std::mem::take(&mut self.deferred), self.machine.session_id());
        self.state = None;
        let Deferred { wakers, ready, placed, changed, seen, dropped, listeners, callers, is_driver, is_session } =
            deferred;
        if !ready.is_empty() {
            self.core.ready.extend(ready);
        }
        placed.into_iter().for_each(|(progress, ahead)| progress.ahead(ahead));
        let losses: Vec<Loss> = changed.iter().filter_map(|(listener, state)| listener.warns_of(*state)).collect();
        let are_many = losses.len() > 1;
        if let Some(loss) = losses.first().copied().filter(|_| are_many) {
            let (count, session) = (losses.len(), SessionId(session.cast_signed()));
            self.core.reports.push(move || {
                tracing::warn!(%session, count, %loss, cause = loss.as_str(), "locks of a session are lost");
            });
        }
        changed.iter().for_each(|(listener, state)| listener.changed(*state, are_many));
        seen.iter().for_each(|(listener, data)| listener.saw(data));
        wakers.into_iter().for_each(Wake::wake);
        if is_driver {
            self.core.ready.driver.notify_one();
        }
        if is_session {
            self.core.changes.send_replace(());
        }
        // Dropping the last reference to a hold closes its span, and dropping a waker runs user code, so both come last.
        self.core.reports.flush();
        drop((dropped, listeners, callers));
    }
}

impl Core {
    /// A session that is not connected yet.
    pub(crate) fn new() -> Arc<Self> {
        let reports = Arc::<Reports>::default();
        // `replay` needs the journal from its first entry on.
        reports.ask_for_journal();
        let state = Mutex::new(State { reports: Arc::clone(&reports), ..State::default() });
        let core = Arc::new(Self {
            state,
            ready: Arc::default(),
            reports,
            changes: watch::Sender::new(()),
            #[cfg(test)]
            locks: Default::default(),
        });
        core.lock().entries.insert(SESSION, Entry::new(&core.ready, SESSION, Arc::default()));
        core.lock().note(now, &format_args!("Begin"));
        core
    }

    pub(crate) fn lock(&self) -> StateGuard<'_> {
        #[cfg(test)]
        self.locks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut torn = false;
        let mut state = self.state.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            self.state.clear_poison();
            torn = true;
            poisoned.into_inner()
        });
        state.is_journaled = self.reports.is_journaled();
        if torn {
            state.fail();
        }
        StateGuard { core: self, state: Some(state) }
    }

    /// Has something logged or counted, by code of the user's.
    pub(super) fn report(&self, report: impl FnOnce() + Send + 'static) {
        self.reports.push(report);
        self.reports.flush();
    }

    /// The state under its lock, with what has happened to the connection: right also for the first look after a pause.
    pub(crate) fn look(self: &Arc<Self>) -> StateGuard<'_> {
        let mut state = self.lock();
        self.connection(&mut state);
        state
    }

    /// Gives an acquisition its number and its entry, with its waker, before its first event. Fails if there is no room for
    /// its nodes. Handle no change of the connection between this and that event: the end of a session drops entries that
    /// the machine does not know.
    pub(super) fn begin(
        self: &Arc<Self>,
        state: &mut State,
        draft: &Arc<Draft>,
        progress: Option<Arc<Progress>>,
    ) -> Result<Op, Error> {
        let _node_room = Some(state.budget.nodes(draft.node_bytes(state.root_bytes), &self.reports)?);
        let turn_bytes = draft.permits.as_ref().map(|permits| permits.turn.node_bytes(state.root_bytes));
        let turn_room = turn_bytes.map(|bytes| state.budget.nodes(bytes, &self.reports)).transpose()?;
        // The counter may come round to a call that is still there.
        while state.next == SESSION || state.entries.contains_key(&state.next) {
            state.next = caller_of(state.next.wrapping_add(1));
        }
        let op = state.next;
        state.next = caller_of(state.next.wrapping_add(1));
        state.entries.insert(
            op,
            Entry { progress, _node_room, turn_room, ..Entry::new(&self.ready, op, Arc::clone(draft)) },
        );
        Ok(op)
    }

    /// Handles an event. What it asks for is sent before this returns.
    pub(crate) fn handle(self: &Arc<Self>, state: &mut State, event: Event) {
        self.connection(state);
        self.decide(state, event);
    }

    /// Handles an event for a caller that has had the lock since it looked at the connection.
    pub(super) fn decide(self: &Arc<Self>, state: &mut State, event: Event) {
        let (life, was_up, at) = (state.machine.life(), state.machine.is_connected(), now());
        state.note(|| at, &event);
        state.machine.handle(at, event);
        state.count_connected(was_up);
        if life != state.machine.life() {
            (state.deferred.is_driver, state.deferred.is_session) = (true, true);
        }
        self.act(state);
    }

    /// Ends a hold whose time is over. It does nothing else that is due, because its caller may have no runtime.
    pub(crate) fn end_hold(self: &Arc<Self>, state: &mut State, op: Op, at: Moment) {
        for timer in [Timer::TrustEnds, Timer::Limit(op)] {
            if state.machine.is_due(timer, at) {
                self.handle(state, Event::Timer(timer));
            }
        }
    }

    /// Handles what has happened to the connection. Of several changes only the last is known: there were others before it.
    pub(crate) fn connection(self: &Arc<Self>, state: &mut State) {
        // The task looks when the next one comes.
        let waker = Waker::from(Arc::clone(&self.ready));
        let mut cx = Context::from_waker(&waker);
        // The clock is read before the look: after a pause between the two, the moment is too early and not too late.
        let at = now();
        while let Some(Poll::Ready(changed)) = state.connection.as_mut().map(|changes| changes.poll(&mut cx)) {
            self.changed(state, changed);
        }
        if state.machine.is_connected() && state.connection.is_some() {
            state.stood_at = at;
        }
    }

    fn changed(self: &Arc<Self>, state: &mut State, changed: SessionState) {
        state.deferred.is_session = true;
        if state.machine.is_connected() {
            state.epoch += 1;
            self.decide(state, Event::Connection(Connection::Down));
        }
        match changed {
            SessionState::SyncConnected => {
                let since = state.stood_at;
                self.decide(state, Event::Connection(Connection::Up { since }));
            }
            // A read-only server cannot take a lock.
            SessionState::Disconnected | SessionState::ConnectedReadOnly => {}
            SessionState::AuthFailed => {
                state.is_refused = true;
                self.expire(state);
            }
            SessionState::Expired | SessionState::Closed => self.expire(state),
        }
    }

    /// The session is over: its requests, watches and timers go with it.
    pub(crate) fn expire(self: &Arc<Self>, state: &mut State) {
        // The client stays for all that ask for it.
        state.connection = None;
        state.drop_flights();
        state.epoch += 1;
        self.decide(state, Event::Connection(Connection::Expired));
        if state.machine.is_attached() {
            state.error.get_or_insert_with(|| ended("it has expired, and an attached session is not renewed"));
        }
        (state.deferred.is_driver, state.deferred.is_session) = (true, true);
    }

    /// The next session is there, or the first. `created`: it was created then, or later; of one that was given, nothing is known.
    pub(crate) fn renew(self: &Arc<Self>, state: &mut State, client: Client, created: Option<Moment>) {
        let session = client.session_id().0.cast_unsigned();
        let timeout = micros(client.session_timeout());
        state.is_refused = false;
        state.is_client_shared = created.is_none();
        // The root is `/`, and a chroot ends in none.
        state.root_bytes = client.path().trim_end_matches('/').len();
        let at = now();
        let (first, changes) = StateChanges::new(client.state_watcher());
        // While there is no connection, the request for the next one may be on its way.
        state.stood_at = if first == SessionState::SyncConnected { at } else { Moment::default() };
        (state.client, state.connection) = (Some(Arc::new(client)), Some(changes));
        self.decide(state, Event::Renewed { session, nonce: nonce(), created, timeout });
        // What has happened since it connected is seen now.
        if first != SessionState::SyncConnected {
            self.changed(state, first);
        }
    }

    fn act(self: &Arc<Self>, state: &mut State) {
        loop {
            let actions: Vec<Action> = state.machine.actions().collect();
            if actions.is_empty() {
                break;
            }
            if state.is_journaled {
                let (core, actions) = (state.address(), format!("{actions:?}"));
                state.reports.push(move || tracing::trace!(target: JOURNAL, core, %actions));
            }
            for action in actions {
                match action {
                    Action::Send(ask) => self.send(state, ask),
                    Action::Unwatch(watch) => state.unwatch(&watch),
                    Action::Wake(op) => state.wake_all(op),
                    Action::Placed(op) => state.placed(op),
                    Action::Forget => state.forget_paths(),
                    Action::Replace => {
                        // What is under way belongs to no session of ours.
                        state.drop_flights();
                        state.deferred.is_driver = true;
                    }
                    // The task sees that the session is over.
                    Action::End { .. } => {}
                }
            }
        }
        state.deferred.is_driver |= state.machine.next_deadline().is_some_and(|at| at < state.wakes_at);
        state.count_cleanup(state.machine.deleting());
    }

    fn send(self: &Arc<Self>, state: &mut State, ask: Ask) {
        let Some(client) = state.client.clone() else { return };
        let op = ask.op().unwrap_or(SESSION);
        let acquisition = ask.acquisition();
        let czxid = acquisition.and_then(|op| state.machine.op(op)).map_or(0, |one| one.czxid.0);
        let room = state.reserve_room(op, &ask);
        if room.is_ok() {
            self.reports.requested(wire::name(&ask));
        }
        let entry = state.entries.entry(op).or_insert_with(|| Entry::new(&self.ready, op, Arc::default()));
        let (mut answer, room) = match (room, &ask) {
            (Err(outcome), _) => (std::future::ready(outcome.into()).boxed(), None),
            (Ok(None), Ask::WatchOwn { path, name, .. }) => {
                (wire::look(&client, &state.paths, *path, *name), None)
            }
            (Ok(room), _) => {
                let draft = entry.draft.of(acquisition);
                (wire::send(&client, &mut state.paths, &ask, draft, czxid), room)
            }
        };
        // Trust counts from when a request was sent, so the clock is read before that.
        let sent = now();
        // The first poll sends it. No server has answered so early, but it may have failed.
        let waker = entry.waker();
        let answered = answer.poll_unpin(&mut Context::from_waker(&waker));
        let has_failed = answered.is_ready();
        if let Poll::Ready(answered) = answered {
            answer = std::future::ready(answered).boxed();
        }
        let (epoch, generation) = (state.epoch, state.generation);
        entry.flights.push_back(Flight {
            ask,
            sent,
            epoch,
            generation,
            answer: Some(answer),
            is_missed: false,
            room,
        });
        if has_failed {
            state.wake(op);
        }
    }

    /// Reads everything that has come for an acquisition. The lock is released while a listing is decoded.
    pub(crate) fn read<'a>(
        self: &'a Arc<Self>,
        mut state: StateGuard<'a>,
        op: Op,
        reader: Reader,
    ) -> StateGuard<'a> {
        loop {
            self.read_ready(&mut state, op, reader);
            if !state.deferred.is_empty() && state.entries.get(&op).is_some_and(Entry::has_listing) {
                // Deferred work, such as waking callers, runs the user's code, which may block. So it is done before the
                // listing is taken: other readers wait for a taken one.
                drop(state);
                state = self.look();
            }
            let generation = state.generation;
            let taken = state.entries.get_mut(&op).and_then(Entry::take_listing);
            let Some((answer, sent, waker)) = taken else { return state };
            let mut listing = Taken { core: self, op, generation, sent, answer: Some(answer) };
            drop(state);
            let polled = listing.poll(&mut Context::from_waker(&waker));
            state = self.look();
            let answer = listing.answer.take();
            let Poll::Ready(answered) = polled else {
                answer.into_iter().for_each(|answer| listing.put_back(&mut state, answer));
                return state;
            };
            let Some(flight) = listing.flights(&mut state).and_then(VecDeque::pop_front) else { return state };
            let before = state.read_by(op, reader);
            self.answered(&mut state, flight, answered);
            state.reading = before;
        }
    }

    /// Reads what is ready, but for listings.
    fn read_ready(self: &Arc<Self>, state: &mut State, op: Op, reader: Reader) {
        let before = state.read_by(op, reader);
        while let Some(next) = state.entries.get_mut(&op).and_then(Entry::next) {
            match next {
                Next::Fired((watch, is_deleted)) => self.handle(state, Event::Fired { watch, is_deleted }),
                Next::Answered(flight, answered) => self.answered(state, flight, answered),
            }
        }
        state.reading = before;
    }

    fn answered(self: &Arc<Self>, state: &mut State, flight: Flight, mut answered: Answered) {
        let Flight { ask, sent, epoch, generation, room, .. } = flight;
        self.connection(state);
        state.is_orphaned |= answered.is_orphaned;
        state.deferred.is_driver |= state.is_orphaned;
        if let Ask::List { path, .. } = &ask {
            state.refused.remove(path);
            self.read_creates(state, *path, sent);
        }
        if generation != state.generation {
            return;
        }
        let op = ask.op().unwrap_or(SESSION);
        if let Some(entry) = state.entries.get_mut(&op) {
            entry.bound(&ask, &mut answered);
            if matches!(answered.outcome, Outcome::Created { .. }) {
                // What was lost before is no reason any more.
                entry.refusal = None;
                let is_for_turn = ask.acquisition().is_some_and(is_turn);
                entry.asked_back.retain(|name| !is_for_turn && is_turn(name.guid_op()));
            }
            match (answered.refusal.take(), &ask) {
                (Some(refusal), Ask::List { path, .. }) => drop(state.refused.insert(*path, refusal)),
                (Some(refusal), Ask::Delete { nodes, .. }) => {
                    if let ([node], Outcome::Refused) = (&**nodes, &answered.outcome)
                        && !state.machine.is_refused(*node)
                    {
                        let (node, error) = (names::own(&state.paths.text(node.0), node.1), refusal.clone());
                        state.reports.push(move || {
                            let error = error.source().map(ToString::to_string).unwrap_or_default();
                            tracing::warn!(
                                node,
                                error,
                                "cannot delete a lock node; trying again until its session ends"
                            );
                        });
                    }
                    entry.refusal = Some(refusal);
                }
                (Some(refusal), _) => entry.refusal = Some(refusal),
                (None, Ask::WatchOwn { path, name, .. })
                    if answered.outcome == Outcome::Refused && answered.data.is_none() && !entry.is_unwatched =>
                {
                    entry.is_unwatched = true;
                    let node = names::own(&state.paths.text(*path), *name);
                    state.reports.push(move || {
                        tracing::warn!(node, "cannot watch the node of a hold; its deletion is noticed late");
                    });
                }
                (None, _) => {}
            }
        }
        if let (Ask::Create { spec, .. }, Outcome::Created { names, czxid, .. }) = (&ask, &answered.outcome) {
            for ((path, _), name) in spec.queues.iter().zip(names.iter()).filter(|(_, name)| name.is_near_wrap()) {
                locked(&state.paths.czxids(*path)).insert(*name, *czxid);
            }
        }
        if let (Ask::List { path, .. }, Some(texts)) = (&ask, answered.texts) {
            state.paths.listed(*path, texts);
        }
        match (answered.data, state.listener(op), &ask) {
            (Some(data), Some(listener), _) => state.deferred.seen.push((listener, data)),
            (Some(data), None, Ask::WatchOwn { name, .. }) => {
                if let Some(entry) = state.entries.get_mut(&op) {
                    entry.saw(*name, &data);
                }
            }
            (_, listener, _) => state.deferred.listeners.extend(listener),
        }
        if let Some(watcher) = answered.watcher {
            state.watch(&ask, watcher, room);
        }
        let is_stale = epoch != state.epoch;
        self.decide(state, Event::Answer { ask, sent, is_stale, outcome: answered.outcome });
    }

    /// Reads the answers to creates that were sent before this listing, for all acquisitions that share it. They came before
    /// its own answer, but their callers may not have read them. Unread, an acquisition does not know its node, and the
    /// listing gives it no position.
    fn read_creates(self: &Arc<Self>, state: &mut State, path: Path, listed: Moment) {
        // An older delete of the same acquisition may stand before the create, so it is read, too.
        let is_create =
            |first: &Flight| first.sent < listed && matches!(first.ask, Ask::Create { .. } | Ask::Delete { .. });
        for op in state.machine.listed_for(path) {
            let next = |state: &mut State| {
                let entry = state.entries.get_mut(&caller_of(op))?;
                entry.flights.front().is_some_and(is_create).then(|| entry.answered())?
            };
            while let Some((flight, answered)) = next(state) {
                self.answered(state, flight, answered);
            }
        }
    }

    /// Polls what nobody awaits. Returns whether there was anything.
    pub(super) fn poll_ready(self: &Arc<Self>) -> bool {
        let ready = self.ready.take();
        let has_any = !ready.is_empty();
        for op in ready {
            self.read(self.look(), op, Reader::Driver).forget(op);
        }
        has_any
    }

    /// Reads answers that no caller has read for *T*/8: other calls may wait for a listing among them. From then on the driver reads
    /// for these callers, too, until they poll again. Returns whether there were any.
    pub(super) fn poll_late(self: &Arc<Self>) -> bool {
        let state = self.lock();
        let limit = now().minus(state.machine.session_timeout() / 8);
        let is_late = |entry: &Entry| entry.flights.front().is_some_and(|first| first.sent < limit);
        let late = state.entries.iter().filter(|(_, entry)| is_late(entry));
        let late: Vec<Op> = late.inspect(|(_, entry)| entry.waker.share()).map(|(op, _)| *op).collect();
        drop(state);
        let has_any = !late.is_empty();
        late.into_iter().for_each(|op| drop(self.read(self.look(), op, Reader::Driver)));
        has_any
    }

    /// Does what is due; returns when to look again: at the next deadline, or at the next beat.
    pub(super) fn fire_timers(self: &Arc<Self>) -> Moment {
        let mut state = self.look();
        if state.machine.next_deadline().is_some_and(|due| due <= now()) {
            self.decide(&mut state, Event::Timeout);
        }
        let beat = now().plus(state.beat());
        state.wakes_at = state.machine.next_deadline().map_or(beat, |due| due.min(beat));
        state.wakes_at
    }

    /// Removes from a listing the nodes that this session is deleting, and its orphans. `deletes`: the orphans are deleted,
    /// too.
    pub(crate) fn without_orphans(self: &Arc<Self>, path: &str, names: Vec<String>, deletes: bool) -> Vec<String> {
        let parsed: Vec<_> = names.into_iter().map(|text| (names::parse(&text), text)).collect();
        let mut state = self.look();
        let path = state.number(path);
        let (mut stay, mut orphans) = (Vec::with_capacity(parsed.len()), Vec::new());
        for (name, text) in parsed {
            match name {
                Some(name) if state.machine.is_deleting((path, name)) => {}
                Some(name) if state.machine.is_orphan(path, name) => orphans.push(name),
                _ => stay.push(text),
            }
        }
        if deletes && state.machine.is_connected() {
            self.decide(&mut state, Event::Orphans { path, names: orphans });
        }
        stay
    }

    /// Reserves room for a watch on `node`, which is `parent` or below it, or enlarges `room`. `false`: the name is too long
    /// to be watched. A caller that has room may exceed the limit a little for a longer name.
    pub(crate) fn reserve_watch(
        self: &Arc<Self>,
        room: &mut Option<Reservation>,
        parent: &str,
        node: &str,
    ) -> Result<bool, Error> {
        if node.len() > names::longest(parent) + LONGER_NAME {
            return Ok(false);
        }
        let state = self.lock();
        state.budget.watch(room, state.root_bytes + node.len(), &self.reports)?;
        Ok(true)
    }

    /// A watch has found that the runtime of the client is gone.
    pub(crate) fn found_orphaned(&self) {
        let mut state = self.lock();
        (state.is_orphaned, state.deferred.is_driver) = (true, true);
    }
}

/// The upper half of the guids of a session's nodes.
pub(crate) fn nonce() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

impl State {
    /// Notes in the journal what the machine is given. Nothing is looked at while nobody wants it.
    pub(super) fn note(&self, at: impl FnOnce() -> Moment, what: &dyn fmt::Debug) {
        if self.is_journaled {
            let (core, at, event) = (self.address(), at().0, format!("{what:?}"));
            self.reports.push(move || tracing::trace!(target: JOURNAL, core, at, %event));
        }
    }

    /// Has a quorum judge each node behind which a waiter has waited for ten session timeouts. An ephemeral node may outlive its
    /// session (ZOOKEEPER-2810, -4837), and a server may show nodes that no other has (ZOOKEEPER-4394, -4646).
    fn judge_long_waits(&mut self, at: Moment) {
        while self.stuck_checks.try_join_next().is_some() {}
        let Some(client) = self.client.clone().filter(|_| self.machine.is_connected()) else { return };
        let Self { entries, machine, paths, stuck_checks, reports, .. } = self;
        for watching in entries.values_mut().flat_map(|entry| &mut entry.watches) {
            let (Watch::Predecessor(op, path, name), Some(since)) = (watching.watch, watching.since) else {
                continue;
            };
            let waited = Duration::from_micros(at.since(since));
            let node = paths.node(path, name).filter(|_| at.since(since) >= LONG_WAIT * machine.session_timeout());
            let Some(node) = node else { continue };
            watching.since = None;
            // Candidates wait for as long as there is a leader.
            let is_usual =
                machine.op(op).is_some_and(|one| one.queues.iter().any(|queue| queue.kind == Kind::Latch));
            stuck_checks.spawn(wire::judge(Arc::clone(&client), node, waited, is_usual, Arc::clone(reports)));
        }
    }

    /// The number of a path.
    pub(super) fn number(&mut self, path: &str) -> Path {
        let number = self.paths.number(path);
        self.note(now, &format_args!("Path({number}, {path:?})"));
        number
    }

    /// Forgets the paths that are no longer used, and has long waits judged.
    fn forget_paths(&mut self) {
        let Self { paths, machine, refused, .. } = self;
        paths.retain(machine);
        refused.retain(|path, _| machine.knows(*path));
        self.judge_long_waits(now());
    }

    /// Names a session in the journal.
    fn address(&self) -> String {
        format!("{:p}", std::ptr::from_ref(self))
    }

    fn count_connected(&self, was_up: bool) {
        let is_up = self.machine.is_connected();
        self.reports.connected(i64::from(is_up) - i64::from(was_up));
    }

    fn count_cleanup(&mut self, nodes: usize) {
        let before = std::mem::replace(&mut self.in_cleanup, nodes);
        if before != nodes {
            self.reports
                .in_cleanup(i64::try_from(nodes).unwrap_or(i64::MAX) - i64::try_from(before).unwrap_or(i64::MAX));
        }
    }

    /// After a panic under the lock the machine may be torn. Another takes its place, in which the session is over: nothing is
    /// granted any more, calls fail, and holds are lost. The task then ends the ZooKeeper session, whose nodes go with it.
    fn fail(&mut self) {
        let was_up = self.machine.is_connected();
        self.error.get_or_insert_with(|| ended(TORN));
        if let Some(client) = self.client.clone().filter(|_| self.machine.is_attached()) {
            self.all_nodes().iter().for_each(|node| wire::send_delete(&client, node));
        }
        self.machine.fail(Ledger::new(0, None, Moment(0)));
        self.count_connected(was_up);
        self.count_cleanup(0);
        self.generation += 1;
        let own = self.entries.remove(&SESSION);
        for entry in std::mem::take(&mut self.entries).into_values().chain(own) {
            self.deferred.wakers.push(Arc::clone(&entry.waker));
            let listener = entry.listener.as_ref().and_then(Weak::upgrade);
            self.deferred.changed.extend(listener.map(|listener| (listener, HoldState::Lost(Loss::Expired))));
            self.deferred.dropped.push(entry);
        }
        (self.deferred.is_driver, self.deferred.is_session) = (true, true);
    }

    /// The caller of an acquisition, which is woken from now on.
    pub(super) fn await_op(&mut self, op: Op, waker: Waker) {
        let unused = match self.entries.get(&op) {
            Some(entry) => entry.waker.await_by(waker),
            None => Some(waker),
        };
        self.deferred.callers.extend(unused);
    }

    /// The acquisition is held; `listener` learns when its state changes.
    pub(crate) fn set_listener(&mut self, op: Op, listener: Weak<dyn HoldListener>) {
        if let Some(entry) = self.entries.get_mut(&op) {
            if !std::mem::take(&mut entry.asked_back).is_empty() {
                self.deferred.seen.extend(listener.upgrade().map(|listener| (listener, REVOKE.to_vec())));
            }
            entry.listener = Some(listener);
        }
    }

    /// Notes who reads what has come for an acquisition; returns what was noted before.
    fn read_by(&mut self, op: Op, reader: Reader) -> Option<Op> {
        std::mem::replace(&mut self.reading, (reader == Reader::Caller).then_some(op))
    }

    /// The driver reads from now on, and what nobody awaits is left to it.
    pub(crate) fn leave_to_driver(&mut self, op: Op) {
        let Some(entry) = self.entries.get(&op) else { return };
        let (caller, is_empty) = (entry.waker.leave(), entry.is_empty());
        self.deferred.callers.extend(caller);
        if is_empty {
            self.forget(op);
        } else {
            self.deferred.ready.push(op);
        }
    }

    /// Why an acquisition was refused.
    pub(crate) fn take_refusal(&mut self, op: Op) -> Option<Error> {
        let own = self.entries.get_mut(&op).and_then(|entry| entry.refusal.take());
        let all = [op, turn_of(op)].into_iter().filter_map(|op| self.machine.op(op));
        let mut queues = all.flat_map(|one| &one.queues);
        // A listing is for several calls, and one of them has asked for it.
        own.or_else(|| queues.find_map(|queue| self.refused.get(&queue.path).cloned()))
    }

    /// The texts of an acquisition's nodes.
    pub(crate) fn nodes(&self, op: Op) -> Vec<String> {
        let queues = self.machine.op(op).into_iter().flat_map(|one| &one.queues);
        queues.filter_map(|queue| Some(names::own(&self.paths.text(queue.path), queue.name?))).collect()
    }

    /// The texts of all nodes that may be there.
    pub(super) fn all_nodes(&self) -> Vec<String> {
        let own = self.machine.ops().flat_map(|(op, _)| self.nodes(op));
        let deleted = self.machine.nodes_to_delete();
        own.chain(deleted.map(|(path, name)| names::own(&self.paths.text(path), name))).collect()
    }

    /// The time between two looks at whether the process runs, in microseconds.
    pub(super) fn beat(&self) -> u64 {
        (self.machine.session_timeout() / 16).clamp(1_000, LONGEST_BEAT)
    }

    /// How many holds there are, with those that are being released.
    pub(crate) fn hold_count(&self) -> usize {
        self.machine.holds().count()
    }

    /// A session has been there.
    pub(crate) fn was_connected(&self) -> bool {
        self.machine.session_id() != 0
    }

    /// The server has given the connection to another session. The machine has dropped ours, and its client is to be dropped.
    pub(super) fn is_replaced(&self) -> bool {
        self.machine.life() == Life::Renewing && self.connection.is_some()
    }

    pub(crate) fn has_chroot(&self) -> bool {
        self.root_bytes > 0
    }

    /// The servers refuse the credentials with which a session is wanted.
    pub(super) fn credentials_are_refused(&mut self) {
        self.deferred.is_session |= !std::mem::replace(&mut self.is_refused, true);
    }

    /// Drops everything that keeps the ZooKeeper session open, except for the client itself, which is to be dropped when the
    /// state is unlocked.
    pub(crate) fn give_client_up(&mut self) -> Option<Arc<Client>> {
        self.drop_flights();
        self.client.take()
    }

    /// The task ends.
    pub(super) fn close(&mut self, closing: Closing) {
        self.closing.get_or_insert(closing);
        self.connection = None;
        self.deferred.dropped.extend(self.entries.drain().map(|(_, entry)| entry));
        self.machine.stop();
        self.count_cleanup(0);
        self.deferred.is_session = true;
    }

    /// Drops the requests and watches of the session, and the entries of what nobody has any more.
    fn drop_flights(&mut self) {
        self.generation += 1;
        self.stuck_checks.abort_all();
        self.entries.values_mut().for_each(Entry::session_over);
        let gone = self.entries.extract_if(|op, _| *op != SESSION && self.machine.op(*op).is_none());
        self.deferred.dropped.extend(gone.map(|(_, entry)| entry));
    }

    /// Nobody has this acquisition any more, and nothing of it is under way.
    fn forget(&mut self, op: Op) {
        let is_empty = self.entries.get(&op).is_some_and(Entry::is_empty);
        if op != SESSION && is_empty && self.machine.op(op).is_none() && !self.machine.has_deletes(op) {
            self.deferred.dropped.extend(self.entries.remove(&op));
        }
    }

    fn wake(&mut self, op: Op) {
        let entry = self.entries.get(&op).filter(|_| self.reading != Some(op));
        self.deferred.wakers.extend(entry.map(|entry| Arc::clone(&entry.waker)));
    }

    /// Wakes the caller of an acquisition, and reports to its hold.
    fn wake_all(&mut self, op: Op) {
        self.wake(op);
        let phase = self.machine.op(op).map(|one| one.phase);
        if let Some(entry) = self.entries.get_mut(&op).filter(|_| !phase.is_some_and(Phase::is_queuing)) {
            // It waits no more.
            (entry.watch_room, entry.turn_room) = (None, None);
        }
        match (self.listener(op), self.machine.state(now(), op)) {
            (Some(listener), Some(state)) => self.deferred.changed.push((listener, state)),
            (listener, _) => self.deferred.listeners.extend(listener),
        }
    }

    fn placed(&mut self, op: Op) {
        let entry = self.entries.get_mut(&op);
        // One that is yet to ask for its first watch may be turned away.
        let is_settled = self.machine.is_settled(op);
        let progress = entry.and_then(|entry| {
            entry.has_waited |= is_settled;
            entry.progress.clone()
        });
        if let Some(progress) = progress {
            self.deferred.placed.push((progress, self.machine.ahead(op)));
        }
    }

    fn listener(&self, op: Op) -> Option<Arc<dyn HoldListener>> {
        self.entries.get(&op)?.listener.as_ref()?.upgrade()
    }

    fn watch(&mut self, ask: &Ask, watcher: OneshotWatcher, room: Option<Reservation>) {
        // The client's watcher panics when the runtime of its session is dropped under it. Then it never fires.
        let fires = AssertUnwindSafe(watcher.changed()).catch_unwind().then(async |event| match event {
            Ok(event) => event.event_type == EventType::NodeDeleted,
            Err(_) => std::future::pending().await,
        });
        let fires = fires.boxed();
        let (watch, op) = match *ask {
            Ask::Watch { op, path, name } => (Watch::Predecessor(op, path, name), caller_of(op)),
            Ask::WatchOwn { op, path, name } => (Watch::Own(op, path, name), caller_of(op)),
            Ask::List { path, .. } => (Watch::Path(path), SESSION),
            _ => return,
        };
        if let Some(entry) = self.entries.get_mut(&op) {
            let since = matches!(watch, Watch::Predecessor(..)).then(now);
            entry.watches.push(Watching { watch, fires, since, _room: room });
            // It has to be polled once.
            self.wake(op);
        }
    }

    /// The bytes of the path of a node of ours, as the servers count them.
    fn node_bytes(&self, path: Path, name: Name) -> usize {
        self.root_bytes + names::own(&self.paths.text(path), name).len()
    }

    /// The bytes of the path that is watched.
    fn watch_bytes(&self, ask: &Ask) -> usize {
        let bytes = match *ask {
            Ask::WatchOwn { path, name, .. } => return self.node_bytes(path, name),
            Ask::Watch { path, name, .. } => self.paths.node(path, name).map_or(0, |node| node.len()),
            Ask::List { path, watches: true, .. } => self.paths.text(path).len(),
            _ => 0,
        };
        self.root_bytes + bytes
    }

    /// Reserves the room for the watch that a request sets, if it needs room of its own. `Err`: the request must not be
    /// sent, and this is its outcome.
    fn reserve_room(&mut self, op: Op, ask: &Ask) -> Result<Option<Reservation>, Outcome> {
        let bytes = self.watch_bytes(ask);
        match ask {
            Ask::Watch { path, .. } => {
                let most = self.root_bytes + names::longest(&self.paths.text(*path)) + LONGER_NAME;
                let Some(entry) = self.entries.get_mut(&op).filter(|_| bytes <= most) else {
                    return Err(Outcome::Refused);
                };
                // From the start it is that of the waiter's longest node.
                let bytes = bytes.max(self.root_bytes + entry.draft.longest_node());
                match self.budget.watch(&mut entry.watch_room, bytes, &self.reports) {
                    Ok(()) => Ok(None),
                    Err(full) if entry.watch_room.is_none() && !entry.has_waited => {
                        entry.refusal = Some(full);
                        Err(Outcome::NoWatchRoom)
                    }
                    // A waiter that has waited is not refused any more.
                    Err(_) => Err(Outcome::Refused),
                }
            }
            Ask::WatchOwn { .. } => Ok(self.budget.own(bytes)),
            Ask::List { watches: true, .. } => Ok(Some(self.budget.path_watch(bytes))),
            _ => Ok(None),
        }
    }

    fn unwatch(&mut self, watch: &Watch) {
        let op = match *watch {
            Watch::Path(_) => SESSION,
            Watch::Predecessor(op, ..) | Watch::Own(op, ..) => caller_of(op),
        };
        if let Some(entry) = self.entries.get_mut(&op) {
            entry.watches.retain(|one| one.watch != *watch);
        }
    }
}
