//! Owns the blocking [`Election`], and [`Term`], which the closure of [`Election::run`] gets.

use std::ops::{ControlFlow, Deref};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::time::timeout;

use crate::blocking::{Guard, Leadership, Runtime, Session, Waiting, recipe};
use crate::contender::Contender;
use crate::election::{TermEnd, resign, win};
use crate::error::Result;
use crate::hold::{HoldMonitor, HoldState};
use crate::options::Options;

recipe! {
    /// An election of one leader among candidates, for threads that block: [`Election`](crate::Election) without async.
    ///
    /// Candidates are known by their [identifier](Options::with_identifier).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: zookeeper_recipes::blocking::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use std::ops::ControlFlow;
    ///
    /// use zookeeper_recipes::blocking::Election;
    ///
    /// Election::new(&session, "/leaders/scheduler")?.run(|term| {
    ///     while !term.is_over() {
    ///         // One step of the work, with `term.fencing_token()`.
    ///     }
    ///     ControlFlow::Continue(())
    /// })
    /// # }
    /// ```
    Election()
}

impl Election {
    /// Joins the candidates and waits for leadership, for as long as it takes.
    pub fn campaign(&self) -> Result<Leadership> {
        self.held(self.inner.campaign())
    }

    /// Becomes the leader without waiting for other candidates. Returns `None` if one was ahead.
    pub fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.maybe_held(self.inner.try_campaign())
    }

    /// Waits for leadership for at most `limit`, all requests included. Returns `None` if another candidate was ahead.
    pub fn try_campaign_for(&self, limit: Duration) -> Result<Option<Leadership>> {
        self.maybe_held(self.inner.try_campaign_for(limit))
    }

    /// Joins the candidates, and returns a [`Waiting`], on which a thread can wait in steps.
    pub fn enqueue(&self) -> Result<Waiting<crate::election::Leadership>> {
        Waiting::join(&self.runtime, self.inner.enqueue())
    }

    /// Campaigns and leads on this thread, term after term, until `term` returns [`ControlFlow::Break`] or the session
    /// is closed, drained, or has ended for good. Use it for a service that leads whenever it can.
    ///
    /// When elected, this candidate calls `term`, and resigns when `term` returns. A campaign that fails is logged as a
    /// warning and retried after a pause, of 100 ms at first and 5 s at most. There is also a pause after `term` has
    /// panicked, or has returned within a second without a loss of the leadership, as in
    /// [the async `run`](crate::Election::run).
    ///
    /// The closure is not interrupted when the leadership is lost. Let it return soon after [`Term::is_over`] is true. No
    /// other term begins before the closure returns. While this thread waits for leadership, `run` returns when the session
    /// is [drained](Session::drain) or closed.
    ///
    /// # Errors
    ///
    /// [`Error::SessionEnded`](crate::Error::SessionEnded) if the session has ended for good. A close or a drain of the
    /// session is no error.
    pub fn run(&self, mut term: impl FnMut(&Term) -> ControlFlow<()>) -> Result<()> {
        let mut pauses = self.inner.pauses();
        while let Some(leadership) = self.runtime.block_on(win(&self.inner))? {
            let (began, given) = (Instant::now(), Term::new(leadership.monitor(), &self.runtime));
            let led = catch_unwind(AssertUnwindSafe(|| term(&given)));
            let (time, is_lost) = (began.elapsed(), matches!(leadership.state(), HoldState::Lost(_)));
            self.runtime.block_on(resign(leadership));
            let end = match led {
                Ok(ControlFlow::Break(())) => return Ok(()),
                Ok(ControlFlow::Continue(())) if is_lost => TermEnd::Lost,
                Ok(ControlFlow::Continue(())) => TermEnd::Returned,
                Err(panic) => TermEnd::Panicked(panic),
            };
            self.runtime.block_on(pauses.after(time, end));
        }
        Ok(())
    }

    /// Returns a view of the current leadership of this value and its clones, for a readiness probe. `None` if none of them
    /// leads. Look at the view's state, because a leadership that is suspended is also returned.
    #[must_use]
    pub fn current_term(&self) -> Option<HoldMonitor> {
        self.inner.current_term()
    }

    /// Returns the current leader, or `None` if there is no candidate.
    pub fn leader(&self) -> Result<Option<Contender>> {
        self.runtime.block_on(self.inner.leader())
    }
}

/// One term of a leader: a [monitor](HoldMonitor) of the leadership. [`Election::run`] keeps the leadership until the closure
/// returns.
#[derive(Clone, Debug)]
pub struct Term {
    monitor: HoldMonitor,
    runtime: Runtime,
}

impl Term {
    fn new(monitor: HoldMonitor, runtime: &Runtime) -> Self {
        Self { monitor, runtime: runtime.clone() }
    }

    /// Returns whether the closure should return: the leadership was lost, or the leader was asked to release by `revoke` or
    /// by a [drain](Session::drain) of the session.
    ///
    /// The call does not wait, so you can make it between any two steps. The first call sends a read of the leader's node,
    /// which sets a watch.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state().has_ended() || self.revoke_requested().now_or_never().is_some()
    }

    /// Waits until the closure should return, for at most `limit`. Returns what [`is_over`](Self::is_over) returns then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(term: &zookeeper_recipes::blocking::Term) {
    /// use std::time::Duration;
    ///
    /// while !term.wait_over_for(Duration::from_secs(10)) {
    ///     println!("every ten seconds, by the leader");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn wait_over_for(&self, limit: Duration) -> bool {
        let over = async {
            tokio::select! {
                _ = self.ended() => {}
                () = self.revoke_requested() => {}
            }
        };
        self.runtime.block_on(async { timeout(limit, over).await.is_ok() })
    }

    /// Shows observers `data` instead of the identifier. See [`proclaim`](crate::HoldMonitor::proclaim) of the async
    /// leadership.
    ///
    /// # Errors
    ///
    /// As the async `proclaim`.
    pub fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        self.runtime.block_on(self.monitor.proclaim(data.into()))
    }
}

impl Deref for Term {
    type Target = HoldMonitor;

    fn deref(&self) -> &HoldMonitor {
        &self.monitor
    }
}
