//! Owns [`State`], which the lock of a session guards: the machine, its client and requests in flight.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::task::Waker;

use futures_util::FutureExt;
use zookeeper_client::{Client, EventType, OneshotWatcher, SessionId};

use crate::clock::now;
use crate::driver::budget::{Budget, Reservation};
use crate::driver::deferred::Deferred;
use crate::driver::entry::{Entry, HoldListener, Watching};
use crate::driver::names::{self, Paths};
use crate::driver::reports::Reports;
use crate::error::Error;
use crate::machine::{
    Ask, HoldState, Ledger, Life, Loss, Machine, Moment, Name, Op, Outcome, Path, Phase, SESSION, Watch,
    caller_of, turn_of,
};
use crate::session::state_changes::StateChanges;
use crate::telemetry;

/// The most microseconds that the session's task sleeps.
const LONGEST_BEAT: u64 = 1_000_000;

/// The reason in the error of a session whose runtime is gone, or whose task has panicked.
pub(super) const RUNTIME_GONE: &str = "the runtime that it ran on is gone, or a task of it has panicked";

/// The reason in the error of a session after a panic under its lock.
const POISONED: &str = "a panic has poisoned its state; please report it";

/// How a session ended, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The lock nodes are gone, or there was no ZooKeeper session to end.
    Released,
    /// Lock nodes may be left until the servers expire the session.
    Unconfirmed,
}

/// The state of a session, which its lock guards.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) machine: Machine<Ledger>,
    pub(crate) client: Option<Arc<Client>>,
    pub(super) paths: Paths,
    pub(super) budget: Budget,
    /// Counts connections. The answer to a request of an earlier connection is stale.
    pub(super) epoch: u64,
    /// Counts ZooKeeper sessions. The answer to a request of an earlier session is ignored.
    pub(crate) generation: u64,
    /// The state changes of the client while there is a ZooKeeper session, connected or not.
    pub(crate) connection: Option<StateChanges>,
    /// When the connection was last seen up. The clock was read before the check, so the client has sent any request to
    /// reconnect after this time.
    pub(super) last_seen_up: Moment,
    pub(super) entries: BTreeMap<Op, Box<Entry>>,
    pub(super) next: Op,
    /// When the session's task next wakes by itself to fire timers.
    pub(super) wakes_at: Moment,
    /// The error that calls return once no further ZooKeeper session will be made.
    pub(crate) error: Option<Error>,
    /// How the last ZooKeeper session ended; `None` until the session's task has ended, or its runtime is gone.
    pub(crate) closing: Option<Closing>,
    /// Whether the machine has ended the session with all lock nodes gone.
    pub(crate) is_clean: bool,
    /// Whether the servers refuse the credentials. The session's task tries the credentials again.
    pub(crate) is_refused: bool,
    pub(super) reports: Arc<Reports>,
    pub(super) deferred: Deferred,
}

impl State {
    /// Returns the number of a path. A new path gets the next number.
    pub(super) fn number(&mut self, path: &str) -> Path {
        self.paths.number(path)
    }

    pub(super) fn forget_paths(&mut self) {
        self.paths.retain(&self.machine);
    }

    pub(super) fn count_connected(&self, was_up: bool) {
        let is_up = self.machine.is_connected();
        if telemetry::IS_COUNTED && is_up != was_up {
            self.reports.push(move || telemetry::connected(is_up));
        }
    }

    /// Replaces the machine after a panic under the lock, because the machine may be inconsistent. In the new machine the session
    /// is over: nothing is granted any more, calls fail, and holds are lost. The session's task then ends the ZooKeeper session,
    /// which removes its nodes.
    pub(super) fn fail(&mut self) {
        let was_up = self.machine.is_connected();
        self.error.get_or_insert_with(|| ended(POISONED));
        self.machine.fail(Ledger::new(0, None, Moment(0)));
        self.count_connected(was_up);
        self.generation += 1;
        for mut entry in std::mem::take(&mut self.entries).into_values() {
            self.deferred.wakers.extend(entry.caller.take());
            let listener = entry.listener.as_ref().and_then(Weak::upgrade);
            self.deferred.changed.extend(listener.map(|listener| (listener, HoldState::Lost(Loss::Expired))));
            self.deferred.dropped.push(entry);
        }
        (self.deferred.wakes_driver, self.deferred.notifies_changes) = (true, true);
    }

