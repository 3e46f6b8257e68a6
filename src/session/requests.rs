//! Sends the requests that the machine does not send, and retries them in the next ZooKeeper session when one expires.
//!
//! An attempt at a request fails in one of four ways:
//!
//! 1. The server refuses the request with an error.
//! 2. No answer comes: the server may have carried out the request, or may still do so.
//! 3. The server throttles the request, which is retried, up to a limit.
//! 4. The ZooKeeper session is over.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::sleep;
use zookeeper_client::{Client, OneshotWatcher, SessionId, Stat};

use crate::driver::{Core, State, is_refusal, runtime_is_gone};
use crate::error::{Error, Result, Unanswered, ZkError};
use crate::machine::Life;
use crate::session::Session;
use crate::telemetry;

/// How often a throttled request is retried before its caller gets the error.
const MAX_LOST: u32 = 10;

/// The first pause before a failed request is retried over a connection that seems to be up.
const PAUSE: Duration = Duration::from_millis(20);

/// Why an attempt in one ZooKeeper session failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Interrupt {
    /// The ZooKeeper session is over or being closed, so the attempt waits for no more answers. Another session may follow.
    #[error("session is over")]
    SessionOver,
    #[error(transparent)]
    Failed(#[from] Error),
}

/// Waits until a watch has fired. If the runtime of the session is dropped before that, the client's watcher panics. Then
/// the session ends, and this future stays pending.
pub(super) async fn fired(watch: OneshotWatcher, core: Arc<Core>) {
    if AssertUnwindSafe(watch.changed()).catch_unwind().await.is_err() {
        core.found_runtime_gone();
        pending().await
    }
}

/// A handle of one ZooKeeper session, for requests that the machine does not send.
#[derive(Clone)]
pub(crate) struct Zk {
    client: Arc<Client>,
    core: Arc<Core>,
    generation: u64,
}

impl Zk {
    /// Returns the current ZooKeeper session; `None` if there is none, or if it is being closed.
    pub(crate) fn present(core: &Arc<Core>, state: &State) -> Option<Self> {
        let client = state.client.as_ref().filter(|_| is_open(state) && state.connection.is_some())?;
        Some(Self { client: Arc::clone(client), core: Arc::clone(core), generation: state.generation })
    }

    /// Lists the children of a node. The list is empty if the node does not exist.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<String>, Interrupt> {
        let listed = self.retry("list", || self.client.list_children(path)).await?;
        Ok(found(listed, "list", path)?.unwrap_or_default())
    }

    /// Returns the stat of a node; `None` if the node does not exist.
    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Stat>, Interrupt> {
        let found = self.retry("stat", || self.client.check_stat(path)).await?;
        found.map_err(|error| Error::refused("look at", path, error).into())
    }

    // The next methods, down to `delete`, send one request each. Call them in `retry`.

    pub(crate) async fn data(&self, path: &str) -> Result<(Vec<u8>, Stat), ZkError> {
        self.client.get_data(path).await
    }

    pub(crate) async fn watch_data(&self, path: &str) -> Result<(Vec<u8>, Stat, OneshotWatcher), ZkError> {
        self.client.get_and_watch_data(path).await
    }

    pub(crate) async fn watch_children(&self, path: &str) -> Result<(Vec<String>, Stat, OneshotWatcher), ZkError> {
        self.client.get_and_watch_children(path).await
    }

    pub(crate) async fn watch_existence(&self, path: &str) -> Result<(Option<Stat>, OneshotWatcher), ZkError> {
        self.client.check_and_watch_stat(path).await
    }

    pub(crate) async fn write(&self, path: &str, data: &[u8], version: i32) -> Result<(), ZkError> {
        self.client.set_data(path, data, Some(version)).await.map(drop)
    }

    pub(crate) async fn delete(&self, path: &str, version: i32) -> Result<(), ZkError> {
        self.client.delete(path, Some(version)).await
    }

    pub(crate) fn client(&self) -> Client {
        Client::clone(&self.client)
    }

    pub(crate) fn id(&self) -> SessionId {
        self.client.session_id()
    }

    /// Returns whether requests can be sent. Fails if the session is over, or being closed.
    pub(crate) fn is_connected(&self) -> Result<bool, Interrupt> {
        let state = self.core.lock_current();
        let is_present = state.generation == self.generation && is_open(&state);
        if is_present { Ok(state.machine.is_connected()) } else { Err(Interrupt::SessionOver) }
    }

    /// Waits until the session is over, or being closed.
    async fn over(&self) {
        until(&self.core.changes, || self.is_connected().err().map(drop)).await;
    }

    /// Retries a request until a server has answered. The request must be safe to do twice. `name`: the request's name in
    /// metrics. The inner error is the server's refusal, or `Throttled` after too many attempts.
    pub(crate) async fn retry<T, F>(
        &self,
        name: &'static str,
        mut send: impl FnMut() -> F,
    ) -> Result<Result<T, ZkError>, Interrupt>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        let (mut lost, mut throttled) = (0_u32, 0);
        loop {
            until(&self.core.changes, || self.is_connected().map(|is_up| is_up.then_some(())).transpose()).await?;
            telemetry::requested(name, 1);
            match send().await {
                Err(ZkError::SessionExpired | ZkError::ClientClosed | ZkError::AuthFailed) => {
                    return Err(Interrupt::SessionOver);
                }
                Err(error) if runtime_is_gone(&error) => {
                    self.core.found_runtime_gone();
                    return Err(Interrupt::SessionOver);
                }
                Err(ZkError::Throttled) if throttled < MAX_LOST => (lost, throttled) = (lost + 1, throttled + 1),
                Err(error) if error != ZkError::Throttled && !is_refusal(&error) => lost += 1,
                answer => return Ok(answer),
            }
            // There is no pause after the first failure if the connection is lost. Later pauses grow, because a server may
            // close the connection on every request.
            if lost > 1 || self.is_connected()? {
                sleep(PAUSE * (1 << lost.saturating_sub(1).min(4))).await;
            }
        }
    }
}

