//! An acquisition and a release, as futures. Their polls send requests; the session's task reads the answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::clock::{micros, now};
use crate::driver::core::Core;
use crate::driver::draft::Draft;
use crate::driver::progress::Progress;
use crate::driver::state::State;
use crate::error::Error;
use crate::machine::{Admission, End, Event, GrantedBy, Loss, Op, Phase, Spec, StallLimit, turn_of};

/// Builds the machine's description of an acquisition. `limit`: how many permits a semaphore has.
fn spec(draft: &Draft, state: &mut State, waits: bool, limit: Option<u32>) -> Spec {
    let queues = draft.queues.iter().map(|(path, kind)| (state.number(path.as_str()), *kind)).collect();
    let turn = draft.turn.iter().flat_map(|turn| &turn.queues).next();
    let turn = turn.map(|(path, _)| state.number(path.as_str()));
    let admission = limit.map_or(Admission::First, |limit| Admission::Permits { limit, turn });
    let stall_limit = draft.options.stall_limit().map(|limit| {
        let first = draft.options.start_limit().unwrap_or(limit);
        StallLimit { first: micros(first), next: micros(limit) }
    });
    Spec { queues, admission, waits, stall_limit, may_count: draft.options.one_request() }
}

/// An acquisition or a release that failed. `refusal`: the error, if the servers or a limit refused it.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) end: End,
    pub(crate) refusal: Option<Error>,
    /// The path of one of the acquisition's nodes, for the error: the node of the turn if there is one, else the first.
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

/// The future of an acquisition. It begins at the first poll. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Acquire {
    core: Arc<Core>,
    draft: Arc<Draft>,
    /// Whether the acquisition queues if the lock is contended.
    waits: bool,
    progress: Option<Arc<Progress>>,
    /// How many permits a semaphore has.
    limit: Option<u32>,
    op: Option<Op>,
}

impl Acquire {
    pub(crate) fn new(
        core: &Arc<Core>,
        draft: &Arc<Draft>,
        waits: bool,
        progress: Option<Arc<Progress>>,
        limit: Option<u32>,
    ) -> Self {
        Self { core: Arc::clone(core), draft: Arc::clone(draft), waits, progress, limit, op: None }
    }

    /// Changes how many permits the semaphore has.
    pub(crate) fn change_permits(&self, limit: u32) {
        if let Some(op) = self.op {
            self.core.handle(&mut self.core.lock_current(), Event::Permits { op, limit });
        }
    }

    fn begin(&self, state: &mut State, op: Op) {
        let spec = Arc::new(spec(&self.draft, state, self.waits, self.limit));
        self.core.decide(state, Event::Acquire { op, spec });
    }
}

/// A granted lock that no hold has taken over yet. Its drop releases the lock, in case a `tracing` layer or a metrics
/// recorder panics before a hold takes the lock over.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) op: Op,
    pub(crate) nodes: Vec<String>,
    pub(crate) czxid: i64,
    pub(crate) granted_by: GrantedBy,
    /// `None` once a hold has taken the lock over.
    core: Option<Arc<Core>>,
}

impl Granted {
    /// Leaves the release to a hold. Returns the paths of the nodes.
    pub(crate) fn keep(mut self) -> Vec<String> {
        self.core = None;
        std::mem::take(&mut self.nodes)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            abandon(core, self.op);
        }
    }
}

impl Future for Acquire {
    type Output = Result<Granted, Failed>;

    /// Returns an error, and not the grant, if the granted hold has ended before this poll.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let core = Arc::clone(&this.core);
        // Cloning and dropping a waker run user code, so both happen without the session's lock.
        let waker = cx.waker().clone();
        let mut state = core.lock_current();
        let op = match this.op {
            Some(op) => op,
            None => {
                let op = core.begin(&mut state, &this.draft, this.progress.is_some()).map_err(Failed::refused)?;
                this.op = Some(op);
                this.begin(&mut state, op);
                op
            }
        };
        core.end_hold(&mut state, op, now());
        let Some(acquisition) = state.machine.op(op) else {
            this.op = None;
            return Poll::Ready(Err(Failed::of(End::Closed)));
        };
        match acquisition.phase {
            Phase::Held => {
                let (czxid, granted_by) = (acquisition.czxid.0, acquisition.granted_by.0);
                this.op = None;
                state.leave(op);
                let nodes = state.nodes(op);
                drop(state);
                Poll::Ready(Ok(Granted { op, nodes, czxid, granted_by, core: Some(core) }))
            }
            Phase::Over(end) => {
                let failed = failed(&mut state, op, end);
                this.op = None;
                give_up(&core, &mut state, op);
                Poll::Ready(Err(failed))
            }
            _ => {
                let ahead = state.machine.ahead(op);
                state.await_op(op, waker);
                drop(state);
                // This wakes the tasks that follow the progress, which runs user code. So it happens without the lock.
                if let Some(progress) = this.progress.as_ref().filter(|_| ahead > 0) {
                    progress.ahead(ahead);
                }
                Poll::Pending
            }
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
    // With any other end, the error may come from an earlier attempt at a request, which was then repeated.
    let is_refused = matches!(end, End::Refused | End::Evicted);
    let refusal = state.take_refusal(op).filter(|_| is_refused);
    let nodes = [turn_of(op), op].map(|op| state.nodes(op));
    Failed { end, refusal, node: nodes.into_iter().flatten().next() }
}

/// Abandons an acquisition whose future or guard was dropped.
pub(crate) fn abandon(core: &Arc<Core>, op: Op) {
    give_up(core, &mut core.lock(), op);
}

fn give_up(core: &Arc<Core>, state: &mut State, op: Op) {
    core.handle(state, Event::Abandon(op));
    state.leave(op);
}

/// Polls a release, and forgets the acquisition when the release has ended. `Ok`: the nodes are certainly gone, and the hold
/// was not lost before.
pub(crate) fn poll_released(core: &Arc<Core>, op: Op, cx: &Context<'_>) -> Poll<Result<(), Failed>> {
    let waker = cx.waker().clone();
    let mut state = core.lock_current();
    let end = match state.machine.op(op).map(|acquisition| acquisition.phase) {
        Some(Phase::Over(end)) => end,
        Some(_) => {
            state.await_op(op, waker);
            return Poll::Pending;
        }
        None => End::Lost(Loss::Expired),
    };
    let failed = (end != End::Released).then(|| failed(&mut state, op, end));
    give_up(core, &mut state, op);
    Poll::Ready(failed.map_or(Ok(()), Err))
}
