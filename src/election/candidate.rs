//! Owns [`Candidate`]: a candidate that runs in a task of its own, term after term, until it is stopped.
//!
//! 1. The standing is computed from the clock when it is asked for. It does not depend on events that the task has yet to
//!    notice.
//! 2. The task ends when it is stopped, or when its session has ended for good. After any other error, and after a panic of the
//!    term, it tries again.

use std::fmt;
use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::sleep;

use crate::driver::Progress;
use crate::election::Term;
use crate::election::pauses::{Pauses, TermEnd};
use crate::error::{Error, Result};
use crate::fencing_token::FencingToken;
use crate::hold::{HoldMonitor, HoldState};

/// The first pause after a campaign that has failed; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether a [`Candidate`] waits, leads, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// The candidate does not lead. It campaigns, or pauses after a term that has failed.
    Waiting {
        /// How many candidates were ahead at the last look; `None` while the candidate has no position in the queue, for
        /// example because no server can be reached.
        ahead: Option<usize>,
    },
    /// The candidate leads.
    Leading {
        /// The fencing token of the term.
        token: FencingToken,
    },
    /// The candidate is still trusted to lead, but is disconnected. Begin nothing that takes long: it either leads again or
    /// loses the leadership.
    Suspended,
    /// The candidate has ended: it was stopped, or its session has ended.
    Ended,
}

/// A candidate of an [`Election`](crate::Election) that runs in the background, returned by
/// [`Election::run`](crate::Election::run).
///
/// Dropping it ends the term at its next `await` and resigns, or withdraws the candidate, in the background.
/// [`stop`](Self::stop) lets the term finish. The candidate keeps its session open.
///
/// # Examples
///
/// ```no_run
/// # async fn serve() {}
/// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
/// let candidate = election.run(|term| async move {
///     tokio::select! {
///         () = serve() => {}
///         // `stop` was called, the session is drained, or an operator has called `revoke`.
///         () = term.revoke_requested() => {}
///     }
/// });
/// println!("{}", if candidate.is_leader() { 200 } else { 503 });
/// candidate.stop().await
/// # }
/// ```
#[clippy::has_significant_drop]
#[must_use = "dropping the candidate resigns"]
pub struct Candidate {
    stage: Arc<watch::Sender<Stage>>,
    stopping: watch::Sender<bool>,
    task: AbortHandle,
    end: Mutex<End<JoinHandle<Result<()>>>>,
}

/// The end of a candidate, which every call of `stop` returns.
pub(crate) enum End<H> {
    /// Not known to have ended: the task or the thread is still to be joined.
    Running(H),
    Ended(Result<()>),
}

/// The stage that a candidate's task is in.
#[derive(Clone)]
pub(crate) enum Stage {
    Campaigning(Arc<Progress>),
    Leading(HoldMonitor),
    Ended,
}

