//! Owns [`Term`]: a leadership as [`Election::lead`](crate::Election::lead) hands it out, which holds nothing; the
//! loop that leads term after term; and the view of the present one.

use std::future::Future;
use std::ops::{ControlFlow, Deref};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::hold::HoldMonitor;

/// One term of a leader: a [monitor](HoldMonitor) of the leadership that [`Election::lead`](crate::Election::lead)
/// keeps.
///
/// It holds nothing, so you may ignore it or keep it. To end in order when somebody asks for it, await
/// [`revoke_requested`](HoldMonitor::revoke_requested): it resolves when an operator revokes the leadership, the session is
/// [drained](crate::Session::drain), or the [`Candidate`](crate::Candidate) of the term is stopped.
#[derive(Clone, Debug)]
pub struct Term {
    monitor: HoldMonitor,
    resign: Arc<Notify>,
}

impl Term {
    /// Ends the term: its future is dropped at its next `await`, the leadership is resigned, and `lead` campaigns
    /// again.
    ///
    /// After the end of the term it does nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
    /// use std::ops::ControlFlow;
    ///
    /// let led = election.lead(|term| async move {
    ///     if std::fs::exists("/var/run/unhealthy").unwrap_or(false) {
    ///         term.resign();
    ///     }
    ///     ControlFlow::<()>::Continue(())
    /// });
    /// led.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn resign(&self) {
        self.resign.notify_one();
    }

    /// Shows observers `data` instead of the identifier. See
    /// [`Leadership::proclaim`](crate::Leadership::proclaim).
    ///
    /// # Cancel safety
    ///
    /// After dropping the future, `data` may have been written or not.
    ///
    /// # Errors
    ///
    /// As [`Leadership::proclaim`](crate::Leadership::proclaim).
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(term: zookeeper_recipes::Term) -> Result<(), zookeeper_recipes::Error> {
    /// term.proclaim("10.0.0.7:8080").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        self.monitor.proclaim(data.into()).await
    }
}

impl Deref for Term {
    type Target = HoldMonitor;

    fn deref(&self) -> &HoldMonitor {
        &self.monitor
    }
}

/// The last term of an election and its clones.
#[derive(Clone, Default)]
pub(crate) struct CurrentTerm(Arc<Mutex<Option<HoldMonitor>>>);

impl CurrentTerm {
    pub(crate) fn begin(&self, term: HoldMonitor) {
        *self.last() = Some(term);
    }

    /// A view of the term, unless it has ended.
    pub(crate) fn monitor(&self) -> Option<HoldMonitor> {
        let term = self.last().clone();
        term.filter(|term| term.state().ended().is_none())
    }

    fn last(&self) -> MutexGuard<'_, Option<HoldMonitor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A leadership that was won.
pub(crate) struct Won {
    pub(crate) monitor: HoldMonitor,
    /// Owns the leadership: it lasts until this is awaited, or dropped.
    pub(crate) resign: BoxFuture<'static, Result<()>>,
}

/// Campaigns and leads, term after term, until a term returns `Break`, or `stop` is ready.
pub(crate) async fn lead_until<'a, F, R, T>(
    campaign: impl Fn() -> BoxFuture<'a, Result<Won>>,
    stop: impl Future<Output = ()>,
    mut term: F,
) -> Result<Option<T>>
where
    F: FnMut(Term) -> R,
    R: Future<Output = ControlFlow<T>>,
{
    let mut stop = pin!(stop);
    loop {
        let Won { monitor, resign } = tokio::select! {
            biased;
            () = &mut stop => return Ok(None),
            won = campaign() => match won {
                Err(Error::Evicted { .. }) => continue,
                won => won?,
            },
        };
        let resign_wanted = Arc::<Notify>::default();
        let given = Term { monitor: monitor.clone(), resign: resign_wanted.clone() };
        let end = tokio::select! {
            biased;
            () = &mut stop => ControlFlow::Break(None),
            () = resign_wanted.notified() => ControlFlow::Continue(()),
            led = monitor.run_until_lost(term(given)) => match led {
                Ok(ControlFlow::Break(end)) => ControlFlow::Break(Some(end)),
                Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
                Err(ended) => {
                    tracing::info!(path = monitor.path(), %ended, "leadership has ended; campaigning again");
                    ControlFlow::Continue(())
                }
            },
        };
        // The future of the term is dropped by now.
        match (end, resign.await) {
            (ControlFlow::Break(end), Ok(()) | Err(Error::Lost(_))) => return Ok(end),
            (ControlFlow::Break(end), Err(error)) => {
                tracing::warn!(path = monitor.path(), %error, "cannot resign");
                return Ok(end);
            }
            (ControlFlow::Continue(()), Ok(()) | Err(Error::Lost(_))) => {}
            (ControlFlow::Continue(()), Err(error)) => return Err(error),
        }
    }
}
