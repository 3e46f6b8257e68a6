//! Owns [`Session::connected`] and [`Session::check`]: whether a session is connected, and whether the servers honour it.

use std::time::Duration;

use futures_util::FutureExt;

use crate::error::{Error, Result};
use crate::session::Session;
use crate::session::trust::Moment;

/// What [`Session::check`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// How long a quorum took to answer.
    pub round_trip: Duration,
    /// For how long a lock of the session would be [trusted](crate#trust) if no other answer came. Zero after a reconnect in
    /// which the session has no lock, until it takes one.
    pub trusted_for: Duration,
}

impl Session {
    /// Waits until the session is connected: at once if it is, else for the first connection of a [`lazy`](Self::lazy)
    /// session, or for the next one. It sends nothing.
    ///
    /// The connection may be lost again by the time the caller looks; [`events`](Self::events) follows it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) or [`Error::SessionEnded`](crate::Error::SessionEnded) if the session is over,
    /// also if it ends while this waits.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use tokio::time::timeout;
    /// use zookeeper_recipes::Session;
    /// use zookeeper_recipes::zookeeper_client::Client;
    ///
    /// let session = Session::lazy(Client::connector(), "zk1:2181,zk2:2181,zk3:2181")?;
    /// if timeout(Duration::from_secs(30), session.connected()).await.is_err() {
    ///     println!("no server yet; the session goes on trying");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connected(&self) -> Result<()> {
        self.attempt(|zk| async move { Ok(zk.connected().await?) }.boxed()).await
    }

    /// Asks a quorum of the servers whether they honour the session, in one round trip: for monitoring.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], with a reason for each host, if no answer has come within `limit`;
    /// [`Error::NoAuth`] or [`Error::Client`] if the server that the session is connected to has refused the request, which
    /// it may do without a quorum; [`Error::Closed`] or [`Error::SessionEnded`] if the session is over.
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
    /// let checked = session.check(Duration::from_secs(1)).await?;
    /// println!("{:?}; locks are trusted for {:?} more", checked.round_trip, checked.trusted_for);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self, limit: Duration) -> Result<Checked> {
        let checked = self.attempt(|zk| {
            async move {
                let mut sent = Moment::now();
                let asked = zk.retry(|| {
                    sent = Moment::now();
                    zk.check(vec!["/".to_owned()])
                });
                // When a part is refused, a quorum has judged it. A server may refuse the whole by itself.
                asked.await?.map_err(|error| Error::refused("check", "/", error))?;
                let now = Moment::now();
                let trusted_for = zk.ledger().until().since(now);
                Ok(Checked { round_trip: now.since(sent), trusted_for })
            }
            .boxed()
        });
        tokio::time::timeout(limit, checked).await.unwrap_or_else(|_| Err(self.unavailable(limit)))
    }
}
