//! Owns [`Entry`]: the requests in flight, watches, reservations and wakers of an acquisition.

use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::driver::budget::Reservation;
use crate::driver::draft::Draft;
use crate::driver::wire::{Answer, Answered};
use crate::error::Error;
use crate::locked::locked;
use crate::machine::{Ask, HoldState, Loss, Moment, Op, Outcome, Watch};

/// After this many throttled answers in a row, a create, listing, confirm or downgrade fails. All other requests are sent again.
const MAX_THROTTLED: u8 = 11;
/// After this many unknown errors in a row, a delete fails.
const MAX_UNKNOWN_ERRORS: u8 = 50;

/// The callbacks by which a hold follows its acquisition.
pub(crate) trait HoldListener: Send + Sync {
    /// Reports a new state, perhaps the end of the hold. `is_one_of_several`: other holds are lost with this one, and one
    /// warning covers all of them.
    fn changed(&self, state: HoldState, is_one_of_several: bool);

    /// Returns the loss that the hold would log as a warning in this state.
    fn warns_of(&self, state: HoldState) -> Option<Loss>;
}

/// The list of acquisitions with unread answers or events, in the order in which the answers and events came. The list has
/// its own lock, because the client may call our wakers while the session's lock is held.
#[derive(Default)]
pub(super) struct Ready {
    ops: Mutex<VecDeque<Op>>,
    /// Wakes the session's task.
    pub(super) driver: Notify,
}

/// Wakes the session's task when the client has a new state.
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

    /// Moves all acquisitions to the end of `unread`.
    pub(super) fn drain_to(&self, unread: &mut VecDeque<Op>) {
        unread.append(&mut locked(&self.ops));
    }
}

/// A request in flight.
pub(super) struct Flight {
    pub(super) ask: Ask,
    pub(super) sent: Moment,
    pub(super) epoch: u64,
    pub(super) generation: u64,
    /// `None` while a listing is decoded without the lock.
    pub(super) answer: Option<Answer>,
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

/// An event or an answer for an acquisition.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Next {
    /// A watch, and whether its node was deleted.
    Fired(Watch, bool),
    Answered(Flight, Answered),
}

/// The driver's record of an acquisition: what it waits for, and what it has reserved.
pub(super) struct Entry {
    pub(super) flights: VecDeque<Flight>,
    pub(super) watches: Vec<Watching>,
    pub(super) draft: Arc<Draft>,
    /// Puts the acquisition on the list of [`Ready`], and wakes the session's task.
    pub(super) waker: Waker,
    /// The waker of the acquisition's caller, while the caller waits.
    pub(super) caller: Option<Waker>,
    /// Whether the caller is woken when it is known how many contenders are ahead.
    pub(super) wakes_when_placed: bool,
    pub(super) listener: Option<Weak<dyn HoldListener>>,
    /// The error with which the acquisition was refused.
    pub(super) refusal: Option<Error>,
    /// The reservation for its nodes and for the node of its turn, kept until this entry is dropped.
    pub(super) _node_reservation: Option<Reservation>,
    /// The reservation for the watch on a predecessor, kept while the acquisition queues.
    pub(super) watch_reservation: Option<Reservation>,
    /// How many times in a row each kind of request was throttled, or a delete met an unknown error.
    pub(super) throttled: HashMap<Discriminant<Ask>, u8>,
}

/// Puts an acquisition on the list of [`Ready`] when an answer or an event has come for it.
struct Unread {
    op: Op,
    ready: Arc<Ready>,
}

impl Wake for Unread {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.extend([self.op]);
    }
}

impl Entry {
    pub(super) fn new(ready: &Arc<Ready>, op: Op, draft: Arc<Draft>) -> Box<Self> {
        Box::new(Self {
            flights: VecDeque::new(),
            watches: Vec::new(),
            draft,
            waker: Arc::new(Unread { op, ready: Arc::clone(ready) }).into(),
            caller: None,
            wakes_when_placed: false,
            listener: None,
            refusal: None,
            _node_reservation: None,
            watch_reservation: None,
            throttled: HashMap::new(),
        })
    }

    /// Returns the next answer or, without one, the next event. Never returns the answer to a listing. Answers come first,
    /// because they may save a listing: a waiter that knows that the watch on its own node is set needs no listing.
    pub(super) fn next(&mut self) -> Option<Next> {
        let mut cx = Context::from_waker(&self.waker);
        let answer = if self.has_listing() { None } else { self.flights.front_mut() };
        if let Some(Poll::Ready(answered)) =
            answer.and_then(|first| Some(first.answer.as_mut()?.poll_unpin(&mut cx)))
        {
            return Some(Next::Answered(self.flights.pop_front()?, answered));
        }
        let mut fired = first_fired(&mut self.watches, &mut cx)?;
        // An earlier watch of the list may have fired after its poll above, yet before this one. So the earlier watches are
        // polled again, and read first.
        while let Some(before) = first_fired(&mut self.watches[..fired.0], &mut cx) {
            let (at, is_deleted) = std::mem::replace(&mut fired, before);
            self.watches[at].fires = std::future::ready(is_deleted).boxed();
        }
        let (at, is_deleted) = fired;
        Some(Next::Fired(self.watches.remove(at).watch, is_deleted))
    }

    fn has_listing(&self) -> bool {
        self.flights.front().is_some_and(|first| matches!(first.ask, Ask::List { .. } | Ask::ListOwn))
    }

    /// Takes the pending answer if the first request is a listing, to poll it without the lock: decoding it takes long.
    pub(super) fn take_listing(&mut self) -> Option<(Answer, Waker)> {
        let has_listing = self.has_listing();
        let first = self.flights.front_mut().filter(|_| has_listing)?;
        Some((first.answer.take()?, self.waker.clone()))
    }

    /// Bounds retries: too many throttled answers or unknown errors in a row make the request fail.
    pub(super) fn bound(&mut self, ask: &Ask, answered: &mut Answered) {
        let is_unknown_error = answered.outcome == Outcome::UnknownError && matches!(ask, Ask::Delete { .. });
        if !answered.is_throttled && !is_unknown_error {
            self.throttled.retain(|kind, _| *kind != discriminant(ask));
            return;
        }
        let count = self.throttled.entry(discriminant(ask)).or_default();
        *count = count.saturating_add(1);
        let is_over = *count >= if is_unknown_error { MAX_UNKNOWN_ERRORS } else { MAX_THROTTLED };
        answered.outcome = match ask {
            // Some servers apply a create and still answer that they throttle it. After an `UnknownError` the call fails, and
            // the path is searched for the created nodes. After `Refused` there would be no search.
            Ask::Create { .. } | Ask::List { .. } if is_over => Outcome::UnknownError,
            Ask::Confirm { .. } | Ask::Replace { .. } if is_over => Outcome::Refused,
            Ask::Delete { .. } if is_over && is_unknown_error => Outcome::Refused,
            _ => Outcome::Unknown,
        };
    }

    /// Drops everything that belongs to the ZooKeeper session that has ended. Keeps what the next session needs.
    pub(super) fn session_over(&mut self) {
        self.flights.clear();
        self.watches.clear();
        self.throttled.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty() && self.watches.is_empty()
    }
}

/// Returns the index of the first watch that has fired, and whether its node was deleted.
fn first_fired(watches: &mut [Watching], cx: &mut Context<'_>) -> Option<(usize, bool)> {
    watches.iter_mut().enumerate().find_map(|(at, watching)| match watching.fires.poll_unpin(cx) {
        Poll::Ready(is_deleted) => Some((at, is_deleted)),
        Poll::Pending => None,
    })
}
