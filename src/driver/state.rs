//! What the lock of a session guards: the machine, and what it has under way.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use zookeeper_client::{Client, EventType, OneshotWatcher};

use crate::clock::now;
use crate::driver::budget::{Budget, Reservation};
use crate::driver::deferred::Deferred;
use crate::driver::entry::{Entry, HoldListener, Watching};
use crate::driver::names::{self, Paths};
use crate::driver::reports::{JOURNAL, Reports};
use crate::driver::wire;
use crate::error::Error;
use crate::machine::{
    Ask, HoldState, Kind, Ledger, Life, Loss, Machine, Moment, Name, Op, Outcome, Path, Phase, SESSION, Watch,
    caller_of, turn_of,
};
use crate::options::REVOKE;
use crate::session::state_changes::StateChanges;

/// After this number of session timeouts behind one node a waiter asks whether it is there.
const LONG_WAIT: u64 = 10;

/// The longest time between two looks at whether the process runs, in microseconds.
const LONGEST_BEAT: u64 = 1_000_000;

/// How many bytes longer than the longest name of ours the name of another client's node may be. A node whose name is longer is not
/// watched.
pub(super) const LONGER_NAME: usize = 128;

/// Why a session ended without having been closed.
pub(super) const RUNTIME_GONE: &str = "the runtime that it ran on is gone, or a task of it has panicked";

/// The same for a panic under the lock.
const POISONED: &str = "a panic has poisoned its state; please report it";

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

/// Who reads the answers of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The caller polls right after this, so it need not be woken.
    Caller,
    Driver,
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
    pub(super) root_bytes: usize,
    /// Counts connections: an answer to a request of an earlier one is stale.
    pub(super) epoch: u64,
    /// Counts sessions: an answer to a request of an earlier one is for nobody.
    pub(crate) generation: u64,
    /// Of the ZooKeeper session, while there is one, connected or not.
    pub(crate) connection: Option<StateChanges>,
    /// When the connection was last seen to stand; the clock was read before that look. The request that takes the session
    /// back is sent later.
    pub(super) stood_at: Moment,
    pub(super) entries: HashMap<Op, Entry>,
    pub(super) next: Op,
    /// The acquisition that its caller is reading.
    pub(super) reading: Option<Op>,
    /// When the session's task wakes next by itself, to see which timers are due.
    pub(super) wakes_at: Moment,
    /// Why there will be no other session.
    pub(crate) error: Option<Error>,
    /// What is known of the end of the last session, when the task has ended.
    pub(crate) closing: Option<Closing>,
    /// How many tasks keep nodes that are to be deleted before the session is over.
    pub(crate) kept: usize,
    /// The servers refuse the credentials; they are tried again.
    pub(crate) is_refused: bool,
    /// The runtime of the client is gone.
    pub(super) runtime_is_gone: bool,
    /// Why the last listing of a path was refused.
    pub(super) refused: HashMap<Path, Error>,
    /// How many nodes the metrics count as being cleaned up.
    pub(super) in_cleanup: usize,
    /// Somebody wants the journal.
    pub(super) is_journaled: bool,
    /// They ask a quorum for nodes behind which waiters have waited for long.
    pub(super) stuck_checks: JoinSet<()>,
    pub(super) reports: Arc<Reports>,
    pub(super) deferred: Deferred,
}

