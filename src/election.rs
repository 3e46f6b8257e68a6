//! Owns [`Election`]: one leader among candidates.

mod observer;
mod pauses;
mod run;
mod term;

use std::future::{Future, pending};
use std::time::Duration;

use tokio::sync::watch;

use crate::contender::{self, Contender, for_operators};
use crate::error::Result;
use crate::hold::{Hold, HoldMonitor, guard};
use crate::lock::{Lock, Waiting};
use crate::options::Options;
use crate::queue::Kind;
use crate::session::Session;

pub use self::observer::Observer;
pub use self::term::Term;

#[cfg(feature = "blocking")]
pub(crate) use self::pauses::TermEnd;
#[cfg(feature = "blocking")]
pub(crate) use self::run::{resign, win};

use self::pauses::Pauses;
use self::run::run_until;
use self::term::CurrentTerm;

/// An election of one leader among candidates, first come, first served. Compatible with Curator's
/// `LeaderLatch`. To share a path with Curator's `LeaderSelector`, use a [`Mutex`](crate::Mutex).
///
/// Candidates are known by their [identifier](Options::with_identifier).
///
/// # Cancel safety
///
/// Dropping the future of a call that campaigns withdraws the candidate. The node is deleted in the background. See
/// [Futures](crate#futures).
///
/// # Errors
///
/// Every call that campaigns fails as those of a [`Mutex`](crate::Mutex#errors) do.
///
/// # Panics
///
/// Every `async` call may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::{Election, Options};
///
/// let options = Options::new().with_identifier("10.0.0.7:8080");
/// let election = Election::with_options(&session, "/leaders/scheduler", options)?;
/// let serve = election.run(|term| async move {
///     // Work as the leader, with `term.fencing_token()`; cut off when leadership is lost.
/// });
/// serve.await?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "LeaderLatch")]
#[doc(alias = "LeaderSelector")]
#[derive(Clone)]
pub struct Election {
    lock: Lock,
    current: CurrentTerm,
    eligible: Option<watch::Receiver<bool>>,
}

impl Election {
    /// Creates a handle of the election at `path`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `path` cannot be a lock path.
    pub fn new(session: &Session, path: &str) -> Result<Self> {
        Self::with_options(session, path, Options::new())
    }

    /// Creates a handle of the election at `path` with its own options, which override the session's. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) if `path` or `options` cannot be used.
    pub fn with_options(session: &Session, path: &str, options: Options) -> Result<Self> {
        let lock = Lock::of_one(session, path, Kind::Latch, &options)?;
        Ok(Self { lock, current: CurrentTerm::default(), eligible: None })
    }

    /// Returns a handle whose [`run`](Self::run) and [`run_until`](Self::run_until) stand for election only while the value
    /// is `true`, such as the result of a health check.
    ///
    /// While it is `false`, the candidate is not in the queue. A candidate that waits is withdrawn. A leader's term is asked to end
    /// ([`revoke_requested`](HoldMonitor::revoke_requested) resolves), and the candidate resigns when it has. If the work may
    /// hang, give the election a [stall limit](Options::with_stall_limit), too. When the value is `true` again, the
    /// candidate queues at the end. After the sender is gone, the last value counts.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn serve() {}
    /// # fn example(election: zookeeper_recipes::Election) {
    /// let (healthy, is_healthy) = tokio::sync::watch::channel(true);
    /// let leading = tokio::spawn(election.eligible(is_healthy).run(|term| async move {
    ///     tokio::select! {
    ///         () = serve() => {}
    ///         () = term.revoke_requested() => {}
    ///     }
    /// }));
    /// // In the health check, each time:
    /// healthy.send_replace(false);
    /// # }
    /// ```
    #[must_use]
    pub fn eligible(&self, eligible: watch::Receiver<bool>) -> Self {
        Self { eligible: Some(eligible), ..self.clone() }
    }