/// Converts an answer. Returns `None` if the node does not exist.
pub(crate) fn found<T>(answer: Result<T, ZkError>, action: &'static str, path: &str) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ZkError::NoNode) => Ok(None),
        Err(error) => Err(Error::refused(action, path, error)),
    }
}

/// Returns whether there is a ZooKeeper session, connected or not, that is not being closed.
fn is_open(state: &State) -> bool {
    matches!(state.machine.life(), Life::Open | Life::Draining)
}

/// Waits until `look` returns a value. Calls `look` at once, and again after each change.
pub(super) async fn until<T>(changes: &watch::Sender<()>, mut look: impl FnMut() -> Option<T>) -> T {
    let mut changes = changes.subscribe();
    loop {
        changes.mark_unchanged();
        if let Some(found) = look() {
            return found;
        }
        // The caller keeps the sender alive, so this does not fail.
        let _ = changes.changed().await;
    }
}

impl Session {
    /// Runs `make` in the current ZooKeeper session. If that session ends before `make` has finished, runs `make` again in
    /// the next one.
    pub(crate) async fn attempt<T, F>(&self, make: impl Fn(Zk) -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T, Interrupt>> + Send,
    {
        loop {
            let zk = self.zk().await?;
            let result = tokio::select! {
                biased;
                // Once its ZooKeeper session is over, the attempt is dropped, with all that it owns.
                () = zk.over() => Err(Interrupt::SessionOver),
                result = Box::pin(make(zk.clone())) => result,
            };
            match result {
                Ok(done) => return Ok(done),
                Err(Interrupt::Failed(error)) => return Err(error),
                Err(Interrupt::SessionOver) => {
                    tracing::debug!(session = %zk.id(), "session is over; trying again in the next");
                    zk.over().await;
                }
            }
        }
    }

    /// Returns the current ZooKeeper session. Waits while there is none; fails if there will be none.
    async fn zk(&self) -> Result<Zk> {
        let core = self.core();
        until(&core.changes, || {
            let state = core.lock_current();
            if state.error.is_none() && !matches!(state.machine.life(), Life::Closing | Life::Over) {
                return Zk::present(core, &state).map(Ok);
            }
            Some(Err(state.error.clone().unwrap_or(Error::Closed)))
        })
        .await
    }

    /// Sends a request of yours with the current [client](Self::client), and retries it until a server has answered:
    /// after a lost connection, and in the next session after one has expired. So the request must be safe to do twice.
    /// The inner result is the answer, or the error with which the servers refuse the request.
    ///
    /// The ZooKeeper session of a [closed](Self::close) session goes on while you keep a clone of the client.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting. A request that was sent may still be done.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server answered within `limit`, by default one session timeout. [`Error::Closed`] or
    /// [`Error::SessionEnded`] if the session is over.
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
        let request = &request;
        let answered = self.attempt(|zk| async move { zk.retry("user", || request(zk.client())).await });
        self.within(limit, answered).await
    }

    /// Runs `make` as `attempt` does, for at most one session timeout.
    pub(crate) async fn attempt_within_timeout<T, F>(&self, make: impl Fn(Zk) -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T, Interrupt>> + Send,
    {
        self.within(None, self.attempt(make)).await
    }

    /// Awaits a call for at most `limit`, by default one [session timeout](Self::timeout), and then drops it.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] after the limit, with the reasons why servers do not answer. Otherwise the errors of the
    /// call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session, mutex: zookeeper_recipes::Mutex) -> Result<(), zookeeper_recipes::Error> {
    /// let queue = session.within(None, mutex.contenders()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn within<T>(&self, limit: Option<Duration>, call: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = limit.unwrap_or_else(|| self.timeout());
        tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(self.unavailable(limit)))
    }

    /// Awaits a request that does not queue, for at most one session timeout. Fails as soon as there is no connection, unless
    /// the request is ready at its first poll.
    pub(crate) async fn while_connected<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        // Resolves when the session is over or disconnected.
        let disconnected = until(&self.core().changes, || {
            let state = self.core().lock_current();
            (!is_open(&state) || !state.machine.is_connected()).then_some(())
        });
        let answered = async {
            tokio::select! {
                biased;
                // The request is polled first, because it may need no connection.
                result = request => result,
                () = disconnected => Err(self.unavailable(Duration::ZERO)),
            }
        };
        self.within(None, answered).await
    }

    /// Returns the error of a request that was not answered in time.
    pub(crate) fn unavailable(&self, after: Duration) -> Error {
        let is_up = self.core().lock_current().machine.is_connected();
        let (why, failures) = if is_up {
            (Unanswered::TimeLimit, Vec::new())
        } else {
            (Unanswered::Servers, self.inner.servers.failures())
        };
        Error::Unavailable { hosts: self.hosts().to_string(), after, why, failures }
    }

    /// Returns the session timeout that the servers have granted, or before the first connection the requested one. The
    /// session timeout is the default time limit of calls that do not queue.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        let state = self.core().lock();
        if state.was_connected() {
            Duration::from_micros(state.machine.session_timeout())
        } else {
            self.inner.servers.requested_timeout()
        }
    }
}
