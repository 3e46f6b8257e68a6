//! Owns how a caller works in a session that may expire: in one ZooKeeper session after the other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_client::Client;

use crate::error::{Error, Result, Unanswered};
use crate::session::request::{Failure, Interrupt, SessionOver};
use crate::session::server_session::{End, Phase, ServerSession};
use crate::session::{Current, ORPHANED, Session, ended};
use crate::telemetry;

impl Session {
    /// Makes an attempt, in one ZooKeeper session after the other, until one does not end with its session.
    pub(crate) async fn attempt<'a, T>(
        &self,
        make: impl Fn(Arc<ServerSession>) -> BoxFuture<'a, Result<T, Interrupt>> + Send,
    ) -> Result<T> {
        loop {
            let zk = self.server_session().await?;
            let result = tokio::select! {
                biased;
                // Dropping the attempt gives up what it has.
                _ = zk.left_open() => Err(Interrupt::SessionOver),
                result = make(zk.clone()) => result,
            };
            match result {
                Ok(done) => return Ok(done),
                Err(Interrupt::Failed(error)) => return Err(error),
                Err(Interrupt::SessionOver) => {
                    tracing::debug!(session = %zk.id(), "session is over; trying again in the next");
                    zk.end_if_over();
                    zk.left_open().await;
                }
            }
        }
    }

    /// Sends a request of yours with the present [client](Self::client), and again until a server has answered: after a lost
    /// connection, and in the session that takes the place of one that has expired. So it must be one that may be done twice.
    /// The inner result is the answer, or the error with which the servers refuse the request.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting. What was sent may still be done.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server answered within `limit`, by default one session timeout; [`Error::Closed`] or
    /// [`Error::SessionEnded`] if the session is over.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// let read = session.request(None, |client| async move { client.get_data("/config/limits").await });
    /// let (data, _) = read.await??;
    /// println!("{} bytes", data.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request<T, R>(
        &self,
        limit: Option<Duration>,
        request: impl Fn(Client) -> R + Send + Sync,
    ) -> Result<Result<T, zookeeper_client::Error>>
    where
        T: Send,
        R: Future<Output = Result<T, zookeeper_client::Error>> + Send,
    {
        let limit = limit.unwrap_or_else(|| self.timeout());
        let answered = self.attempt(|zk| {
            let request = &request;
            async move {
                let send = || async {
                    let client = zk.share_client().ok_or(SessionOver)?;
                    telemetry::requested("user");
                    request(Client::clone(&client)).await.map_err(Failure::of)
                };
                Ok(zk.retry(send).await?)
            }
            .boxed()
        });
        tokio::time::timeout(limit, answered).await.unwrap_or_else(|_| Err(self.unavailable(limit)))
    }

    /// Ends a request that does not queue within one session timeout.
    pub(crate) async fn within_timeout<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.timeout();
        tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(self.unavailable(limit)))
    }

    /// Ends a request that does not queue as soon as no connection can answer it: at once if there is none.
    pub(crate) async fn while_connected<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let answered = async {
            tokio::select! {
                biased;
                // What is known without the servers is returned first.
                result = request => result,
                () = self.disconnected() => Err(self.unavailable(Duration::ZERO)),
            }
        };
        self.within_timeout(answered).await
    }

    /// Waits until the present session is over, or without a connection.
    async fn disconnected(&self) {
        let Some(zk) = self.present() else { return };
        let mut changes = zk.changes();
        while zk.phase() == Phase::Open && zk.is_connected() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The error of a request that has not been answered in time.
    pub(crate) fn unavailable(&self, after: Duration) -> Error {
        let connected = self.present().is_some_and(|zk| match zk.phase() {
            Phase::Open | Phase::Closing | Phase::Over(End::Closed(_)) => zk.is_connected(),
            // What its client reports of the connection may be out of date.
            Phase::Over(End::Expired | End::Unusable | End::AuthFailed | End::Orphaned) => false,
        });
        let why = if connected { Unanswered::TimeLimit } else { Unanswered::Servers };
        let failures = match why {
            Unanswered::TimeLimit => Vec::new(),
            Unanswered::Servers => self.inner.servers.as_ref().map_or_else(Vec::new, |servers| servers.failures()),
        };
        Error::Unavailable { hosts: self.hosts().to_string(), after, why, failures }
    }

    /// The time within which every call ends that does not queue.
    pub(crate) fn timeout(&self) -> Duration {
        let asked = self.inner.servers.as_ref().map(|servers| servers.session_timeout());
        self.present().map_or(asked.unwrap_or_default(), |zk| zk.timeout())
    }

    /// A ZooKeeper session to work in; waits while there is none.
    pub(crate) async fn server_session(&self) -> Result<Arc<ServerSession>> {
        let mut changes = self.inner.current.subscribe();
        loop {
            let current = changes.borrow_and_update().clone();
            match &current {
                Current::Ended(_, error) => return Err(error.clone()),
                Current::Live(zk) => match zk.phase() {
                    Phase::Open => return Ok(zk.clone()),
                    Phase::Closing | Phase::Over(End::Closed(_)) => {
                        return Err(Error::Closed);
                    }
                    Phase::Over(End::Orphaned) => {
                        return Err(ended(ORPHANED));
                    }
                    Phase::Over(End::Expired | End::Unusable | End::AuthFailed) if !zk.is_owned() => {
                        return Err(ended("it has expired, and an attached session is not renewed"));
                    }
                    Phase::Over(End::Expired | End::Unusable | End::AuthFailed) => {}
                },
                Current::Connecting(_) | Current::Renewing(..) => {}
            }
            if changes.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }
}
