//! Owns connecting: the first time, and again after a session has expired.
//!
//! Before a new session is used, the old one is attached to once more and closed. `SessionExpired` in answer, or the
//! end of the closing, is the proof that its nodes are gone: the client's word alone is not (it gives a session up by
//! its own clock), and an old node would stand before us in the queue until the server agrees.

use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::{Client, Connector, SessionInfo};

use crate::error::{Error, Result, Unanswered};
use crate::session::clock::Moment;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The least session timeout that servers agree to unless they are told otherwise: two ticks of 2 s.
const LEAST_BY_DEFAULT: Duration = Duration::from_secs(4);

/// Where to connect to, and how.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    connector: Connector,
    hosts: Arc<str>,
}

impl Servers {
    pub(crate) fn new(connector: Connector, hosts: &str) -> Result<Self> {
        // The client offers no other look at what a connector carries.
        let carries = format!("{connector:?}");
        if carries.contains("session: Some(") {
            return Err(Error::invalid(
                "connector",
                "it carries the session of another client, which a renewal would present again; leave out with_session",
            ));
        }
        if carries.contains("detached: true") {
            return Err(Error::invalid(
                "connector",
                "it is detached, so its session and all nodes would outlive close(); leave out with_detached",
            ));
        }
        if carries.contains("readonly: true") {
            return Err(Error::invalid(
                "connector",
                "it allows read-only servers, on which no lock can be taken; leave out with_readonly",
            ));
        }
        Ok(Self { connector, hosts: hosts.into() })
    }

    pub(crate) fn hosts(&self) -> &Arc<str> {
        &self.hosts
    }

    /// Connects with a new session, which is created after the moment that comes with it.
    pub(crate) async fn connect(&self) -> Result<(Client, Moment)> {
        let began = Moment::now();
        let connected = self.connector.clone().connect(&self.hosts).await.map_err(|error| match error {
            zookeeper_client::Error::BadArguments(reason) => Error::invalid(
                "hosts",
                format!("{:?}: {reason}; it should look like host:2181,host:2181/chroot", self.hosts),
            ),
            zookeeper_client::Error::AuthFailed => {
                Error::Client { action: "authenticate at", path: self.hosts.to_string(), source: error }
            }
            zookeeper_client::Error::Timeout
            | zookeeper_client::Error::NoHosts
            | zookeeper_client::Error::ConnectionLoss
            | zookeeper_client::Error::Custom(_) => {
                let (hosts, after) = (self.hosts.to_string(), Moment::now().since(began));
                Error::Unavailable { hosts, after, why: Unanswered::Servers }
            }
            source => Error::Client { action: "connect to", path: self.hosts.to_string(), source },
        });
        let client = connected?;
        if client.session_timeout() < LEAST_BY_DEFAULT {
            tracing::warn!(
                timeout = ?client.session_timeout(),
                "the session timeout is shorter than two ticks of a server with the default tickTime (2 s); trust in a \
                 lock assumes at least two ticks of these servers"
            );
        }
        Ok((client, began))
    }

    /// Makes sure that an old session is gone and connects with a new one; tries for as long as `wanted`.
    pub(crate) async fn renew(
        &self,
        old: &SessionInfo,
        wanted: impl Fn() -> bool,
    ) -> Option<Result<(Client, Moment)>> {
        let mut pause = FIRST_PAUSE;
        let mut buried = false;
        while wanted() {
            if !buried {
                buried = self.bury(old).await;
            }
            if buried {
                match self.connect().await {
                    Ok(connected) => return Some(Ok(connected)),
                    // Asking again with the same credentials would change nothing.
                    Err(error @ Error::Client { source: zookeeper_client::Error::AuthFailed, .. }) => {
                        return Some(Err(error));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot connect again yet");
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        None
    }

    /// Whether the old session is certainly gone.
    async fn bury(&self, old: &SessionInfo) -> bool {
        let connector = self.connector.clone().with_session(old.clone()).with_fail_eagerly();
        match connector.connect(&self.hosts).await {
            // Without credentials there will be no new session either, and connecting says so.
            Err(zookeeper_client::Error::SessionExpired | zookeeper_client::Error::AuthFailed) => true,
            Err(error) => {
                tracing::debug!(session = %old.id(), %error, "cannot tell yet whether the old session is gone");
                false
            }
            Ok(client) => {
                let (mut state, patience) = (client.state_watcher(), client.session_timeout());
                drop(client);
                let ended = async {
                    while !state.state().is_terminated() {
                        state.changed().await;
                    }
                };
                tokio::time::timeout(patience, ended).await.is_ok()
            }
        }
    }
}
