//! Owns [`Entry`]: the requests in flight, watches, reservations and the waker of an acquisition.

use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::driver::budget::Reservation;
use crate::driver::draft::Draft;
use crate::driver::progress::Progress;
use crate::driver::wire::{Answer, Answered};
use crate::error::Error;
use crate::locked::locked;
use crate::machine::{Ask, HoldState, Loss, Moment, Name, Op, Outcome, Watch};
use crate::options::REVOKE;

/// After this many throttled answers in a row, a create, listing, confirm or downgrade fails. Other requests are sent again.
const MAX_THROTTLED: u8 = 11;
/// After this many unknown errors in a row, deletes fail.
const MAX_UNKNOWN_ERRORS: u8 = 50;

/// The callbacks by which a hold follows its acquisition.
pub(crate) trait HoldListener: Send + Sync {
    /// Reports a new state, perhaps the end of the hold. `is_one_of_several`: other holds are lost with this one, and one
    /// warning covers all of them.
    fn changed(&self, state: HoldState, is_one_of_several: bool);

    /// Returns the loss that the hold would log as a warning in this state.
    fn warns_of(&self, state: HoldState) -> Option<Loss>;

    /// Passes on the data of one of the hold's nodes, which may be a revocation request.
    fn saw(&self, data: &[u8]);
}

/// The acquisitions that the driver has to poll. The list has its own lock, because the client may wake us under any lock.
#[derive(Default)]
pub(super) struct Ready {
    ops: Mutex<Vec<Op>>,
    /// Wakes the driver.
    pub(super) driver: Notify,
}

/// Wakes the driver when the client has a new state.
impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.driver.notify_one();
    }
}

impl Ready {
    pub(super) fn extend(&self, ops: impl IntoIterator<Item = Op>) {
        locked(&self.ops).extend(ops);
        self.driver.notify_one();
    }

    pub(super) fn take(&self) -> Vec<Op> {
        std::mem::take(&mut *locked(&self.ops))
    }
}

/// A request in flight.
pub(super) struct Flight {
    pub(super) ask: Ask,
    pub(super) sent: Moment,
    pub(super) epoch: u64,
    pub(super) generation: u64,
    /// `None` while a reader polls the answer without the lock.
    pub(super) answer: Option<Answer>,
    /// Another reader looked for the answer while it was polled, and is woken afterwards. A caller that has read the answer
    /// wakes nobody, because it goes on reading.
    pub(super) is_missed: bool,
    /// The reservation for the watch that the request sets, unless [`Entry::watch_reservation`] has it.
    pub(super) reservation: Option<Reservation>,
}

/// A watch whose event has not been read yet.
pub(super) struct Watching {
    pub(super) watch: Watch,
    /// Resolves when the watch fires. The value is whether the node was deleted.
    pub(super) fires: Pin<Box<dyn Future<Output = bool> + Send>>,
    pub(super) _reservation: Option<Reservation>,
}

/// A watch that has fired, and whether its node was deleted.
pub(super) type Fired = (Watch, bool);

/// An event or an answer for an acquisition.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Next {
    Fired(Fired),
    Answered(Flight, Answered),
}

/// The driver's record of an acquisition: what it waits for, and what it has reserved.
pub(super) struct Entry {
    pub(super) flights: VecDeque<Flight>,
    pub(super) watches: Vec<Watching>,
    pub(super) draft: Arc<Draft>,
    pub(super) waker: Arc<OpWaker>,
    pub(super) progress: Option<Arc<Progress>>,
    pub(super) listener: Option<Weak<dyn HoldListener>>,
    /// The error with which it was refused.
    pub(super) refusal: Option<Error>,
    /// The reservation for its nodes and for that of its turn, kept until this entry is dropped.
    pub(super) _node_reservation: Option<Reservation>,
    /// The reservation for the watch on its predecessor, kept while it queues.
    pub(super) watch_reservation: Option<Reservation>,
    /// How many times in a row each kind of request was throttled, or a delete met an unknown error.
    pub(super) throttled: HashMap<Discriminant<Ask>, u8>,
    /// Its nodes whose data are a revocation request, kept until there is a hold to report to.
    pub(super) asked_back: Vec<Name>,
    /// The watch on its own node was refused, and a warning was logged.
    pub(super) is_unwatched: bool,
}

/// Wakes whoever reads the answers of an acquisition: its caller, the driver, or both.
pub(super) struct OpWaker {
    op: Op,
    ready: Arc<Ready>,
    caller: Mutex<Option<Waker>>,
    /// The caller alone reads, so the driver is not woken. If the caller's waker is gone, it has been woken already.
    caller_reads_alone: AtomicBool,
}

impl OpWaker {
    /// Sets the caller's waker. If the caller `reads_alone`, the driver is not woken from now on. Returns the previous waker,
    /// which must be dropped after unlock.
    pub(super) fn await_by(&self, caller: Waker, reads_alone: bool) -> Option<Waker> {
        let before = locked(&self.caller).replace(caller);
        self.caller_reads_alone.store(reads_alone, Ordering::Release);
        before
    }

    /// From now on, wakes the driver as well as the caller.
    pub(super) fn share(&self) {
        self.caller_reads_alone.store(false, Ordering::Release);
    }