impl Candidate {
    pub(crate) fn campaigning<F, R>(campaign: Campaign, pauses: Pauses, term: F) -> Self
    where
        F: FnMut(Term) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let stage = Arc::new(watch::Sender::new(Stage::Campaigning(Arc::default())));
        let stopping = watch::Sender::new(false);
        let task = tokio::spawn(run(Ending(stage.clone()), campaign, pauses, stopping.subscribe(), term));
        Self { stage, stopping, task: task.abort_handle(), end: Mutex::new(End::Running(task)) }
    }

    /// Returns whether the candidate leads right now and is connected: for a readiness probe.
    ///
    /// The call compares clocks and sends nothing. The result is therefore right for the first request after a pause of the
    /// process, and never true after trust in the leadership has ended.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(self.standing(), Standing::Leading { .. })
    }

    /// Returns the standing right now, by the clock, as [`is_leader`](Self::is_leader).
    #[must_use]
    pub fn standing(&self) -> Standing {
        // Not under the lock of the stage: it may run the user's code.
        let stage = self.stage.borrow().clone();
        stage.standing()
    }

    /// Waits for a standing that is `wanted`, and returns it: at once if the current standing is wanted. To wait for the
    /// next change, want any standing other than the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. A standing that lasts only for a moment may be missed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(candidate: &zookeeper_recipes::Candidate) {
    /// use zookeeper_recipes::Standing;
    ///
    /// let mut standing = candidate.standing();
    /// while standing != Standing::Ended {
    ///     println!("{standing:?}");
    ///     standing = candidate.wait_for(|next| next != standing).await;
    /// }
    /// # }
    /// ```
    pub async fn wait_for(&self, wanted: impl Fn(Standing) -> bool) -> Standing {
        let mut stages = self.stage.subscribe();
        loop {
            let stage = stages.borrow_and_update().clone();
            let standing = stage.standing();
            if wanted(standing) {
                return standing;
            }
            tokio::select! {
                _ = stages.changed() => {}
                () = stage.left(standing) => {}
            }
        }
    }

    /// Asks the term to end ([`revoke_requested`](crate::HoldMonitor::revoke_requested) resolves), waits until its future
    /// has ended, and resigns. A candidate that does not lead is withdrawn.
    ///
    /// The call waits for as long as the future takes, so let the term await `revoke_requested`. Otherwise set a limit with
    /// [`timeout`], and drop the candidate after it. Do not await this call in the term, which would wait for
    /// itself. Every further call waits for the same end.
    ///
    /// [`timeout`]: https://docs.rs/tokio/latest/tokio/time/fn.timeout.html
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting. The candidate still ends once its term does.
    ///
    /// # Errors
    ///
    /// [`Error::SessionEnded`] if the session or the runtime of the candidate has ended, and with it the leadership. A
    /// closed session is no error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(candidate: zookeeper_recipes::Candidate) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// use tokio::time::timeout;
    ///
    /// match timeout(Duration::from_secs(20), candidate.stop()).await {
    ///     Ok(stopped) => stopped?,
    ///     // Cuts the term off.
    ///     Err(_) => drop(candidate),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stop(&self) -> Result<()> {
        self.stopping.send_replace(true);
        // Not under the lock: nobody may poll this call any more, and others wait for the same end.
        self.wait_for(|standing| standing == Standing::Ended).await;
        let mut end = self.end.lock().await;
        if let End::Running(task) = &mut *end {
            let joined = task.await.map_err(|failed| if failed.is_panic() { PANICKED } else { RUNTIME_GONE });
            end.note(joined);
        }
        end.result()
    }
}

/// Why a candidate has ended whose task did not return.
pub(crate) const PANICKED: &str = "the candidate has panicked, perhaps in a subscriber of its logs";
const RUNTIME_GONE: &str = "the runtime of the candidate is gone";

impl<H> End<H> {
    /// Records how the task or the thread has ended, or why it did not return.
    pub(crate) fn note(&mut self, joined: Result<Result<()>, &str>) {
        *self = Self::Ended(match joined {
            Ok(Err(Error::Closed)) => Ok(()),
            Ok(ended) => ended,
            Err(reason) => Err(Error::SessionEnded { reason: reason.to_owned() }),
        });
    }

