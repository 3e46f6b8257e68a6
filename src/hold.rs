//! Owns [`Hold`], the body of every guard: a held lock, from its grant to its release or loss.
//!
//! 1. A hold is held (or suspended, while no server answers), then released or lost, for good.
//! 2. The machine decides whether a hold is held. This module keeps only the hold's end, for monitors that outlive the
//!    guard.
//! 3. Each call computes the state from a clock and from the client's own state. No event has to arrive first, so the first
//!    call after a pause is right.

mod core;
mod monitor;

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;

use tracing::{Instrument, Span};
use zookeeper_client::CheckWriter;

use crate::driver::{self, Failed, Granted};
use crate::error::{Error, Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::core::HoldCore;
use crate::machine::End;
use crate::options::Options;
use crate::path::LockPath;
use crate::session::Session;
use crate::telemetry::{self, AcquireSpan};

pub use self::monitor::HoldMonitor;
pub use crate::machine::HoldState;

pub(crate) use self::monitor::run_until;
pub(crate) use crate::options::REVOKE;

/// A held lock.
///
/// Every guard dereferences to a hold, and a hold to its [`HoldMonitor`], which has the fencing token and the state.
/// While the process runs, a hold reports its loss *before* the servers can grant the lock to someone else. A paused
/// process cannot report it, which is why stores check the [fencing token](HoldMonitor::fencing_token).
///
/// A `clone()` of a guard is a clone of its monitor: it does not keep the lock.
///
/// # Panics
///
/// Every future of a hold may panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
pub struct Hold {
    monitor: HoldMonitor,
    /// The full paths of the nodes.
    nodes: Vec<String>,
    /// Keeps the session alive as long as the hold.
    session: Session,
    /// Whether the release has ended and the driver has forgotten the acquisition. Then a drop has nothing left to do.
    is_forgotten: bool,
}

impl Hold {
    /// Turns a grant into a hold of the lock at `path`.
    pub(crate) fn new(
        session: &Session,
        path: &LockPath,
        options: &Options,
        granted: Granted,
        acquisition: &AcquireSpan,
    ) -> Result<Self> {
        // One transaction created all nodes, so they have one czxid.
        let Granted { op, czxid, granted_by, .. } = granted;
        let node = granted.nodes.first().expect("a lock that was granted has a node");
        let token = FencingToken::of_node(node, options.token_epoch(), czxid)?;
        if session.is_grant_of_older_data(acquisition.after, czxid) {
            telemetry::tokens_fell();
            let before = acquisition.after;
            telemetry::guarded(|| {
                tracing::warn!(
                    path = path.as_str(),
                    czxid,
                    before,
                    "fencing tokens have fallen: the servers have older or other data than before; stop all programs that lock, \
                     and raise the epoch of tokens"
                );
            });
        }
        tracing::debug!(node, %token, by = ?granted_by, "held");
        let core = HoldCore::new(session.core(), op, path, token, acquisition);
        Ok(Self {
            monitor: HoldMonitor::new(core),
            nodes: granted.keep(),
            session: session.clone(),
            is_forgotten: false,
        })
    }

    /// Returns a view of the hold that does not keep the lock.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::MutexGuard) {
    /// let monitor = guard.monitor();
    /// tokio::spawn(async move { monitor.run_until_lost(async { /* work of another task */ }).await });
    /// # }
    /// ```
    #[must_use]
    pub fn monitor(&self) -> HoldMonitor {
        HoldMonitor::new(Arc::clone(&self.core))
    }

    /// Runs `future` for as long as the lock is held.
    ///
    /// The lock is checked before every step of `future`, even right after a pause of the process. A step is one poll:
    /// all that `future` does until it has to wait. A step itself is not interrupted. So send the fencing token with each
    /// write. After a pause, [`tokio::time::interval`] makes up for the missed ticks in one step, unless its
    /// `MissedTickBehavior` is `Delay` or `Skip`.
    ///
    /// [`tokio::time::interval`]: https://docs.rs/tokio/latest/tokio/time/fn.interval.html
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops `future`. The guard stays.
    ///
    /// # Errors
    ///
    /// The [`Loss`], if the lock is lost before `future` is done; `future` is then dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::MutexGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// let worked = guard.run_until_lost(async {
    ///     tokio::fs::write("/reports/today", guard.fencing_token().to_string()).await?;
    ///     Ok::<_, std::io::Error>(()) // the type of its errors, which nothing else says
    /// });
    /// // The first `?` is for a loss, the second for an error of the work.
    /// worked.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_until_lost<F: Future>(&self, future: F) -> Result<F::Output, Loss> {
        run_until(|| self.state().loss(), self.lost(), future).instrument(self.span().clone()).await
    }

    /// Returns the span of the hold: a child of the span in which the lock was requested. It has the fields `lock.path`,
    /// `lock.kind` and `lock.token`, and after the hold has ended also `lock.held_ms` and `lock.ended`.
    ///
    /// A loss is logged in the span: as a `warn` event, or as a `debug` event if several holds are lost at once. A loss by a
    /// close is not logged.
    ///
    /// [`run_until_lost`](Self::run_until_lost) runs its future in this span.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::MutexGuard) {
    /// use tracing::Instrument;
    ///
    /// let span = guard.span().clone();
    /// tokio::spawn(async move { /* work under the lock */ }.instrument(span));
    /// # }
    /// ```
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.core.seen.span
    }

    /// Returns the full paths of the hold's nodes.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Begins a transaction that succeeds only while every node of the hold exists.
    ///
    /// Data in the same ZooKeeper needs no fencing token: a write in this transaction fails when the lock is gone.
    /// `commit` then fails with `CheckFailed`. For a hold with several nodes it fails with `OperationFailed`, at the index of
    /// a node's check. The checks come first, your operations after them.
    ///
    /// After the session has ended, the transaction fails. While the session is being closed, a transaction that fails, with
    /// `AuthFailed` or another error, may have been applied.
    ///
    /// From the first call on, the guard keeps a clone of the client until the guard is dropped. The ZooKeeper session
    /// of a [closed](crate::Session::close) session goes on until then.
    ///
    /// The transaction checks only that a node of this name exists. If a client with DELETE and CREATE on the lock path
    /// has replaced the node, the commit succeeds until the servers report the deletion.
    ///
    /// # Errors
    ///
    /// The [`Loss`], if the lock is lost already.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: &zookeeper_recipes::MutexGuard) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut writer = guard.check_writer()?;
    /// writer.add_set_data("/stock/item-7", b"41", None)?;
    /// writer.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_writer(&self) -> Result<CheckWriter<'_>, Loss> {
        self.monitor.check_writer().map_err(|ended| ended.loss().unwrap_or(Loss::Expired))
    }

    /// Returns the session of the hold.
    #[cfg(feature = "blocking")]
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Deletes the nodes. Waits until the servers have confirmed or refused the delete, or trust in the session has ended.
    pub(crate) async fn release(mut self) -> Result<()> {
        let mut has_begun = false;
        let released = poll_fn(|cx| {
            if std::mem::replace(&mut has_begun, true) {
                return driver::poll_released(self.session.core(), self.core.op, cx).map_err(Ok);
            }
            // This sends the delete. The delete is sent again until it is answered, even if this future is dropped.
            if let Some(loss) = self.core.begin_release(cx.waker().clone()).loss() {
                return Poll::Ready(Err(Err(loss)));
            }
            if self.core.note_end(HoldState::Released) {
                self.core.seen.ended(None);
            }
            Poll::Pending
        });
        let released = released.await;
        self.is_forgotten = !matches!(released, Err(Err(_)));
        released.map_err(|failed| match failed {
            Err(loss) | Ok(Failed { end: End::Lost(loss), .. }) => loss.into(),
            Ok(Failed { refusal: Some(refusal), .. }) => refusal,
            Ok(_) => Loss::Expired.into(),
        })
    }

    /// Turns a writer into a reader, in one transaction. The token stays the same.
    ///
    /// On failure the call also returns the hold, unchanged or lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the hold, like dropping the guard.
    pub(crate) async fn downgrade(mut self) -> Result<Self, (Self, Error)> {
        match self.core.downgraded().await {
            Ok(nodes) => {
                self.nodes = nodes;
                Ok(self)
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl Deref for Hold {
    type Target = HoldMonitor;

    fn deref(&self) -> &HoldMonitor {
        &self.monitor
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_forgotten {
            return;
        }
        // After a pause the hold may be lost although no loss was reported yet. Then its monitors must not see a release.
        let is_released = !self.state().has_ended() && self.core.note_end(HoldState::Released);
        driver::abandon(self.session.core(), self.core.op);
        // The report comes last, because it runs the user's code, which may block.
        if is_released {
            self.core.seen.ended(None);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("nodes", &self.nodes)
            .field("token", &self.fencing_token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Defines a guard type, with the methods that all guards have.
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        guard! { $(#[$doc])* $name, release }
    };
    ($(#[$doc:meta])* $name:ident, $release:ident) => {
        $(#[$doc])*
        ///
        /// The guard dereferences to a [`Hold`](crate::Hold), and a hold to a [`HoldMonitor`](crate::HoldMonitor). They have
        /// further methods.
        #[derive(Debug)]
        #[clippy::has_significant_drop]
        #[must_use = "dropping the guard releases the lock"]
        pub struct $name(crate::hold::Hold);

        impl $name {
            /// Releases the lock and waits until the servers have confirmed the release.
            ///
            /// When the work is done, it is enough to drop the guard, as with [`std::sync::MutexGuard`]. The drop sends the
            /// delete at once and does not wait, so a loss after the work does not turn success into an error. Use this
            /// call if you must know that the lock is released, or that the hold was not lost before.
            ///
            /// If no server answers, the call returns when the trust in the session ends, so within one session timeout.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future releases in the background, so a [`timeout`] around it only limits the waiting.
            ///
            /// [`timeout`]: https://docs.rs/tokio/latest/tokio/time/fn.timeout.html
            ///
            /// # Errors
            ///
            /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before: another contender may have held it
            /// since. [`Error::NoAuth`](crate::Error::NoAuth) if the ACLs let us create nodes but not delete them:
            /// other sessions then see the lock as held until this session ends.
            ///
            /// # Examples
            ///
            /// ```no_run
            #[doc = concat!("# async fn example(guard: zookeeper_recipes::", stringify!($name), ") {")]
            /// use std::time::Duration;
            ///
            /// use tokio::time::timeout;
            ///
            #[doc = concat!("match timeout(Duration::from_millis(500), guard.", stringify!($release), "()).await {")]
            ///     Ok(Ok(())) => println!("held to the end, and free now"),
            ///     Ok(Err(error)) => println!("others may have held it: {error}"),
            ///     Err(_) => println!("the servers have not answered; the release goes on in the background"),
            /// }
            /// # }
            /// ```
            pub async fn $release(self) -> crate::error::Result<()> {
                self.0.release().await
            }
        }

        impl std::ops::Deref for $name {
            type Target = crate::hold::Hold;

            fn deref(&self) -> &crate::hold::Hold {
                &self.0
            }
        }
    };
}

pub(crate) use guard;
