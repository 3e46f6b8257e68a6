//! Timers: when the driver has to call the machine again because time has passed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Machine, Moment, Op, Path, Trust};

/// The time between two fallback polls, in microseconds, unless an early one is scheduled. Each session adds up to half
/// of it, so that not all sessions poll at the same time.
const FALLBACK_POLL: u64 = 20_000_000;

/// Returns the microseconds until the next fallback poll. The seed differs between sessions, so that not all poll at the
/// same time.
pub fn fallback_interval(seed: u64) -> u64 {
    FALLBACK_POLL + seed % (FALLBACK_POLL / 2)
}

/// A timer, by what happens when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Timer {
    /// Sends lost requests again over a connection that is still up.
    Resume,
    /// Sends the confirm again that a grant waits for.
    Confirm,
    /// Starts the second search for nodes of lost creates.
    SearchAgain(Path),
    /// Fires every sixteenth of the session timeout while there are holds.
    Tick,
    /// Sends a read or a write that renews trust and is due before the next tick.
    Renew,
    TrustEnds,
    /// Ends a hold whose work stands still.
    Stall(Op),
    /// Ends a `try` for permits that has waited too long for its turn.
    Turn(Op),
    /// Lists the nodes of this session, because some of them are not watched.
    ListOwn,
    /// Runs the fallback poll, because an event may never come.
    FallbackPoll,
    CloseBy,
}

/// The timers that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timers {
    pub set: BTreeMap<Timer, Moment>,
    due: BTreeSet<(Moment, Timer)>,
}

impl Timers {
    /// Sets a timer. If it is set already, the earlier time counts; for [`Timer::SearchAgain`] the later.
    pub fn set(&mut self, timer: Timer, at: Moment) {
        let before = self.set.get(&timer).copied();
        let at = match (before, timer) {
            (Some(before), Timer::SearchAgain(_)) => before.max(at),
            (before, _) => before.map_or(at, |before| before.min(at)),
        };
        if before == Some(at) {
            return;
        }
        self.remove(timer);
        self.set.insert(timer, at);
        self.due.insert((at, timer));
    }

    /// Removes a timer. Returns when it was due.
    pub fn remove(&mut self, timer: Timer) -> Option<Moment> {
        let at = self.set.remove(&timer)?;
        self.due.remove(&(at, timer));
        Some(at)
    }

    pub fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    fn first_due(&self, now: Moment) -> Option<Timer> {
        self.due.first().filter(|(at, _)| *at <= now).map(|(_, timer)| *timer)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<T: Trust> Machine<T> {
    /// Returns when the driver has to send the next [`Event::Timeout`](crate::Event::Timeout), if any.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.timers.next()
    }

    pub fn is_due(&self, timer: Timer, now: Moment) -> bool {
        self.timers.set.get(&timer).is_some_and(|at| *at <= now)
    }

    pub fn timeout(&mut self, now: Moment) {
        while let Some(timer) = self.timers.first_due(now) {
            self.fire(now, timer);
        }
    }

    pub fn fire(&mut self, now: Moment, timer: Timer) {
        let due = self.timers.remove(timer);
        match timer {
            Timer::Resume => self.resume(now, false),
            Timer::Confirm => self.confirm_all(now),
            Timer::SearchAgain(path) => self.search_again(path),
            Timer::Tick => self.tick(now),
            Timer::Renew => self.renew(now),
            Timer::TrustEnds => self.trust_ended(now),
            Timer::Stall(op) => self.stalled(now, op, due),
            Timer::Turn(op) => self.turn_is_late(now, op),
            Timer::ListOwn => self.list_unwatched(now),
            Timer::FallbackPoll => self.fallback_poll(now),
            Timer::CloseBy => self.close_by(),
        }
    }

    pub(crate) fn schedule_fallback_poll(&mut self, now: Moment) {
        self.timers.set(Timer::FallbackPoll, now.plus(fallback_interval(self.nonce)));
    }

    /// Schedules an early fallback poll, because a predecessor is not watched.
    pub(crate) fn fallback_poll_soon(&mut self, now: Moment) {
        self.timers.set(Timer::FallbackPoll, now.plus(self.timeout.0 / 3));
    }
}