    /// Returns the result of a call that stops the candidate, after the end was recorded.
    pub(crate) fn result(&self) -> Result<()> {
        match self {
            Self::Ended(ended) => ended.clone(),
            Self::Running(_) => unreachable!("its end was noted"),
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

impl Stage {
    pub(crate) fn standing(&self) -> Standing {
        match self {
            Self::Campaigning(progress) => Standing::Waiting { ahead: progress.last() },
            Self::Leading(term) => match term.state() {
                HoldState::Held => Standing::Leading { token: term.fencing_token() },
                HoldState::Suspended => Standing::Suspended,
                // The task has yet to notice the end of the leadership.
                HoldState::Lost(_) | HoldState::Released => Standing::Waiting { ahead: None },
            },
            Self::Ended => Standing::Ended,
        }
    }

    /// Waits until this stage has another standing; forever, if only the next stage has one.
    async fn left(&self, standing: Standing) {
        match (self, standing) {
            (Self::Campaigning(progress), Standing::Waiting { ahead }) => progress.left(ahead).await,
            (Self::Leading(term), Standing::Leading { .. }) => drop(term.state_other_than(HoldState::Held).await),
            (Self::Leading(term), Standing::Suspended) => drop(term.state_other_than(HoldState::Suspended).await),
            _ => pending().await,
        }
    }
}

/// Sets the stage to `Ended` when the task ends, even if it has panicked or never ran.
pub(crate) struct Ending(pub(crate) Arc<watch::Sender<Stage>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.send_replace(Stage::Ended);
    }
}

/// A function that waits for leadership once. It reports to the progress how many candidates are ahead, where that is
/// known.
pub(crate) type Campaign = Box<dyn Fn(Arc<Progress>) -> BoxFuture<'static, Result<Won>> + Send + Sync>;

/// A leadership that was won.
pub(crate) struct Won {
    pub(crate) monitor: HoldMonitor,
    /// A future that owns the leadership, which lasts until the future is awaited, or dropped.
    pub(crate) resign: BoxFuture<'static, ()>,
}

impl Won {
    pub(crate) fn new(monitor: HoldMonitor, resign: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        let path = monitor.path().to_owned();
        let resign = async move {
            match resign.await {
                Ok(()) | Err(Error::Lost(_)) => {}
                // The next campaign queues behind the node that is left.
                Err(error) => tracing::warn!(path, %error, "cannot resign"),
            }
        };
        Self { monitor, resign: resign.boxed() }
    }
}

/// Campaigns and leads, term after term, until the candidate is stopped or its session is over.
async fn run<F, R>(
    ending: Ending,
    campaign: Campaign,
    mut pauses: Pauses,
    stopping: watch::Receiver<bool>,
    mut term: F,
) -> Result<()>
where
    F: FnMut(Term) -> R + Send,
    R: Future<Output = ()> + Send,
{
    while let Some(Won { monitor, resign }) = win(&campaign, &ending.0, &stopping).await? {
        let began = Instant::now();
        let resign_wanted = Arc::<Notify>::default();
        let given = Term::new(monitor.clone(), resign_wanted.clone());
        let ask_to_end = async {
            asked(stopping.clone()).await;
            monitor.revoke();
            pending().await
        };
        // The future of the term is dropped before the leadership is resigned, and within this one: its drop may panic as well.
        let lead = async {
            tokio::select! {
                biased;
                () = ask_to_end => {}
                () = resign_wanted.notified() => {}
                led = monitor.run_until_lost(term(given)) => if let Err(ended) = led {
                    tracing::info!(path = monitor.path(), %ended, "leadership has ended; campaigning again");
                    return TermEnd::Lost;
                },
            }
            TermEnd::Returned
        };
        let end = AssertUnwindSafe(lead).catch_unwind().await.unwrap_or_else(TermEnd::Panicked);
        let led = began.elapsed();
        resign.await;
        rest(&mut pauses, led, end, &ending.0, &stopping).await;
    }
    Ok(())
}

/// Pauses after a term that has failed, until the candidate is stopped.
pub(crate) async fn rest(
    pauses: &mut Pauses,
    led: Duration,
    end: TermEnd,
    stage: &watch::Sender<Stage>,
    stopping: &watch::Receiver<bool>,
) {
    stage.send_replace(Stage::Campaigning(Arc::default()));
    tokio::select! {
        biased;
        () = asked(stopping.clone()) => {}
        () = pauses.after(led, end) => {}
    }
}

/// Campaigns until it has won, with a pause after each failure. Returns `None` if the candidate is stopped.
pub(crate) async fn win(
    campaign: &Campaign,
    stage: &watch::Sender<Stage>,
    stopping: &watch::Receiver<bool>,
) -> Result<Option<Won>> {
    let won = async {
        let mut pause = FIRST_PAUSE;
        loop {
            let progress = Arc::<Progress>::default();
            stage.send_replace(Stage::Campaigning(progress.clone()));
            match campaign(progress).await {
                Err(error) if !matches!(error, Error::Closed | Error::SessionEnded { .. }) => {
                    tracing::warn!(%error, retry_in = ?pause, "cannot campaign");
                }
                won => return won,
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    tokio::select! {
        biased;
        () = asked(stopping.clone()) => Ok(None),
        won = won => {
            let won = won?;
            stage.send_replace(Stage::Leading(won.monitor.clone()));
            Ok(Some(won))
        }
    }
}

/// Waits until the candidate is to stop.
async fn asked(mut stopping: watch::Receiver<bool>) {
    if stopping.wait_for(|stopping| *stopping).await.is_err() {
        // The candidate was dropped, and this task is about to be aborted.
        pending().await
    }
}
