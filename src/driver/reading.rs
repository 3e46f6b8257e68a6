//! Reads the answers to an acquisition's requests, and the events of its watches.
//!
//! 1. The answers of one acquisition are read in the order of its requests, so only the first is polled. The caller polls it
//!    if there is one, and otherwise the driver. While the session is being drained or closed, both poll it.
//! 2. A listing is decoded without the lock.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;

use crate::clock::now;
use crate::driver::core::{Core, StateGuard};
use crate::driver::entry::{Entry, Flight, Next};
use crate::driver::names;
use crate::driver::state::{Reader, State};
use crate::driver::wire::{Answer, Answered};
use crate::locked::locked;
use crate::machine::{Ask, Event, Moment, Op, Outcome, Path, SESSION, caller_of, is_turn};

/// The answer to a listing while it is polled without the lock. If the reader panics, the answer counts as lost.
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

    /// Returns the requests of the acquisition, if the listing is still the first of them.
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

impl Core {
    /// Reads all answers and events that have come for an acquisition. Releases the lock while it decodes a listing.
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
                // listing is taken: other readers wait while a listing is taken.
                drop(state);
                state = self.lock_current();
            }
            let generation = state.generation;
            let taken = state.entries.get_mut(&op).and_then(Entry::take_listing);
            let Some((answer, sent, waker)) = taken else { return state };
            let mut listing = Taken { core: self, op, generation, sent, answer: Some(answer) };
            drop(state);
            let polled = listing.poll(&mut Context::from_waker(&waker));
            state = self.lock_current();
            let answer = listing.answer.take();
            let Poll::Ready(answered) = polled else {
                answer.into_iter().for_each(|answer| listing.put_back(&mut state, answer));
                return state;
            };
            let Some(flight) = listing.flights(&mut state).and_then(VecDeque::pop_front) else { return state };
            let (before, is_missed) = (state.read_by(op, reader), flight.is_missed);
            self.answered(&mut state, flight, answered);
            if is_missed {
                state.wake(op);
            }
            state.reading = before;
        }
    }

    /// Reads the answers and events that are ready, except listings.
    fn read_ready(self: &Arc<Self>, state: &mut State, op: Op, reader: Reader) {
        let before = state.read_by(op, reader);
        while let Some(next) = state.entries.get_mut(&op).and_then(Entry::next) {
            match next {
                Next::Fired((watch, is_deleted)) => {
                    let generation = state.generation;
                    self.connection(state);
                    // If the session has ended meanwhile, the watch has gone with it.
                    if generation == state.generation {
                        self.decide(state, Event::Fired { watch, is_deleted });
                    }
                }
                Next::Answered(flight, answered) => self.answered(state, flight, answered),
            }
        }
        state.reading = before;
    }

    fn answered(self: &Arc<Self>, state: &mut State, flight: Flight, mut answered: Answered) {
        let Flight { ask, sent, epoch, generation, reservation, .. } = flight;
        self.connection(state);
        state.runtime_is_gone |= answered.runtime_is_gone;
        state.deferred.wakes_driver |= state.runtime_is_gone;
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
                // The error of an earlier attempt is no reason to fail any more.
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
            state.watch(&ask, watcher, reservation);
        }
        let is_stale = epoch != state.epoch;
        self.decide(state, Event::Answer { ask, sent, is_stale, outcome: answered.outcome });
    }

    /// Reads the answers to creates that were sent before this listing, for all acquisitions that share the listing. These
    /// answers have come, but their callers may not have read them. Until then an acquisition does not know its node, and
    /// the listing would give it no position. The answer to a request that was sent later must not be read before the
    /// listing: an acquisition's answers are read in the order of its requests.
    fn read_creates(self: &Arc<Self>, state: &mut State, path: Path, listed: Moment) {
        // An older delete of the same acquisition may come before the create, so its answer is read, too.
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

    /// Reads answers and events for the acquisitions on the driver's ready list. Returns whether there were any.
    pub(super) fn poll_ready(self: &Arc<Self>) -> bool {
        let ready = self.ready.take();
        let has_any = !ready.is_empty();
        for op in ready {
            self.read(self.lock_current(), op, Reader::Driver).forget(op);
        }
        has_any
    }

    /// Reads the answers to requests that were sent more than *T*/8 ago. Other calls may wait for a listing among them. From
    /// then on the driver also reads for these callers, until they poll again. Returns whether there were any.
    pub(super) fn poll_late(self: &Arc<Self>) -> bool {
        let state = self.lock();
        let limit = now().minus(state.machine.session_timeout() / 8);
        let is_late = |entry: &Entry| entry.flights.front().is_some_and(|first| first.sent < limit);
        let late = state.entries.iter().filter(|(_, entry)| is_late(entry));
        let late: Vec<Op> = late.inspect(|(_, entry)| entry.waker.share()).map(|(op, _)| *op).collect();
        drop(state);
        let has_any = !late.is_empty();
        late.into_iter().for_each(|op| drop(self.read(self.lock_current(), op, Reader::Driver)));
        has_any
    }
}
