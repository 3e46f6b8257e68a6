//! Owns [`Core`]: locks the state of a session, passes events to the machine, and carries out the machine's actions.
//!
//! 1. Requests are sent before the lock is released: the first poll of an answer's future sends its request.
//! 2. Connection changes are handled before any other event. So an answer is never attributed to a connection over which it
//!    did not come.
//! 3. No user code runs under the lock. Callers are woken, and wakers, spans and holds are dropped, after unlock: see
//!    `deferred`. [`Reports`] makes log events and metrics.
//! 4. A panic under the lock ends the session, because the state may be inconsistent. Nothing is granted any more, and all
//!    holds are lost.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use tokio::sync::watch;
use zookeeper_client::{Client, SessionState};

use crate::clock::{micros, now};
use crate::driver::budget::Reservation;
use crate::driver::draft::Draft;
use crate::driver::entry::{Entry, Flight, Ready};
use crate::driver::names;
use crate::driver::reports::Reports;
use crate::driver::state::{Closing, RUNTIME_GONE, State, ended, nonce};
use crate::driver::wire;
use crate::error::Error;
use crate::machine::{Action, Ask, Connection, Event, Moment, Op, SESSION, Timer, caller_of, named_nonce};
use crate::session::state_changes::StateChanges;

const NAME_IS_TAKEN: &str =
    "another process has its unique name, and has taken a lock of it over; stop one of them";

/// The core of a session: its state under one lock, and what its tasks share.
pub(crate) struct Core {
    state: Mutex<State>,
    pub(super) ready: Arc<Ready>,
    /// Wakes the session's task at the next change of the connection.
    waker: Waker,
    pub(crate) reports: Arc<Reports>,
    /// Wakes subscribers to look at the state again, for example after a change of the connection or of the session's life.
    pub(crate) changes: watch::Sender<()>,
    /// The hash of the unique name, if there is one.
    name: Option<u64>,
    /// How many times the state was locked.
    #[cfg(test)]
    pub(super) locks: std::sync::atomic::AtomicUsize,
    /// What the machine has handled.
    #[cfg(test)]
    pub(super) events: Mutex<Vec<String>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}

/// The locked state. Dropping the guard releases the lock first, and then runs the deferred work.
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
        let (deferred, session) = (self.deferred.take(), self.session_id());
        self.state = None;
        let Core { ready, reports, changes, .. } = self.core;
        match deferred {
            Some(deferred) => deferred.run(session, ready, reports, changes),
            None => reports.flush(),
        }
    }
}

impl Core {
    /// Creates a session that is not connected yet.
    /// `name`: the hash of its unique name, if it has one.
    pub(crate) fn new(name: Option<u64>) -> Arc<Self> {
        let reports = Arc::<Reports>::default();
        // The number of an acquisition is part of its nodes' guids. With a unique name the numbers start at random, so that
        // another process of that name gives its nodes other guids.
        let next = name.map_or(0, |_| caller_of(nonce() as Op));
        let state = Mutex::new(State { reports: Arc::clone(&reports), next, ..State::default() });
        let ready = Arc::<Ready>::default();
        let core = Arc::new(Self {
            state,
            waker: Arc::clone(&ready).into(),
            ready,
            reports,
            changes: watch::Sender::new(()),
            name,
            #[cfg(test)]
            locks: Default::default(),
            #[cfg(test)]
            events: Mutex::default(),
        });
        core.lock().entries.insert(SESSION, Entry::new(&core.ready, SESSION, Arc::default()));
        core
    }

