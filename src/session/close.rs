//! Owns the end of a session: [`Session::close`] and [`Session::drain`].

use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Closing, Core, State};
use crate::error::{Error, Result};
use crate::machine::{Event, Life};
use crate::session::Session;
use crate::session::requests::until;

impl Session {
    /// Ends the session and with it all its locks. [`drain`](Self::drain) lets the holders finish first.
    ///
    /// Holds become [`Lost(Closed)`](crate::Loss::Closed) at once, their nodes are deleted, and waiters get
    /// [`Error::Closed`]. `Ok` means that every lock node of the session is certainly deleted, unless a renewal was under
    /// way. The session then drops its client: the ZooKeeper session ends with the last clone of that client, such as one from
    /// [`client`](Self::client), or in a guard that has given a [`check_writer`](crate::Hold::check_writer). Other
    /// ephemeral nodes go with the ZooKeeper session.
    ///
    /// The call takes one session timeout at most. A second call waits for the same end.
    ///
    /// During a renewal there is nothing to end, because the old ZooKeeper session has expired. After an outage it may have
    /// expired by the client's clock alone. Its nodes then stay until the servers expire it, too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting. The session still ends.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers could not be reached in time, or if the ACLs do not let us delete a node
    /// and the end of the session was not confirmed. Nodes may stay for up to a session timeout, or for as long as you
    /// keep a clone of the client.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::Error;
    ///
    /// match session.close().await {
    ///     // The servers release the locks when they expire the session.
    ///     Err(Error::Unavailable { .. }) => {}
    ///     closed => closed?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) -> Result<()> {
        let (core, limit) = (self.core(), self.timeout());
        close(core, &mut core.lock());
        let ended = until(&core.changes, || core.lock().closing);
        // If the session's task has not ended in time, it still drops the client later.
        match tokio::time::timeout(limit, ended).await {
            Ok(Closing::Released) => Ok(()),
            Ok(Closing::Unconfirmed) | Err(_) => Err(self.unavailable(limit)),
        }
    }

    /// Ends the session as [`close`](Self::close) does, but lets the holders finish first: for example on SIGTERM. Returns
    /// how many holds were cut off.
    ///
    /// From the call on, waiters get [`Error::Closed`], and so does every new acquisition, `try_lock` included. Each
    /// holder is asked to release, as by `revoke`: [`Hold::revoke_requested`](crate::HoldMonitor::revoke_requested) resolves.
    /// Holds go on as before: they can be re-entered by their owner, downgraded, proclaimed and released. Once all of them
    /// have ended, or `limit` has passed, the session is closed. So the call takes `limit` and one session timeout at most.
    ///
    /// A hold has ended when its guard is dropped, its release is confirmed, or it is lost. A future or a
    /// [`Waiting`](crate::Waiting) that was granted the lock counts as a hold, and returns its guard. A hold that has not
    /// ended when this call closes the session counts as cut off. If it was held, it becomes
    /// [`Lost(Closed)`](crate::Loss::Closed).
    ///
    /// All clones of the session are drained. While a renewal is under way there is no hold to wait for. A session that is
    /// already closed counts as drained. Until the close, requests that acquire nothing, like `contenders`, are answered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future undoes nothing: no lock can be acquired any more, and holders still see the request. The
    /// session is then not closed at the limit; call `drain` or [`close`](Self::close) for that. Both may also be
    /// called while a drain is under way: the first to reach its end closes the session, and then the others return.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close). All holds have ended in that case as well.
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
        let core = self.core();
        core.handle(&mut core.lock(), Event::Drain);
        // The machine closes the session when the last hold has ended.
        let ended = until(&core.changes, || (core.lock_current().machine.life() != Life::Draining).then_some(()));
        let _ = tokio::time::timeout(limit, ended).await;
        let cut_off = {
            let mut state = core.lock_current();
            let cut_off = if state.machine.life() == Life::Draining { state.hold_count() } else { 0 };
            close(core, &mut state);
            cut_off
        };
        if cut_off > 0 {
            tracing::warn!(session = %self.id(), cut_off, "drained session is closed under its holders");
        }
        self.close().await?;
        Ok(cut_off)
    }
}

/// Begins to close the session, unless the close has begun.
pub(super) fn close(core: &Arc<Core>, state: &mut State) {
    core.connection(state);
    state.error.get_or_insert(Error::Closed);
    core.handle(state, Event::Close);
}
