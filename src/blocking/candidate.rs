//! Owns the blocking [`Candidate`]: a candidate on a thread of its own, term after term, until it is stopped.
//!
//! 1. Its standing is computed when it is asked for, from the clock of the hold, as that of the async candidate.
//! 2. A term that a stop has not found is not begun: the thread shows the term before it looks whether it is to stop, and
//!    a stop is noted before it looks for a term.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::watch;

use crate::blocking::runtime::refuse_to_block_tasks;
use crate::blocking::{Runtime, Term};
use crate::election::{Campaign, End, Ending, PANICKED, Pauses, Stage, Standing, TermEnd, Won, rest, win};
use crate::error::{Error, Result};
use crate::hold::HoldState;

/// A candidate of an [`Election`](crate::blocking::Election) that runs on a thread of its own, from
/// [`Election::run`](crate::blocking::Election::run).
///
/// Dropping it asks the term to end, or withdraws the candidate, and waits for neither. [`stop`](Self::stop) waits. The
/// candidate keeps its session open.
#[must_use = "dropping the candidate ends it"]
pub struct Candidate {
    stage: Arc<watch::Sender<Stage>>,
    stopping: watch::Sender<bool>,
    /// Joined by the first call, under the lock.
    end: Mutex<End<Option<JoinHandle<Result<()>>>>>,
}

impl Candidate {
    pub(super) fn start(
        campaign: Campaign,
        pauses: Pauses,
        runtime: &Runtime,
        term: impl FnMut(&Term) + Send + 'static,
    ) -> Result<Self> {
        let stage = Arc::new(watch::Sender::new(Stage::Campaigning(Arc::default())));
        let stopping = watch::Sender::new(false);
        let (ending, stopped, runtime) = (Ending(stage.clone()), stopping.subscribe(), runtime.clone());
        let run = move || run(&ending, &campaign, pauses, &runtime, &stopped, term);
        let thread =
            thread::Builder::new().name("zookeeper-candidate".to_owned()).spawn(run).map_err(|error| {
                Error::SessionEnded { reason: format!("the thread of a candidate cannot be started: {error}") }
            })?;
        Ok(Self { stage, stopping, end: Mutex::new(End::Running(Some(thread))) })
    }

    /// Whether it leads at this moment and is connected: for a readiness probe. It compares clocks and sends nothing, so it
    /// is never true after trust in the leadership has ended.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(self.standing(), Standing::Leading { .. })
    }

    /// How it stands at this moment, by the clock, as [`is_leader`](Self::is_leader).
    #[must_use]
    pub fn standing(&self) -> Standing {
        // Not under the lock of the stage: it may run the user's code.
        let stage = self.stage.borrow().clone();
        stage.standing()
    }

    /// Asks the term to end ([`Term::is_over`] is true), waits until its closure has returned, and resigns; or withdraws the
    /// candidate.
    ///
    /// Do not call it in the closure, which would wait for itself. Every further call waits for the same end.
    ///
    /// # Errors
    ///
    /// [`Error::SessionEnded`] if the session has ended, and with it the leadership. That the session was closed is no error.
    /// [`Error::InvalidInput`] where [tokio runs a task](crate::blocking#inside-a-tokio-runtime): the candidate ends in the
    /// background then.
    pub fn stop(&self) -> Result<()> {
        self.ask_to_end();
        refuse_to_block_tasks()?;
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if let End::Running(thread) = &mut *end {
            let thread = thread.take().expect("a thread is joined once, under the lock");
            // The drop of the payload may panic in turn.
            let joined = thread.join().map_err(|payload| {
                std::mem::forget(payload);
                PANICKED
            });
            end.note(joined);
        }
        end.result()
    }

    fn ask_to_end(&self) {
        self.stopping.send_replace(true);
        let stage = self.stage.borrow().clone();
        if let Stage::Leading(term) = stage {
            term.revoke();
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

fn run(
    ending: &Ending,
    campaign: &Campaign,
    mut pauses: Pauses,
    runtime: &Runtime,
    stopping: &watch::Receiver<bool>,
    mut term: impl FnMut(&Term),
) -> Result<()> {
    while let Some(Won { monitor, resign }) = runtime.wait(win(campaign, &ending.0, stopping))? {
        let began = Instant::now();
        let mut end = TermEnd::Returned;
        if !*stopping.borrow() {
            let given = Term::new(monitor.clone(), runtime);
            end = match catch_unwind(AssertUnwindSafe(|| term(&given))) {
                Err(payload) => TermEnd::Panicked(payload),
                Ok(()) if matches!(monitor.state(), HoldState::Lost(_)) => TermEnd::Lost,
                Ok(()) => TermEnd::Returned,
            };
        }
        let led = began.elapsed();
        runtime.block_on(resign)?;
        runtime.block_on(rest(&mut pauses, led, end, &ending.0, stopping))?;
    }
    Ok(())
}