    /// Joins the candidates and waits for leadership, for as long as it takes.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
    /// let leadership = election.campaign().await?;
    /// leadership.run_until_lost(async { /* work as the leader */ }).await?;
    /// drop(leadership);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn campaign(&self) -> Result<Leadership> {
        self.lock.acquire().await.map(|hold| Self::leads(&self.current, hold))
    }

    /// Becomes the leader without waiting for others: `None` if another candidate was ahead.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(leadership) = election.try_campaign().await? {
    ///     println!("this process leads, with token {}", leadership.fencing_token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        Ok(self.lock.try_acquire().await?.map(|hold| Self::leads(&self.current, hold)))
    }

    /// Joins the candidates and waits for leadership for at most `limit`, all requests included: `None` if another
    /// candidate was ahead.
    ///
    /// `None`, a limit that was too short, and unreachable servers need different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// let leadership = election.try_campaign_for(Duration::from_secs(1)).await?;
    /// println!("{}", if leadership.is_some() { "leading" } else { "another candidate is ahead" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_campaign_for(&self, limit: Duration) -> Result<Option<Leadership>> {
        Ok(self.lock.try_acquire_for(limit).await?.map(|hold| Self::leads(&self.current, hold)))
    }

    /// Joins the candidates, and returns a [`Waiting`]. Await it for the leadership.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
    /// let waiting = election.enqueue().await?;
    /// println!("{} candidates are ahead", waiting.position());
    /// let leadership = waiting.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue(&self) -> Result<Waiting<Leadership>> {
        let current = self.current.clone();
        Waiting::enqueue(self.lock.clone(), move |hold| Self::leads(&current, hold)).await
    }

    /// Campaigns and leads, term after term, until the future is dropped or the session is over. Use it for a service
    /// that leads whenever it can.
    ///
    /// When the candidate is elected, it calls `lead` with the [`Term`], and runs the returned future until that future ends or
    /// the leadership is lost. When the [tasks](Term::spawn) of the term have ended, too, the candidate resigns and campaigns
    /// again. A lost leadership is no error. A campaign that fails is logged as a warning and retried after a pause, of 100 ms at
    /// first and 5 s at most.
    ///
    /// After a term that panics, or that ends within a second while the leadership lasts (even on request), the candidate
    /// pauses for 1 s. Each further pause is twice as long, up to 30 s. Meanwhile the candidate is not in the queue, so
    /// that another can lead. A panic is logged as an error with its text, a short term as a warning without a reason: log
    /// your error before the term returns. After a term of more than 30 s the next pause is 1 s again.
    ///
    /// The candidate resigns only when the future of the term ends, even if that future drops the [`Term`]. When the
    /// leadership is lost, the future of the term is dropped at its next `await`; see
    /// [`Hold::run_until_lost`](crate::Hold::run_until_lost).
    ///
    /// The future that `run` returns borrows nothing: spawn it, and call [`current_term`](Self::current_term) in a
    /// readiness probe. To stop in an orderly way, use [`run_until`](Self::run_until).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the future of the term, and then resigns, or withdraws the candidate, in the
    /// background. That ends the tasks of the term at their next `await`; its threads go on.
    ///
    /// # Errors
    ///
    /// [`Error::SessionEnded`](crate::Error::SessionEnded) if the session has ended for good. After a close or a drain of the
    /// session the result is `Ok`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn serve(token: zookeeper_recipes::FencingToken) {}
    /// # fn example(election: zookeeper_recipes::Election) {
    /// use zookeeper_recipes::HoldState;
    ///
    /// let leading = tokio::spawn(election.run(|term| async move { serve(term.fencing_token()).await }));
    /// // In the readiness probe:
    /// let is_leader = election.current_term().is_some_and(|term| term.state() == HoldState::Held);
    /// // Cuts the term off, and resigns:
    /// leading.abort();
    /// # }
    /// ```
    pub fn run<F, R>(&self, lead: F) -> impl Future<Output = Result<()>> + Send + use<F, R>
    where
        F: FnMut(Term) -> R + Send,
        R: Future<Output = ()> + Send,
    {
        run_until(self.clone(), pending(), lead)
    }

    /// Does the same as [`run`](Self::run) until `stop` resolves. Then it asks the term to end
    /// ([`revoke_requested`](HoldMonitor::revoke_requested) resolves), waits for it, resigns, and returns.
    ///
    /// The future waits for as long as the term takes, so let the term await `revoke_requested`. A candidate that does
    /// not lead is withdrawn at once.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn serve() {}
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), Box<dyn std::error::Error>> {
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// let leading = tokio::spawn(election.run_until(async { drop(stopped.await) }, |term| async move {
    ///     tokio::select! {
    ///         () = serve() => {}
    ///         // `stop` has resolved, the session is drained, or an operator has called `revoke`.
    ///         () = term.revoke_requested() => {}
    ///     }
    /// }));
    /// drop(stop);
    /// leading.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_until<S, F, R>(&self, stop: S, lead: F) -> impl Future<Output = Result<()>> + Send + use<S, F, R>
    where
        S: Future<Output = ()> + Send,
        F: FnMut(Term) -> R + Send,
        R: Future<Output = ()> + Send,
    {
        run_until(self.clone(), stop, lead)
    }

    /// Returns a view of the current leadership of this value and its clones, for a readiness probe. `None` if they do
    /// not lead.
    ///
    /// The call compares clocks and sends nothing. The result is therefore right even for the first request after a pause
    /// of the process.
    ///
    /// A leadership that is [`Suspended`](crate::HoldState::Suspended) is also returned: look at its state.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(election: zookeeper_recipes::Election) {
    /// use zookeeper_recipes::HoldState;
    ///
    /// // The readiness probe of a service.
    /// let is_leader = election.current_term().is_some_and(|term| term.state() == HoldState::Held);
    /// # }
    /// ```
    #[must_use]
    pub fn current_term(&self) -> Option<HoldMonitor> {
        self.current.monitor()
    }

    /// Returns the pauses that a candidate makes after terms that have failed.
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses::new(&self.lock)
    }

    fn leads(current: &CurrentTerm, hold: Hold) -> Leadership {
        current.begin(hold.monitor());
        Leadership(hold)
    }

    /// Returns the current leader, as far as the connected server knows; `None` if there is no candidate. The server may
    /// be behind the others, so the leader may have resigned already, or have a successor.
    ///
    /// A leader that was asked to resign has an [empty identifier](Contender::identifier), until it
    /// [proclaims](HoldMonitor::proclaim) something.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
    /// if let Some(leader) = election.leader().await? {
    ///     println!("{} leads", leader.identifier_lossy());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn leader(&self) -> Result<Option<Contender>> {
        contender::first(&self.lock).await
    }

    /// Returns an observer, which sees the leaders without being a candidate. It returns what it saw last, from the
    /// connected server, which may be behind the others.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
    /// let mut observer = election.observe();
    /// while let Some(leader) = observer.changed().await? {
    ///     println!("{} leads", leader.identifier_lossy());
    /// }
    /// println!("no leader");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer::new(self.lock.clone())
    }
}

for_operators!(Election: |election| &election.lock);

guard! {
    /// A won [`Election`]. Dropping it resigns in the background.
    Leadership, resign
}
