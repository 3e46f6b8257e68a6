//! What an acquisition has under way: its requests and watches, the room that it has taken, and whom to wake for it.

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

/// After this number of throttled answers in a row, a kind of request fails. `MOST_ODD`: the same for deletes that get an
/// unknown error.
const MOST_THROTTLED: u8 = 11;
const MOST_ODD: u8 = 50;

/// What a hold learns of its acquisition.
pub(crate) trait HoldListener: Send + Sync {
    /// Something has changed; perhaps the hold has ended.
    /// `has_company`: other holds of the session are lost with it, and one warning is for all.
    fn changed(&self, state: HoldState, has_company: bool);

    /// The loss that it would warn of in this state.
    fn warns_of(&self, state: HoldState) -> Option<Loss>;

    /// The data of one of its nodes.
    fn saw(&self, data: &[u8]);
}

/// The acquisitions that the driver has to poll. It has a lock of its own, because the client may wake us while we hold another.
#[derive(Default)]
pub(super) struct Ready {
    ops: Mutex<Vec<Op>>,
    /// Wakes the driver.
    pub(super) driver: Notify,
}

/// The state of the client has changed.
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

/// A request under way.
pub(super) struct Flight {
    pub(super) ask: Ask,
    pub(super) sent: Moment,
    pub(super) epoch: u64,
    pub(super) generation: u64,
    /// `None` while a reader polls it without the lock.
    pub(super) answer: Option<Answer>,
    /// Another reader was woken for it meanwhile, and has not found it.
    pub(super) is_missed: bool,
    /// Of the watch that it sets, unless its waiter has that room.
    pub(super) room: Option<Reservation>,
}

/// A watch that is set, or whose event has not been looked for.
pub(super) struct Watching {
    pub(super) watch: Watch,
    /// Resolves with whether the node was deleted.
    pub(super) fires: Pin<Box<dyn Future<Output = bool> + Send>>,
    /// Since when a waiter waits behind this node, until that is reported.
    pub(super) since: Option<Moment>,
    pub(super) _room: Option<Reservation>,
}

/// A watch that has fired, and whether its node was deleted.
pub(super) type Fired = (Watch, bool);

/// What has come for an acquisition.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Next {
    Fired(Fired),
    Answered(Flight, Answered),
}

/// What an acquisition waits for.
pub(super) struct Entry {
    pub(super) flights: VecDeque<Flight>,
    pub(super) watches: Vec<Watching>,
    pub(super) draft: Arc<Draft>,
    pub(super) waker: Arc<OpWaker>,
    pub(super) progress: Option<Arc<Progress>>,
    pub(super) listener: Option<Weak<dyn HoldListener>>,
    /// Why it was refused.
    pub(super) refusal: Option<Error>,
    /// The reservation of its nodes, held until this entry is dropped.
    pub(super) _node_room: Option<Reservation>,
    /// The room for the node of its turn, until it holds.
    pub(super) turn_room: Option<Reservation>,
    /// The reservation of the watch on a predecessor, held until it waits no more.
    pub(super) watch_room: Option<Reservation>,
    /// It was behind others at its last look, so it is not turned away any more.
    pub(super) has_waited: bool,
    /// How often in a row each kind of request was throttled, or refused in an odd way.
    pub(super) throttled: HashMap<Discriminant<Ask>, u8>,
    /// Those of its nodes whose data ask for the lock. They are noted here until there is a hold to report it to.
    pub(super) asked_back: Vec<Name>,
    /// The watch on its own node was refused, which is in the log.
    pub(super) is_unwatched: bool,
}

/// Wakes the caller of an acquisition while there is one, and else the driver.
pub(super) struct OpWaker {
    op: Op,
    ready: Arc<Ready>,
    caller: Mutex<Option<Waker>>,
    /// A caller polls this acquisition. If its waker is gone, it was already woken, and will poll again.
    has_caller: AtomicBool,
}

impl OpWaker {
    /// Returns the waker of before, which is to be dropped without a lock.
    pub(super) fn await_by(&self, caller: Waker) -> Option<Waker> {
        let before = locked(&self.caller).replace(caller);
        self.has_caller.store(true, Ordering::Release);
        before
    }

    /// From now on the driver is woken when no waker of a caller is there.
    pub(super) fn share(&self) {
        self.has_caller.store(false, Ordering::Release);
    }

    /// From now on the driver is woken. Returns the last waker of the caller.
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
        match self.take() {
            Some(caller) => caller.wake(),
            None if self.has_caller.load(Ordering::Acquire) => {}
            None => self.ready.extend([self.op]),
        }
    }
}

impl Entry {
    pub(super) fn new(ready: &Arc<Ready>, op: Op, draft: Arc<Draft>) -> Self {
        let waker =
            OpWaker { op, ready: Arc::clone(ready), caller: Mutex::default(), has_caller: AtomicBool::new(false) };
        Self {
            flights: VecDeque::new(),
            watches: Vec::new(),
            draft,
            waker: Arc::new(waker),
            progress: None,
            listener: None,
            refusal: None,
            _node_room: None,
            turn_room: None,
            watch_room: None,
            has_waited: false,
            throttled: HashMap::new(),
            asked_back: Vec::new(),
            is_unwatched: false,
        }
    }

    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.waker))
    }

    /// What has come next, but for a listing. The order decides nothing, because everything is read before a grant is taken. But an
    /// answer before an event may save a listing: a waiter whose own watch is known to be set needs none.
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

    /// Whether the next answer is that to a listing. Decoding it takes long, so it is polled without the lock.
    pub(super) fn has_listing(&self) -> bool {
        self.flights.front().is_some_and(|first| matches!(first.ask, Ask::List { .. } | Ask::ListOwn))
    }

    /// Takes the answer to a listing out, with the moment when it was sent.
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

    /// The first request, if its answer is there.
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

    /// A request that is throttled again and again, or refused in an odd way, is refused in the end.
    pub(super) fn bound(&mut self, ask: &Ask, answered: &mut Answered) {
        let is_odd = answered.outcome == Outcome::UnknownError && matches!(ask, Ask::Delete { .. });
        if !answered.is_throttled && !is_odd {
            self.throttled.remove(&discriminant(ask));
            if answered.outcome == Outcome::UnknownError && matches!(ask, Ask::List { .. }) {
                answered.outcome = Outcome::Refused;
            }
            return;
        }
        let count = self.throttled.entry(discriminant(ask)).or_default();
        *count = count.saturating_add(1);
        let is_over = *count >= if is_odd { MOST_ODD } else { MOST_THROTTLED };
        answered.outcome = match ask {
            // Some servers have done it all the same, and lost creates are still to be looked for.
            Ask::Create { .. } | Ask::List { .. } if is_over => Outcome::UnknownError,
            Ask::Confirm { .. } | Ask::Replace { .. } if is_over => Outcome::Refused,
            Ask::Delete { .. } if is_over && is_odd => Outcome::Refused,
            _ => Outcome::Unknown,
        };
    }

    /// Notes whether somebody asks for the lock in the data of a node.
    pub(super) fn saw(&mut self, name: Name, data: &[u8]) {
        self.asked_back.retain(|asked| *asked != name);
        if data == REVOKE {
            self.asked_back.push(name);
        }
    }

    /// All that it has under way goes with its session, but not what it needs in the next.
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
