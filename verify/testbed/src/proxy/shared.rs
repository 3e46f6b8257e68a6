//! The state shared by the proxy's thread and its handle, and the decisions about each frame.

use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::faults::{Cut, Verdict};
use super::history::{Direction, Ticket};
use super::state::{Fate, State};
use crate::frames::{ConnectResponse, Frame, Kind, RequestFrame};

/// The next step for a frame that arrived or was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Forward,
    Swallow,
    Cut,
    Hold,
}

impl Step {
    /// Returns an error if the connection is to be closed.
    pub(super) fn goes_on(self) -> io::Result<()> {
        if self == Self::Cut { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

/// The state, and channels that notify of its changes.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notifies connections that their fate may have changed.
    orders: watch::Sender<()>,
    /// Notifies of changes of the record.
    news: watch::Sender<()>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::new()), orders: watch::Sender::new(()), news: watch::Sender::new(()) }
    }

    /// A panic of a hook or predicate fails its test, and not every test that shares the proxy.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and notifies all connections.
    pub(super) fn order(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.orders.send_replace(());
    }

    pub(super) fn orders(&self) -> watch::Receiver<()> {
        self.orders.subscribe()
    }

    /// Waits until `look` returns a value.
    pub(super) async fn wait_until<T>(&self, look: impl Fn(&State) -> Option<T>) -> T {
        let mut news = self.news.subscribe();
        loop {
            if let Some(found) = look(&self.state()) {
                return found;
            }
            news.changed().await.expect("the sender lives as long as the borrow of it");
        }
    }

    /// Records a request and returns what to do with it.
    pub(super) fn request_arrived(&self, link: usize, frame: RequestFrame) -> (Ticket, Step) {
        let mut guard = self.state();
        let state = &mut *guard;
        let (ticket, request) = state.history.request(link, frame, &state.leave_out);
        let step = if state.fate(link) != Fate::Flows {
            Step::Swallow
        } else if state.faults.is_due(Cut::BeforeRequest(request.number)) {
            Step::Cut
        } else {
            Step::Forward
        };
        let hook = state.hook.clone().filter(|_| step == Step::Forward);
        drop(guard);
        self.news.send_replace(());
        // The hook may call the proxy, so the state is not locked here.
        let step = hook.map_or(step, |hook| match hook(&request) {
            Verdict::Forward => Step::Forward,
            Verdict::Drop => Step::Swallow,
            Verdict::Cut => Step::Cut,
            Verdict::Hold => Step::Hold,
        });
        (ticket, step)
    }

    /// Marks a request that is about to be forwarded; false if it must no longer be.
    pub(super) fn may_forward_request(&self, link: usize, xid: i32, ticket: Ticket) -> bool {
        let mut guard = self.state();
        if !guard.expect_answer(link, xid, ticket) {
            return false;
        }
        if let Some(request) = guard.history.get(ticket) {
            request.forwarded = Some(Instant::now());
        }
        drop(guard);
        self.news.send_replace(());
        true
    }

    /// Decides what to do after a request was forwarded.
    pub(super) fn request_forwarded(&self, ticket: Ticket) -> Step {
        let mut guard = self.state();
        let Some(number) = guard.history.get(ticket).map(|request| request.number) else {
            return Step::Forward;
        };
        if guard.faults.is_due(Cut::AfterRequest(number)) {
            return Step::Cut;
        }
        if guard.faults.hole_is_due(number) {
            guard.black_hole();
            drop(guard);
            self.orders.send_replace(());
        }
        Step::Forward
    }

    /// Finds the request of an answer that arrived, and how long to hold the answer back.
    pub(super) fn answer_arrived(&self, link: usize, xid: i32, zxid: i64, err: i32) -> (Option<Ticket>, Duration) {
        let mut state = self.state();
        let ticket = state.answered(link, xid);
        if let Some(ticket) = ticket {
            state.history.answer(ticket, zxid, err);
        }
        let delay = state.faults.delay;
        drop(state);
        self.news.send_replace(());
        (ticket, delay)
    }

    /// Returns the answer as it is to be forwarded.
    pub(super) fn rewritten(&self, ticket: Ticket, frame: Frame) -> Frame {
        let mut guard = self.state();
        let state = &mut *guard;
        let (Some(rewrite), Some(request)) = (&state.rewrite, state.history.get(ticket)) else {
            return frame;
        };
        let mut body = frame.body().to_vec();
        rewrite(request, &mut body);
        Frame::new(&body)
    }

    /// Decides what to do with an answer that is due; returns its number if it is counted.
    pub(super) fn answer_is_due(&self, link: usize, ticket: Ticket) -> (Step, Option<usize>) {
        let mut guard = self.state();
        if guard.fate(link) != Fate::Flows {
            return (Step::Swallow, None);
        }
        let number = guard.history.count_answer(ticket);
        if number.is_some_and(|number| guard.faults.is_due(Cut::BeforeAnswer(number))) {
            return (Step::Cut, number);
        }
        guard.history.answer_forwarded(ticket);
        drop(guard);
        self.news.send_replace(());
        (Step::Forward, number)
    }

    /// Decides what to do after an answer was forwarded.
    pub(super) fn answer_forwarded(&self, number: Option<usize>) -> Step {
        let cut = number.is_some_and(|number| self.state().faults.is_due(Cut::AfterAnswer(number)));
        if cut { Step::Cut } else { Step::Forward }
    }

    pub(super) fn connected(&self, response: ConnectResponse) {
        if response.session != 0 {
            let sessions = &mut self.state().sessions;
            sessions.retain(|(id, _)| *id != response.session);
            sessions.push((response.session, response.password));
        }
    }

    pub(super) fn aside(&self, link: usize, direction: Direction, kind: Kind) {
        self.state().history.aside(link, direction, kind);
        self.news.send_replace(());
    }
}
