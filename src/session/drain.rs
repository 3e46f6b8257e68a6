//! Owns the drain of a session: no lock is granted any more, and the guards that are left have some time.
//!
//! 1. The flag is set once and stays set, for all clones of the session, also when the future that has set it is dropped.
//! 2. An acquisition looks at the flag after it has got trust, which counts it among the holds. So a drain that finds no hold
//!    has missed none.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::request::Interrupt;
use crate::session::server_session::ServerSession;

impl Session {
    /// Ends the session as [`close`](Self::close) does, but lets the holders finish first: for a handler of SIGTERM.
    /// Returns how many holds were cut off.
    ///
    /// From the call on, waiters get [`Error::Closed`], and so does every new acquisition, `try_lock` included. Each
    /// holder is asked to release, as by `revoke`: [`Hold::revoke_requested`](crate::Hold::revoke_requested) resolves.
    /// Holds go on as before: they can be re-entered by their owner, downgraded, proclaimed and released. Once all of them
    /// have ended, or `limit` has passed, the session is closed. So it takes `limit` and one session timeout at most.
    ///
    /// A guard that is dropped or released counts as ended, and so does a lost one. A [`Waiting`](crate::Waiting) whose
    /// turn has come is a hold. A hold counts as cut off if it was still held when this call closed the session; it becomes
    /// [`Lost(Closed)`](crate::Loss::Closed).
    ///
    /// All clones of the session are drained. Of an [attached](Self::attach) session, only the locks end; other sessions
    /// that were attached to the same client go on. While a renewal is under way there is no hold to wait for. A session that
    /// is closed already is drained. Until the close, requests that acquire nothing, like `contenders`, are answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future undoes nothing: no lock can be acquired any more, and the holders stay asked. But nobody
    /// closes the session at the limit. Call `drain` or [`close`](Self::close) for that. Both may also be called while a
    /// drain is under way: the first to reach its end closes the session, and the others return then.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close). All holds have ended then, too.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// // On SIGTERM. The limit and one session timeout are less than what Kubernetes waits until it kills.
    /// match session.drain(Duration::from_secs(20)).await? {
    ///     0 => println!("all work under locks was finished"),
    ///     cut_off => println!("{cut_off} locks were released under their holders"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain(&self, limit: Duration) -> Result<usize> {
        self.inner.draining.send_replace(true);
        let Some(zk) = self.present() else {
            // No server was reached yet.
            return self.close().await.map(|()| 0);
        };
        let ended = async {
            tokio::select! {
                biased;
                // The holds have ended with it.
                _ = zk.left_open() => {}
                () = zk.without_holds() => {}
            }
        };
        let cut_off = match tokio::time::timeout(limit, ended).await {
            Ok(()) => 0,
            Err(_) => zk.holds(),
        };
        if cut_off > 0 {
            tracing::warn!(session = %zk.id(), cut_off, "drained session is closed under its holders");
        }
        self.close().await?;
        Ok(cut_off)
    }

    /// Whether the session is being drained, or was.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.inner.draining.subscribe()
    }

    /// Makes an attempt to acquire, as [`attempt`](Self::attempt) does, until the session is drained.
    pub(crate) async fn acquire<'a, T>(
        &self,
        make: impl Fn(Arc<ServerSession>) -> BoxFuture<'a, Result<T, Interrupt>> + Send,
    ) -> Result<T> {
        let acquired = tokio::select! {
            biased;
            () = drained(self.draining()) => return Err(Error::Closed),
            acquired = self.attempt(make) => acquired,
        };
        if *self.inner.draining.borrow() { Err(Error::Closed) } else { acquired }
    }
}

/// Waits until the session is drained; for ever if it is dropped.
pub(crate) async fn drained(mut draining: watch::Receiver<bool>) {
    if draining.wait_for(|draining| *draining).await.is_err() {
        std::future::pending().await
    }
}

impl ServerSession {
    /// How many holds there are, with those that are being released.
    pub(super) fn holds(&self) -> usize {
        self.trusting.load(Ordering::Acquire)
    }

    async fn without_holds(&self) {
        loop {
            let mut ended = pin!(self.trust_unneeded.notified());
            ended.as_mut().enable();
            if self.holds() == 0 {
                return;
            }
            ended.await;
        }
    }
}
