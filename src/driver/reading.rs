//! Reads the answers to requests, and the events of watches, on the session's task only. The machine handles them and decides
//! which callers to wake.
//!
//! 1. Answers are read about in the order in which they came, and those of one acquisition in the order of its requests. So a
//!    listing is mostly read after the creates before it, and need not be repeated for them.
//! 2. A listing is decoded without the lock.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;

use crate::driver::core::{Core, StateGuard};
use crate::driver::entry::{Flight, Next};
use crate::driver::names;
use crate::driver::state::{RUNTIME_GONE, State};
use crate::driver::wire::Answered;
use crate::locked::locked;
use crate::machine::{Ask, Event, Op, Outcome, SESSION};

/// After this many answers and events the lock is released once, for other threads. Callers are woken then, too.
const MOST_AT_ONCE: usize = 64;

impl Core {
    /// Reads the answers and events that have come. Later ones wake the task again, so timers are fired in between. `unread`: a
    /// buffer to reuse, which is empty before and after.
    pub(super) fn read<'a>(
        self: &'a Arc<Self>,
        mut state: StateGuard<'a>,
        unread: &mut VecDeque<Op>,
    ) -> StateGuard<'a> {
        let mut read = 0;
        self.ready.drain_to(unread);
        loop {
            read += 1;
            if read % MOST_AT_ONCE == 0 {
                drop(state);
                state = self.lock_current();
            }
            unread.append(&mut state.deferred.unread);
            let Some(op) = unread.pop_front() else {
                return state;
            };
            match state.entries.get_mut(&op).and_then(|entry| entry.next()) {
                Some(Next::Fired(watch, is_deleted)) => {
                    let generation = state.generation;
                    self.connection(&mut state);
                    // If the ZooKeeper session has ended meanwhile, its watches are gone.
                    if generation == state.generation {
                        self.decide(&mut state, Event::Fired { watch, is_deleted });
                    }
                }
                Some(Next::Answered(flight, answered)) => self.answered(&mut state, flight, answered),
                None => {
                    let has_read;
                    (state, has_read) = self.read_listing(state, op);
                    if !has_read {
                        state.forget(op);
                        continue;
                    }
                }
            }
            // Answers for other acquisitions that are already here are read before the next answer for this acquisition.
            unread.push_back(op);
        }
    }

    /// Reads the answer to the first request of an acquisition, if this request is a listing and its answer has come. Returns
    /// whether an answer was read.
    fn read_listing<'a>(self: &'a Arc<Self>, mut state: StateGuard<'a>, op: Op) -> (StateGuard<'a>, bool) {
        let generation = state.generation;
        let taken = state.entries.get_mut(&op).and_then(|entry| entry.take_listing());
        let Some((mut answer, waker)) = taken else { return (state, false) };
        drop(state);
        let polled = answer.poll_unpin(&mut Context::from_waker(&waker));
        state = self.lock_current();
        // If the session has ended meanwhile, its requests are dropped.
        let is_present = state.generation == generation;
        let Some(entry) = state.entries.get_mut(&op).filter(|_| is_present) else { return (state, false) };
        let Poll::Ready(answered) = polled else {
            if let Some(listing) = entry.flights.front_mut() {
                listing.answer = Some(answer);
            }
            return (state, false);
        };
        let Some(listing) = entry.flights.pop_front() else { return (state, false) };
        self.answered(&mut state, listing, answered);
        (state, true)
    }

    fn answered(self: &Arc<Self>, state: &mut State, flight: Flight, mut answered: Answered) {
        let Flight { ask, sent, epoch, generation, reservation, .. } = flight;
        self.connection(state);
        if answered.runtime_is_gone {
            self.end(state, RUNTIME_GONE);
        }
        if generation != state.generation {
            return;
        }
        let op = ask.op().unwrap_or(SESSION);
        if let Some(entry) = state.entries.get_mut(&op) {
            entry.bound(&ask, &mut answered);
            if matches!(answered.outcome, Outcome::Created { .. }) {
                // The error of an earlier attempt is no reason to fail any more.
                entry.refusal = None;
            }
        }
        state.warn_of(&ask, &answered);
        // A request with an unknown outcome is sent again, so it was not refused.
        if answered.outcome != Outcome::Unknown {
            match (&ask, answered.refusal.take(), state.entries.get_mut(&op)) {
                (Ask::List { path, .. }, refusal, _) => state.paths.listing_refused(*path, refusal),
                (_, Some(refusal), Some(entry)) => entry.refusal = Some(refusal),
                _ => {}
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
        if let Some(acquisition) = ask.acquisition().filter(|_| answered.asks_back) {
            self.decide(state, Event::AskedBack(acquisition));
        }
        if let Some(watcher) = answered.watcher {
            state.watch(&ask, watcher, reservation);
        }
        let is_stale = epoch != state.epoch;
        self.decide(state, Event::Answer { ask, sent, is_stale, outcome: answered.outcome });
    }
}

impl State {
    /// Logs the first refused delete of a node. An operator has to fix the cause, most often an ACL.
    fn warn_of(&self, ask: &Ask, answered: &Answered) {
        let (Ask::Delete { nodes, .. }, Some(refusal)) = (ask, &answered.refusal) else { return };
        let [(path, name)] = nodes[..] else { return };
        if answered.outcome == Outcome::Refused && !self.machine.is_refused((path, name)) {
            let (node, error) = (names::own(&self.paths.text(path), name), refusal.clone());
            self.reports.push(move || {
                let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                tracing::warn!(node, error, "cannot delete a lock node; trying again until its session ends");
            });
        }
    }
}