/// A session that is not connected yet.
impl Default for Machine<Ledger> {
    fn default() -> Self {
        Self::unconnected(nonce(), Ledger::new(0, None, Moment(0)))
    }
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
    pub(super) fn judge_long_waits(&mut self, at: Moment) {
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
            let is_usual = machine
                .op(op)
                .is_some_and(|acquisition| acquisition.queues.iter().any(|queue| queue.kind == Kind::Latch));
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
    pub(super) fn forget_paths(&mut self) {
        let Self { paths, machine, refused, .. } = self;
        paths.retain(machine);
        refused.retain(|path, _| machine.knows(*path));
        self.judge_long_waits(now());
    }

    /// Names a session in the journal.
    pub(super) fn address(&self) -> String {
        format!("{:p}", std::ptr::from_ref(self))
    }

    pub(super) fn count_connected(&self, was_up: bool) {
        let is_up = self.machine.is_connected();
        self.reports.connected(i64::from(is_up) - i64::from(was_up));
    }

    pub(super) fn count_cleanup(&mut self, nodes: usize) {
        let before = std::mem::replace(&mut self.in_cleanup, nodes);
        if before != nodes {
            self.reports
                .in_cleanup(i64::try_from(nodes).unwrap_or(i64::MAX) - i64::try_from(before).unwrap_or(i64::MAX));
        }
    }

    /// After a panic under the lock the machine may be inconsistent. Another takes its place, in which the session is over: nothing is
    /// granted any more, calls fail, and holds are lost. The task then ends the ZooKeeper session, whose nodes go with it.
    pub(super) fn fail(&mut self) {
        let was_up = self.machine.is_connected();
        self.error.get_or_insert_with(|| ended(POISONED));
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
    pub(super) fn read_by(&mut self, op: Op, reader: Reader) -> Option<Op> {
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
        let mut queues = all.flat_map(|acquisition| &acquisition.queues);
        // A listing is for several calls, and one of them has asked for it.
        own.or_else(|| queues.find_map(|queue| self.refused.get(&queue.path).cloned()))
    }

    /// The texts of an acquisition's nodes.
    pub(crate) fn nodes(&self, op: Op) -> Vec<String> {
        let queues = self.machine.op(op).into_iter().flat_map(|acquisition| &acquisition.queues);
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
    pub(super) fn drop_flights(&mut self) {
        self.generation += 1;
        self.stuck_checks.abort_all();
        self.entries.values_mut().for_each(Entry::session_over);
        let gone = self.entries.extract_if(|op, _| *op != SESSION && self.machine.op(*op).is_none());
        self.deferred.dropped.extend(gone.map(|(_, entry)| entry));
    }

    /// Nobody has this acquisition any more, and nothing of it is under way.
    pub(super) fn forget(&mut self, op: Op) {
        let is_empty = self.entries.get(&op).is_some_and(Entry::is_empty);
        if op != SESSION && is_empty && self.machine.op(op).is_none() && !self.machine.has_deletes(op) {
            self.deferred.dropped.extend(self.entries.remove(&op));
        }
    }

    pub(super) fn wake(&mut self, op: Op) {
        let entry = self.entries.get(&op).filter(|_| self.reading != Some(op));
        self.deferred.wakers.extend(entry.map(|entry| Arc::clone(&entry.waker)));
    }

    /// Wakes the caller of an acquisition, and reports to its hold.
    pub(super) fn wake_all(&mut self, op: Op) {
        self.wake(op);
        let phase = self.machine.op(op).map(|acquisition| acquisition.phase);
        if let Some(entry) = self.entries.get_mut(&op).filter(|_| !phase.is_some_and(Phase::is_queuing)) {
            // It waits no more.
            (entry.watch_room, entry.turn_room) = (None, None);
        }
        match (self.listener(op), self.machine.state(now(), op)) {
            (Some(listener), Some(state)) => self.deferred.changed.push((listener, state)),
            (listener, _) => self.deferred.listeners.extend(listener),
        }
    }

    pub(super) fn placed(&mut self, op: Op) {
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

    pub(super) fn listener(&self, op: Op) -> Option<Arc<dyn HoldListener>> {
        self.entries.get(&op)?.listener.as_ref()?.upgrade()
    }

    pub(super) fn watch(&mut self, ask: &Ask, watcher: OneshotWatcher, room: Option<Reservation>) {
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
    pub(super) fn node_bytes(&self, path: Path, name: Name) -> usize {
        self.root_bytes + names::own(&self.paths.text(path), name).len()
    }

    /// The bytes of the path that is watched.
    pub(super) fn watch_bytes(&self, ask: &Ask) -> usize {
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
    pub(super) fn reserve_room(&mut self, op: Op, ask: &Ask) -> Result<Option<Reservation>, Outcome> {
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

/// The upper half of the guids of a session's nodes.
pub(crate) fn nonce() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

pub(super) fn ended(reason: impl Into<String>) -> Error {
    Error::SessionEnded { reason: reason.into() }
}