    /// Sets the waker of an acquisition's caller, because the caller now waits.
    pub(crate) fn await_op(&mut self, op: Op, waker: Waker) {
        let unused = match self.entries.get_mut(&op) {
            Some(entry) => entry.caller.replace(waker),
            None => Some(waker),
        };
        self.deferred.callers.extend(unused);
    }

    /// Sets the listener of a new hold.
    pub(crate) fn set_listener(&mut self, op: Op, listener: Weak<dyn HoldListener>) {
        if let Some(entry) = self.entries.get_mut(&op) {
            entry.listener = Some(listener);
        }
    }

    /// Forgets the waker of the caller of an acquisition, because the caller no longer waits.
    pub(super) fn leave(&mut self, op: Op) {
        let caller = self.entries.get_mut(&op).and_then(|entry| entry.caller.take());
        self.deferred.callers.extend(caller);
        self.forget(op);
    }

    /// Takes the error with which an acquisition was refused.
    pub(crate) fn take_refusal(&mut self, op: Op) -> Option<Error> {
        let own = self.entries.get_mut(&op).and_then(|entry| entry.refusal.take());
        let all = [op, turn_of(op)].into_iter().filter_map(|op| self.machine.op(op));
        let mut queues = all.flat_map(|acquisition| &acquisition.queues);
        // Several acquisitions share a listing. So the error of a listing is kept with its path, not in an entry.
        own.or_else(|| queues.find_map(|queue| self.paths.refusal(queue.path)))
    }

    /// Returns the paths of an acquisition's nodes.
    pub(crate) fn nodes(&self, op: Op) -> Vec<String> {
        let queues = self.machine.op(op).into_iter().flat_map(|acquisition| &acquisition.queues);
        queues.filter_map(|queue| Some(names::own(&self.paths.text(queue.path), queue.name?))).collect()
    }

    /// Returns how many microseconds the session's task sleeps at most. Each wake-up shows that the process is not stalled.
    pub(super) fn beat(&self) -> u64 {
        (self.machine.session_timeout() / 16).clamp(1_000, LONGEST_BEAT)
    }

    /// Returns the number of holds, including those that are being released.
    pub(crate) fn hold_count(&self) -> usize {
        self.machine.holds().count()
    }

    /// Returns the id of the ZooKeeper session, 0 before the first one.
    pub(crate) fn session_id(&self) -> SessionId {
        SessionId(self.machine.session_id().cast_signed())
    }

    /// Whether there has been a ZooKeeper session.
    pub(crate) fn was_connected(&self) -> bool {
        self.machine.session_id() != 0
    }

    /// Whether the connection belongs to another session, or that cannot be found out. The machine has then ended ours, and the
    /// client must be dropped.
    pub(super) fn is_replaced(&self) -> bool {
        self.machine.life() == Life::Renewing && self.connection.is_some()
    }

    pub(crate) fn has_chroot(&self) -> bool {
        self.budget.root_bytes > 0
    }

    /// Notes that the servers refuse the credentials for a new session.
    pub(super) fn credentials_are_refused(&mut self) {
        self.deferred.notifies_changes |= !std::mem::replace(&mut self.is_refused, true);
    }

    /// Drops the requests and watches, and returns the client. All of them keep the ZooKeeper session open. The caller must
    /// drop the client after it has released the lock.
    pub(crate) fn give_client_up(&mut self) -> Option<Arc<Client>> {
        self.drop_flights();
        self.client.take()
    }

    /// Drops all entries and stops the timers, because the session's task ends.
    pub(super) fn close(&mut self) {
        self.connection = None;
        self.deferred.dropped.extend(std::mem::take(&mut self.entries).into_values());
        self.machine.stop();
        self.deferred.notifies_changes = true;
    }

    /// Drops the requests and watches of the ZooKeeper session, and the entries of acquisitions that the machine no longer
    /// knows.
    pub(super) fn drop_flights(&mut self) {
        self.generation += 1;
        self.entries.values_mut().for_each(|entry| entry.session_over());
        let is_gone = |op: &Op| *op != SESSION && self.machine.op(*op).is_none();
        let gone: Vec<Op> = self.entries.keys().copied().filter(is_gone).collect();
        self.deferred.dropped.extend(gone.iter().filter_map(|op| self.entries.remove(op)));
    }

    /// Drops the acquisition's entry if the machine no longer knows it and no request, watch or delete of it is left.
    pub(super) fn forget(&mut self, op: Op) {
        let is_empty = self.entries.get(&op).is_some_and(|entry| entry.is_empty());
        if op != SESSION && is_empty && self.machine.op(op).is_none() && !self.machine.has_deletes(op) {
            self.deferred.dropped.extend(self.entries.remove(&op));
        }
    }

