//! Owns [`Election`]: one leader among candidates.

mod observer;

use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::contender::{self, Contender, for_operators};
use crate::error::{Error, Result};
use crate::hold::guard;
use crate::lock::{Lock, Waiting};
use crate::options::{Options, validate_data};
use crate::queue::Kind;
use crate::session::Session;

pub use self::observer::Observer;

/// An election of one leader among candidates, in the order in which they stood. Compatible with Curator's
/// `LeaderLatch`. (For its `LeaderSelector`, see [`Mutex`](crate::Mutex).)
///
/// Candidates are known by their [identifier](Options::with_identifier).
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use std::ops::ControlFlow;
///
/// use zookeeper_recipes::{Election, Options};
///
/// let options = Options::new().with_identifier("10.0.0.7:8080");
/// let election = Election::with_options(&session, "/leaders/scheduler", options)?;
/// election
///     .lead(|term| async move {
///         // Work as the leader, with `term.fencing_token()`; cut off when leadership is lost.
///         drop(term);
///         ControlFlow::<()>::Continue(())
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    lock: Lock,
}

impl Election {
    /// Makes a handle of the election at `path`, with the session's options. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path.
    pub fn new(session: &Session, path: &str) -> Result<Self> {
        Self::with_options(session, path, session.options().clone())
    }

    /// Makes a handle of the election at `path` with options of its own. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` or `options` cannot be used.
    pub fn with_options(session: &Session, path: &str, options: Options) -> Result<Self> {
        Ok(Self { lock: Lock::of_one(session, path, Kind::Latch, &options)? })
    }

    /// Stands for leadership and waits for it, for as long as it takes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the candidate; the node is deleted in the background.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn campaign(&self) -> Result<Leadership> {
        self.lock.acquire().await.map(Leadership)
    }

    /// Becomes the leader if nobody else stands: `None` if a candidate was seen ahead of us.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn try_campaign(&self) -> Result<Option<Leadership>> {
        Ok(self.lock.try_acquire().await?.map(Leadership))
    }

    /// Stands for leadership and waits for it for at most `limit`, all requests included: `None` if a candidate was seen
    /// ahead of us.
    ///
    /// `None`, a limit too short for an answer, and servers out of reach call for different reactions: see
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn try_campaign_for(&self, limit: Duration) -> Result<Option<Leadership>> {
        Ok(self.lock.try_acquire_for(limit).await?.map(Leadership))
    }

    /// Stands for leadership, and comes back with the place among the candidates, to be awaited for the leadership.
    ///
    /// # Cancel safety
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign).
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn enqueue(&self) -> Result<Waiting<Leadership>> {
        Waiting::enqueue(self.lock.clone(), Leadership).await
    }

    /// Leads, term after term: campaigns, runs what `term` makes of the leadership, and campaigns again when that ends
    /// with `Continue` or the leadership is lost. Ends when a term ends with `Break`.
    ///
    /// A loss ends a term and not the campaign; so a term that may fail distinguishes a loss from what should end it:
    ///
    /// ```no_run
    /// # use std::ops::ControlFlow;
    /// # use zookeeper_recipes::{Election, Error, Leadership};
    /// # async fn serve(term: &Leadership) -> Result<(), Error> { Ok(()) }
    /// # async fn example(election: Election) -> Result<(), Error> {
    /// let end = election.lead(|term| async move {
    ///     let served = async {
    ///         term.proclaim("10.0.0.7:8080").await?;
    ///         serve(&term).await
    ///     };
    ///     match served.await {
    ///         Err(Error::Lost(_)) => ControlFlow::Continue(()),
    ///         done => ControlFlow::Break(done),
    ///     }
    /// });
    /// end.await?
    /// # }
    /// ```
    ///
    /// When leadership is lost, the future of the term is dropped at its next `await`; see
    /// [`Hold::run_until_lost`](crate::Hold::run_until_lost). A term that is over should have dropped its leadership, or
    /// have [resigned](Leadership::resign), or it waits for itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the term and withdraws the candidate.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), but never [`Error::Evicted`]: it stands again.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn lead<F, R, T>(&self, mut term: F) -> Result<T>
    where
        F: FnMut(Leadership) -> R,
        R: Future<Output = ControlFlow<T>>,
    {
        loop {
            let leadership = match self.campaign().await {
                Err(Error::Evicted { .. }) => continue,
                campaigned => campaigned?,
            };
            let monitor = leadership.monitor();
            match monitor.run_until_lost(term(leadership)).await {
                Ok(ControlFlow::Break(end)) => return Ok(end),
                Ok(ControlFlow::Continue(())) => {}
                Err(loss) => {
                    tracing::info!(path = %self.lock.path, %loss, "leadership is lost; campaigning again")
                }
            }
        }
    }

    /// Who leads at the moment, if anybody does.
    ///
    /// The identifier of a leader that was asked to resign is [empty](Contender::identifier).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn leader(&self) -> Result<Option<Contender>> {
        contender::first(&self.lock).await
    }

    /// Begins to observe who leads, without standing.
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

impl Leadership {
    /// Shows observers something else in place of the identifier: where the leader serves, or how far it has come.
    ///
    /// Observers see the identifier first, as [`Contender::identifier`], and then this. Where that would do, write it as the
    /// identifier from the beginning.
    ///
    /// A revocation overwrites either. The leader still receives it when this overwrites it in turn:
    /// [`revoke_requested`](crate::Hold::revoke_requested) resolves.
    ///
    /// # Cancel safety
    ///
    /// After dropping the future it may have been written or not.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if leadership was lost before the servers could be asked; [`Error::InvalidInput`] if `data` cannot be
    /// written; [`Error::NoAuth`] if the ACLs deny it.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        let data = data.into();
        validate_data("data", &data)?;
        self.0.write(data).await
    }
}
