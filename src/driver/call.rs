//! An acquisition and a release, as futures that read their own answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::clock::now;
use crate::driver::core::{Core, Reader, State};
use crate::driver::draft::Draft;
use crate::driver::progress::Progress;
use crate::error::Error;
use crate::machine::{Admission, End, Event, HoldState, Loss, Op, Spec, Stage};

/// What the machine is asked for.
fn spec(draft: &Draft, state: &mut State, waits: bool) -> Spec {
    let queues = draft.queues.iter().map(|(path, kind)| (state.paths.number(path.as_str()), *kind)).collect();
    let turn = draft.admission.turn().map(|turn| state.paths.number(turn.as_str()));
    let admission = match draft.admission {
        Admission::First => Admission::First,
        Admission::Room { limit, .. } => Admission::Room { limit, turn },
    };
    Spec { queues, admission, waits, may_count: draft.options.one_request(), is_turn: draft.is_turn }
}

/// How an acquisition or a release ended, and why, if it was refused.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) end: End,
    pub(crate) refusal: Option<Error>,
    /// The first of its nodes.
    pub(crate) node: Option<String>,
}

impl Failed {
    pub(crate) fn of(end: End) -> Self {
        Self { end, refusal: None, node: None }
    }

    pub(crate) fn refused(refusal: Error) -> Self {
        Self { refusal: Some(refusal), ..Self::of(End::Refused) }
    }
}

/// A call that acquires. It begins when it is polled; dropping it at any moment leaves the queue.
#[derive(Debug)]
pub(crate) struct Acquire {
    core: Arc<Core>,
    draft: Arc<Draft>,
    /// It queues if the lock is contended.
    waits: bool,
    progress: Option<Arc<Progress>>,
    op: Option<Op>,
    /// How many contenders were ahead when it was looked at last.
    pub(crate) ahead: usize,
}

impl Acquire {
    pub(crate) fn new(core: &Arc<Core>, draft: &Arc<Draft>, waits: bool, progress: Option<Arc<Progress>>) -> Self {
        Self { core: Arc::clone(core), draft: Arc::clone(draft), waits, progress, op: None, ahead: 0 }
    }

    fn begin(&mut self, cx: &Context<'_>) -> Result<Op, Failed> {
        let waker = cx.waker().clone();
        let mut state = self.core.look();
        let op = self.core.begin(&mut state, &self.draft, self.progress.clone()).map_err(Failed::refused)?;
        self.op = Some(op);
        state.await_op(op, waker);
        state.note(now, &format_args!("Paths({:?}, {:?})", self.draft.queues, self.draft.admission));
        let spec = Arc::new(spec(&self.draft, &mut state, self.waits));
        self.core.decide(&mut state, Event::Acquire { op, spec });
        Ok(op)
    }
}

impl Future for Acquire {
    type Output = Result<Op, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let op = match self.op {
            Some(op) => {
                let waker = cx.waker().clone();
                self.core.lock().await_op(op, waker);
                op
            }
            None => self.begin(cx)?,
        };
        self.core.poll(op, Reader::Caller);
        let mut state = self.core.lock();
        self.core.handle(&mut state, Event::Claim(op));
        let found = state.machine.op(op).map(|one| (one.stage, one.ahead()));
        drop(state);
        let Some((stage, ahead)) = found else {
            self.op = None;
            return Poll::Ready(Err(Failed::of(End::Closed)));
        };
        self.ahead = ahead;
        match stage {
            Stage::Held => {
                self.op = None;
                self.core.leave_to_driver(op);
                Poll::Ready(Ok(op))
            }
            Stage::Over(end) => {
                let failed = failed(&mut self.core.lock(), op, end);
                self.op = None;
                abandon(&self.core, op);
                Poll::Ready(Err(failed))
            }
            _ => Poll::Pending,
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Some(op) = self.op {
            abandon(&self.core, op);
        }
    }
}

fn failed(state: &mut State, op: Op, end: End) -> Failed {
    // Otherwise it may be that of a request that was sent again.
    let is_refused = matches!(end, End::Refused | End::Unanswered | End::Evicted);
    let refusal = state.take_refusal(op).filter(|_| is_refused);
    Failed { end, refusal, node: state.nodes(op).into_iter().next() }
}

/// The handle of an acquisition is gone.
pub(crate) fn abandon(core: &Arc<Core>, op: Op) {
    let mut state = core.lock();
    state.forget_limit(op);
    core.handle(&mut state, Event::Abandon(op));
    drop(state);
    core.leave_to_driver(op);
}

/// Why a hold was lost, if it was. Events that have come before now count.
pub(crate) fn loss(core: &Arc<Core>, op: Op) -> Option<Loss> {
    core.poll(op, Reader::Driver);
    match core.lock().machine.state(now(), op) {
        Some(HoldState::Held) => None,
        Some(HoldState::Lost(loss)) => Some(loss),
        _ => Some(Loss::Expired),
    }
}

/// Waits until a hold is lost.
pub(crate) async fn lost(core: &Arc<Core>, op: Op) -> Loss {
    poll_fn(|cx| {
        let waker = cx.waker().clone();
        core.lock().await_op(op, waker);
        loss(core, op).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Releases a hold, and waits until its nodes are certainly gone. Dropping the call leaves that to the session.
pub(crate) async fn release(core: &Arc<Core>, op: Op) -> Result<(), Failed> {
    let mut has_begun = false;
    poll_fn(|cx| {
        let waker = cx.waker().clone();
        let mut state = core.lock();
        state.await_op(op, waker);
        if !std::mem::replace(&mut has_begun, true) {
            state.forget_limit(op);
            core.handle(&mut state, Event::Release(op));
        }
        drop(state);
        core.poll(op, Reader::Caller);
        let mut state = core.lock();
        match state.machine.op(op).map(|one| one.stage) {
            Some(Stage::Over(End::Released)) => Poll::Ready(Ok(())),
            Some(Stage::Over(end)) => Poll::Ready(Err(failed(&mut state, op, end))),
            Some(_) => Poll::Pending,
            None => Poll::Ready(Err(Failed::of(End::Lost(Loss::Expired)))),
        }
    })
    .await
}