    pub(crate) fn lock(&self) -> StateGuard<'_> {
        #[cfg(test)]
        self.locks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut is_poisoned = false;
        let mut state = self.state.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            self.state.clear_poison();
            is_poisoned = true;
            poisoned.into_inner()
        });
        if is_poisoned {
            state.fail();
        }
        StateGuard { core: self, state: Some(state) }
    }

    /// Queues a report and wakes the task that makes reports. Call this without locks: after that task has ended, this call
    /// makes the report itself, which runs the user's code.
    pub(super) fn report(&self, report: impl FnOnce() + Send + 'static) {
        self.reports.push(report);
        self.reports.flush();
    }

    /// Locks the state and handles pending connection changes first, so that the state is up to date even right after a
    /// pause of the process.
    pub(crate) fn lock_current(self: &Arc<Self>) -> StateGuard<'_> {
        let mut state = self.lock();
        self.connection(&mut state);
        state
    }

    /// Gives an acquisition its number and its entry. Fails if the session has no room for its nodes. The caller must handle
    /// `Event::Acquire` before any connection change: the end of a session drops entries that the machine does not know.
    pub(super) fn begin(
        self: &Arc<Self>,
        state: &mut State,
        draft: &Arc<Draft>,
        wakes_when_placed: bool,
    ) -> Result<Op, Error> {
        let node_reservation = state.budget.nodes(draft.node_bytes(state.budget.root_bytes))?;
        // The counter wraps, so it may reach the number of an acquisition that still exists.
        while state.next == SESSION || state.entries.contains_key(&state.next) {
            state.next = caller_of(state.next.wrapping_add(1));
        }
        let op = state.next;
        state.next = caller_of(state.next.wrapping_add(1));
        let mut entry = Entry::new(&self.ready, op, Arc::clone(draft));
        (entry._node_reservation, entry.wakes_when_placed) = (Some(node_reservation), wakes_when_placed);
        state.entries.insert(op, entry);
        Ok(op)
    }

    /// Handles connection changes and then an event. The requests that follow are sent before this returns.
    pub(crate) fn handle(self: &Arc<Self>, state: &mut State, event: Event) {
        self.connection(state);
        self.decide(state, event);
    }

    /// Handles an event. The caller must have handled connection changes already, under this same lock.
    pub(crate) fn decide(self: &Arc<Self>, state: &mut State, event: Event) {
        let (life, was_up, at) = (state.machine.life(), state.machine.is_connected(), now());
        #[cfg(test)]
        crate::locked::locked(&self.events).push(format!("{event:?}"));
        state.machine.handle(at, event);
        state.count_connected(was_up);
        if life != state.machine.life() {
            (state.deferred.wakes_driver, state.deferred.notifies_changes) = (true, true);
        }
        self.act(state);
    }

    /// Ends a hold if trust in the session is over, or its work stands still. Fires no other timers, because the caller may
    /// have no runtime.
    pub(crate) fn end_hold(self: &Arc<Self>, state: &mut State, op: Op, at: Moment) {
        for timer in [Timer::TrustEnds, Timer::Stall(op)] {
            if state.machine.is_due(timer, at) {
                self.handle(state, Event::Timer(timer));
            }
        }
    }

    /// Handles changes of the connection. The client shows only the last of several changes, so each change counts as a
    /// disconnect first.
    pub(crate) fn connection(self: &Arc<Self>, state: &mut State) {
        let mut cx = Context::from_waker(&self.waker);
        // The clock is read before the poll: a pause between the two then makes `last_seen_up` too early, never too late.
        let at = now();
        while let Some(Poll::Ready(changed)) = state.connection.as_mut().map(|changes| changes.poll(&mut cx)) {
            self.changed(state, changed);
        }
        if state.machine.is_connected() && state.connection.is_some() {
            state.last_seen_up = at;
        }
    }

    fn changed(self: &Arc<Self>, state: &mut State, changed: SessionState) {
        state.deferred.notifies_changes = true;
        if state.machine.is_connected() {
            state.epoch += 1;
            self.decide(state, Event::Connection(Connection::Down));
        }
        match changed {
            SessionState::SyncConnected => {
                let since = state.last_seen_up;
                self.decide(state, Event::Connection(Connection::Up { since }));
            }
            // A read-only server cannot create lock nodes.
            SessionState::Disconnected | SessionState::ConnectedReadOnly => {}
            SessionState::AuthFailed => {
                state.is_refused = true;
                self.expire(state);
            }
            SessionState::Expired | SessionState::Closed => self.expire(state),
        }
    }

    /// Handles the end of the ZooKeeper session. Drops its requests and watches.
    pub(crate) fn expire(self: &Arc<Self>, state: &mut State) {
        // The client itself is kept, because `Session::client` still returns it.
        state.connection = None;
        state.drop_flights();
        state.epoch += 1;
        self.decide(state, Event::Connection(Connection::Expired));
        (state.deferred.wakes_driver, state.deferred.notifies_changes) = (true, true);
    }

    /// Begins a ZooKeeper session, the first or the next. `created`: a time before its creation.
    pub(crate) fn renew(self: &Arc<Self>, state: &mut State, client: Client, created: Moment) {
        let session = client.session_id().0.cast_unsigned();
        let timeout = micros(client.session_timeout());
        state.is_refused = false;
        // Without a chroot the path is `/`, which adds no bytes to a node's path.
        state.budget.root_bytes = client.path().trim_end_matches('/').len();
        let at = now();
        let (first, changes) = StateChanges::new(client.state_watcher());
        // A client that is not connected may have sent its request to reconnect at any time, so only time 0 is certain.
        state.last_seen_up = if first == SessionState::SyncConnected { at } else { Moment::default() };
        (state.client, state.connection) = (Some(Arc::new(client)), Some(changes));
        let nonce = self.name.map_or_else(nonce, |name| named_nonce(name, nonce()));
        self.decide(state, Event::Renewed { session, nonce, created, timeout });
        // The client may have lost the connection since it connected.
        if first != SessionState::SyncConnected {
            self.changed(state, first);
        }
    }

    fn act(self: &Arc<Self>, state: &mut State) {
        while let Some(action) = state.machine.next_action() {
            match action {
                Action::Send(ask) => self.send(state, ask),
                Action::Unwatch(watch) => state.unwatch(&watch),
                Action::Wake(op) => state.wake_all(op),
                Action::Placed(op) => state.placed(op),
                Action::Forget => state.forget_paths(),
                Action::Replace => {
                    // The requests in flight may have gone to a session that is not ours.
                    state.drop_flights();
                    state.deferred.wakes_driver = true;
                }
                Action::Yield => _ = state.error.get_or_insert_with(|| ended(NAME_IS_TAKEN)),
                // The session's task reads `Life::Over` and drops the client.
                Action::End { is_clean } => state.is_clean = is_clean,
            }
        }
        state.deferred.wakes_driver |= state.machine.next_deadline().is_some_and(|at| at < state.wakes_at);
    }

    fn send(self: &Arc<Self>, state: &mut State, ask: Ask) {
        let Some(client) = state.client.clone() else { return };
        let op = ask.op().unwrap_or(SESSION);
        let acquisition = ask.acquisition();
        let czxid = acquisition.and_then(|op| state.machine.op(op)).map_or(0, |acquisition| acquisition.czxid.0);
        let reservation = state.reserve(op, &ask);
        if reservation.is_ok() {
            self.reports.requested(wire::name(&ask));
        }
        if let Ask::Delete { nodes, .. } = &ask {
            nodes.iter().for_each(|node| state.note_takeover(*node));
        }
        let entry = state.entries.entry(op).or_insert_with(|| Entry::new(&self.ready, op, Arc::default()));
        let (mut answer, reservation) = match (reservation, &ask) {
            (Err(outcome), _) => (std::future::ready(outcome.into()).boxed(), None),
            (Ok(reservation), _) => {
                let draft = entry.draft.for_op(acquisition);
                (wire::send(&client, &mut state.paths, &ask, draft, czxid), reservation)
            }
        };
        // Trust in the session counts from the sending of a request, so the clock is read before the request is sent.
        let sent = now();
        // The first poll sends the request. It is seldom ready at once: sending failed, or no request was needed.
        let answered = answer.poll_unpin(&mut Context::from_waker(&entry.waker));
        let has_failed = answered.is_ready();
        if let Poll::Ready(answered) = answered {
            answer = std::future::ready(answered).boxed();
        }
        let (epoch, generation) = (state.epoch, state.generation);
        entry.flights.push_back(Flight { ask, sent, epoch, generation, answer: Some(answer), reservation });
        if has_failed {
            state.deferred.unread.push_back(op);
        }
    }

    /// Fires the timers that are due, and notes when the session's task has to wake next: at the next deadline, or after the
    /// longest sleep (see [`State::beat`]).
    pub(super) fn fire_timers(self: &Arc<Self>, state: &mut State) {
        let at = now();
        if state.machine.next_deadline().is_some_and(|due| due <= at) {
            self.decide(state, Event::Timeout);
        }
        // A `wakes_at` that is still ahead is not postponed. So the task need not set its timer again at each wake-up.
        let beat = at.plus(state.beat());
        let beat = if state.wakes_at > at { beat.min(state.wakes_at) } else { beat };
        state.wakes_at = state.machine.next_deadline().map_or(beat, |due| due.min(beat));
    }

    /// Removes from a listing the nodes that this session is deleting, and its orphans: nodes of the session that belong to no
    /// acquisition. `deletes`: also deletes the orphans.
    pub(crate) fn without_orphans(self: &Arc<Self>, path: &str, names: Vec<String>, deletes: bool) -> Vec<String> {
        let parsed: Vec<_> = names.into_iter().map(|text| (names::parse(&text), text)).collect();
        let mut state = self.lock_current();
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

    /// Reserves room for watches. `paths`: the length of each watched path in bytes.
    pub(crate) fn reserve_watches(
        &self,
        paths: impl Iterator<Item = usize>,
    ) -> Result<Option<Reservation>, Error> {
        let (state, mut room) = (self.lock(), None);
        let bytes = paths.map(|bytes| state.budget.root_bytes + bytes).sum();
        state.budget.watch(&mut room, bytes)?;
        Ok(room)
    }

    /// Ends the session at once, because its answers will not be read any more.
    pub(super) fn end(self: &Arc<Self>, state: &mut State, reason: &str) {
        state.error.get_or_insert_with(|| ended(reason));
        let may_be_left = state.connection.is_some() && !state.is_clean;
        state.closing.get_or_insert(if may_be_left { Closing::Unconfirmed } else { Closing::Released });
        self.expire(state);
        self.handle(state, Event::Close);
        self.handle(state, Event::Timer(Timer::CloseBy));
    }

    /// Ends the session, because the runtime of its client is gone.
    pub(crate) fn found_runtime_gone(self: &Arc<Self>) {
        self.end(&mut self.lock(), RUNTIME_GONE);
    }
}