    /// From now on, wakes the driver. Returns the caller's last waker.
    pub(super) fn leave(&self) -> Option<Waker> {
        self.share();
        self.take()
    }

    fn take(&self) -> Option<Waker> {
        locked(&self.caller).take()
    }
}

impl Wake for OpWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let caller = self.take();
        if !self.caller_reads_alone.load(Ordering::Acquire) {
            self.ready.extend([self.op]);
        }
        caller.into_iter().for_each(Waker::wake);
    }
}

impl Entry {
    pub(super) fn new(ready: &Arc<Ready>, op: Op, draft: Arc<Draft>) -> Self {
        let waker = OpWaker {
            op,
            ready: Arc::clone(ready),
            caller: Mutex::default(),
            caller_reads_alone: AtomicBool::new(false),
        };
        Self {
            flights: VecDeque::new(),
            watches: Vec::new(),
            draft,
            waker: Arc::new(waker),
            progress: None,
            listener: None,
            refusal: None,
            _node_reservation: None,
            watch_reservation: None,
            throttled: HashMap::new(),
            asked_back: Vec::new(),
            is_unwatched: false,
        }
    }

    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.waker))
    }

    /// Returns the next answer or event, except the answer to a listing. Reading answers first may save a listing: a waiter
    /// whose own watch is known to be set needs none.
    pub(super) fn next(&mut self) -> Option<Next> {
        let waker = self.waker();
        let mut cx = Context::from_waker(&waker);
        if !self.has_listing()
            && let Some((flight, answered)) = self.next_answered(&mut cx)
        {
            return Some(Next::Answered(flight, answered));
        }
        self.next_fired(&mut cx).map(Next::Fired)
    }

    /// Whether the next answer is to a listing. Decoding a listing takes long, so this answer is polled without the lock.
    pub(super) fn has_listing(&self) -> bool {
        self.flights.front().is_some_and(|first| matches!(first.ask, Ask::List { .. } | Ask::ListOwn))
    }

    /// Takes the pending answer if the first request is a listing, to poll it without the lock. Also returns when the
    /// request was sent.
    pub(super) fn take_listing(&mut self) -> Option<(Answer, Moment, Waker)> {
        let has_listing = self.has_listing();
        let first = self.flights.front_mut().filter(|_| has_listing)?;
        first.is_missed = first.answer.is_none();
        Some((first.answer.take()?, first.sent, self.waker()))
    }

    fn next_fired(&mut self, cx: &mut Context<'_>) -> Option<Fired> {
        let (at, is_deleted) = self.watches.iter_mut().enumerate().find_map(|(at, watching)| {
            match watching.fires.poll_unpin(cx) {
                Poll::Ready(is_deleted) => Some((at, is_deleted)),
                Poll::Pending => None,
            }
        })?;
        Some((self.watches.remove(at).watch, is_deleted))
    }

    /// Removes the first request if its answer has come, and returns both.
    pub(super) fn answered(&mut self) -> Option<(Flight, Answered)> {
        let waker = self.waker();
        self.next_answered(&mut Context::from_waker(&waker))
    }

    fn next_answered(&mut self, cx: &mut Context<'_>) -> Option<(Flight, Answered)> {
        match self.flights.front_mut()?.answer.as_mut()?.poll_unpin(cx) {
            Poll::Ready(answered) => Some((self.flights.pop_front()?, answered)),
            Poll::Pending => None,
        }
    }

    /// Bounds retries: too many throttled answers or unknown errors in a row make the request fail.
    pub(super) fn bound(&mut self, ask: &Ask, answered: &mut Answered) {
        let is_unknown_error = answered.outcome == Outcome::UnknownError && matches!(ask, Ask::Delete { .. });
        if !answered.is_throttled && !is_unknown_error {
            self.throttled.remove(&discriminant(ask));
            if answered.outcome == Outcome::UnknownError && matches!(ask, Ask::List { .. }) {
                answered.outcome = Outcome::Refused;
            }
            return;
        }
        let count = self.throttled.entry(discriminant(ask)).or_default();
        *count = count.saturating_add(1);
        let is_over = *count >= if is_unknown_error { MAX_UNKNOWN_ERRORS } else { MAX_THROTTLED };
        answered.outcome = match ask {
            // Some servers apply a create and still answer that they throttle it. After an `UnknownError` the call fails, and
            // the path is searched for its nodes; after `Refused` there would be no search.
            Ask::Create { .. } | Ask::List { .. } if is_over => Outcome::UnknownError,
            Ask::Confirm { .. } | Ask::Replace { .. } if is_over => Outcome::Refused,
            Ask::Delete { .. } if is_over && is_unknown_error => Outcome::Refused,
            _ => Outcome::Unknown,
        };
    }

    /// Notes whether the data of a node are a revocation request.
    pub(super) fn saw(&mut self, name: Name, data: &[u8]) {
        self.asked_back.retain(|asked| *asked != name);
        if data == REVOKE {
            self.asked_back.push(name);
        }
    }

    /// Drops everything that belongs to the session that has ended, and keeps what the next one needs.
    pub(super) fn session_over(&mut self) {
        self.flights.clear();
        self.watches.clear();
        self.throttled.clear();
        self.asked_back.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty() && self.watches.is_empty()
    }
}
