//! Owns [`SessionState`] and [`SessionStates`]: the current state of a session, and its changes.

use std::fmt;
use std::sync::Arc;

use zookeeper_client::SessionId;

use crate::driver::Core;
use crate::machine::Life;
use crate::session::Session;
use crate::session::requests::until;

/// The state of a [`Session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// No server has been reached yet. Only a [`lazy`](Session::lazy) session starts in this state.
    Connecting,
    /// Connected to a server, with this ZooKeeper session. A renewal makes a session with another id, and all holds of the
    /// earlier session are lost.
    Connected(SessionId),
    /// Disconnected. Holds are suspended, and are lost unless a server answers before their trust ends.
    Suspended,
    /// The ZooKeeper session has expired, and all holds are lost. A new session is being made.
    Renewing,
    /// The servers refuse the credentials. The session retries. All holds are lost.
    Refused,
    /// The session is being closed. All holds are lost, and their nodes are being deleted.
    Closing,
    /// Closed, or ended without a renewal. This is the last state.
    Ended,
}

impl SessionState {
    /// Returns whether the state is [`Connected`](Self::Connected).
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Connected(_))
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Connected(id) => write!(f, "connected as session {id}"),
            Self::Suspended => f.write_str("suspended"),
            Self::Renewing => f.write_str("renewing an expired session"),
            Self::Refused => f.write_str("credentials refused"),
            Self::Closing => f.write_str("closing"),
            Self::Ended => f.write_str("ended"),
        }
    }
}

/// The states of a session, from [`Session::states`], beginning with the current one. This value does not keep the session
/// alive.
///
/// States are not queued. If the connection is lost and restored between two reads, the second read waits for the next
/// change.
pub struct SessionStates {
    core: Arc<Core>,
    last: Option<SessionState>,
}

impl SessionStates {
    /// The first call returns the current state. Each later call waits for a state that differs from the one returned last.
    /// Returns `None` after [`Ended`](SessionState::Ended).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn changed(&mut self) -> Option<SessionState> {
        let Self { core, last } = self;
        if *last == Some(SessionState::Ended) {
            return None;
        }
        let state = until(&core.changes, || Some(present(core)).filter(|state| *last != Some(*state))).await;
        *last = Some(state);
        *last
    }

    /// Waits for a state that is `wanted`, and returns that state, at once if it is the current one. Returns `None` if the
    /// session ends first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use tokio::time::timeout;
    /// use zookeeper_recipes::{Session, SessionState};
    ///
    /// let session = Session::lazy("zk1:2181,zk2:2181,zk3:2181")?;
    /// let mut states = session.states();
    /// let connected = states.wait_for(SessionState::is_connected);
    /// if timeout(Duration::from_secs(30), connected).await.is_err() {
    ///     println!("no server yet; the session goes on trying");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for(&mut self, wanted: impl Fn(SessionState) -> bool) -> Option<SessionState> {
        *self = Self::new(Arc::clone(&self.core));
        while let Some(state) = self.changed().await {
            if wanted(state) {
                return Some(state);
            }
        }
        None
    }

    fn new(core: Arc<Core>) -> Self {
        Self { core, last: None }
    }
}

fn present(core: &Arc<Core>) -> SessionState {
    let state = core.lock_current();
    match state.machine.life() {
        Life::Open | Life::Draining if state.machine.is_connected() => SessionState::Connected(state.session_id()),
        Life::Open | Life::Draining => SessionState::Suspended,
        Life::Renewing if state.is_refused => SessionState::Refused,
        Life::Renewing if state.was_connected() => SessionState::Renewing,
        Life::Renewing => SessionState::Connecting,
        Life::Closing | Life::Over if state.closing.is_none() && state.connection.is_some() => {
            SessionState::Closing
        }
        Life::Closing | Life::Over => SessionState::Ended,
    }
}

impl fmt::Debug for SessionStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStates").field("last", &self.last).finish_non_exhaustive()
    }
}

impl Session {
    /// Returns the current state of the session, as the client reports it.
    ///
    /// If a new connection is lost right after its handshake, the client does not report the loss. The state then stays
    /// [`Connected`](SessionState::Connected) until another connection is made or the client declares the session expired,
    /// for up to 7/5 session timeouts. Holds do not rely on this state: they are [`Lost`](crate::HoldState::Lost) when no
    /// answer has come for too long.
    #[must_use]
    pub fn state(&self) -> SessionState {
        present(self.core())
    }

    /// Returns the states of the session, the current one first: for logs, metrics and readiness probes.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) {
    /// let mut states = session.states();
    /// tokio::spawn(async move {
    ///     while let Some(state) = states.changed().await {
    ///         println!("ZooKeeper: {state}");
    ///     }
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn states(&self) -> SessionStates {
        SessionStates::new(Arc::clone(self.core()))
    }
}