    pub(super) fn wake(&mut self, op: Op) {
        self.deferred.wakers.extend(self.entries.get_mut(&op).and_then(|entry| entry.caller.take()));
    }

    /// Wakes the caller of a waiter whose number of contenders ahead is known now, if the caller follows it.
    pub(super) fn placed(&mut self, op: Op) {
        if self.entries.get(&op).is_some_and(|entry| entry.wakes_when_placed) {
            self.wake(op);
        }
    }

    /// Wakes the caller of an acquisition, and reports the state to its hold.
    pub(super) fn wake_all(&mut self, op: Op) {
        self.wake(op);
        let phase = self.machine.op(op).map(|acquisition| acquisition.phase);
        if let Some(entry) = self.entries.get_mut(&op).filter(|_| !phase.is_some_and(Phase::is_queuing)) {
            // The acquisition waits no longer, so it needs no room for a watch on a predecessor.
            entry.watch_reservation = None;
        }
        match (self.listener(op), self.machine.state(now(), op)) {
            (Some(listener), Some(state)) => self.deferred.changed.push((listener, state)),
            (listener, _) => self.deferred.listeners.extend(listener),
        }
    }

    pub(super) fn listener(&self, op: Op) -> Option<Arc<dyn HoldListener>> {
        self.entries.get(&op)?.listener.as_ref()?.upgrade()
    }

    pub(super) fn watch(&mut self, ask: &Ask, watcher: OneshotWatcher, reservation: Option<Reservation>) {
        // The client's watcher panics if the client's runtime is dropped before the event. Then `fires` never resolves.
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
            // Events of own nodes are read first, so that a waiter whose own node is gone is not granted the lock when its
            // predecessor is deleted.
            let at = if matches!(watch, Watch::Own(..)) { 0 } else { entry.watches.len() };
            entry.watches.insert(at, Watching { watch, fires, _reservation: reservation });
            // A watch wakes the task only after its first poll, so let the task poll it.
            self.deferred.unread.push_back(op);
        }
    }

    /// Reserves room for the watch that a request sets. Room for a predecessor's watch goes into the entry and is not returned.
    /// On `Err` the request must not be sent: the error is the outcome of the request.
    pub(super) fn reserve(&mut self, op: Op, ask: &Ask) -> Result<Option<Reservation>, Outcome> {
        let text = |path| self.paths.text(path);
        match *ask {
            Ask::Watch { path, name, .. } => {
                let bytes = self.budget.root_bytes
                    + self.paths.node(path, name).map_or(0, |[path, name]| path.len() + 1 + name.len());
                let Some(entry) = self.entries.get_mut(&op) else { return Err(Outcome::Refused) };
                // One reservation serves for every predecessor. A node with a longer name, of another client, is not watched.
                let most = entry.draft.longest_node(self.budget.root_bytes);
                if bytes <= most && self.budget.watch(&mut entry.watch_reservation, most).is_ok() {
                    Ok(None)
                } else {
                    Err(Outcome::Refused)
                }
            }
            Ask::WatchOwn { path, .. } => {
                self.budget.own(names::longest_child(&text(path))).map(Some).ok_or(Outcome::Refused)
            }
            Ask::List { path, watches: true, .. } => Ok(Some(self.budget.path_watch(text(path).len()))),
            _ => Ok(None),
        }
    }

    /// Logs the deletion of a node, if another session with this session's unique name has created the node.
    pub(super) fn note_takeover(&self, (path, name): (Path, Name)) {
        if self.machine.has_name_of(name) {
            let node = names::own(&self.paths.text(path), name);
            self.reports
                .push(move || tracing::info!(node, "deletes a node of an earlier session with its unique name"));
        }
    }

    pub(super) fn unwatch(&mut self, watch: &Watch) {
        let op = match *watch {
            Watch::Path(_) => SESSION,
            Watch::Predecessor(op, ..) | Watch::Own(op, ..) => caller_of(op),
        };
        if let Some(entry) = self.entries.get_mut(&op) {
            entry.watches.retain(|watching| watching.watch != *watch);
        }
    }
}

/// Returns a random number, for the upper half of the guids of a session's nodes.
pub(crate) fn nonce() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

pub(super) fn ended(reason: impl Into<String>) -> Error {
    Error::SessionEnded { reason: reason.into() }
}
