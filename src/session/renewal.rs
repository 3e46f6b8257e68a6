//! Owns connecting: the first time, and again after a session has expired.
//!
//! Before a new session is used, the old one is attached to once more and closed. `SessionExpired` in answer, or the
//! end of the closing, is the proof that its nodes are gone: the client's word alone is not (it gives a session up by
//! its own clock), and an old node would stand before us in the queue until the server agrees.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use zookeeper_client::{Client, Connector, SessionInfo};

use crate::error::{Error, Result, Unanswered};
use crate::session::diagnosis::Diagnosis;
use crate::session::server_session::End;
use crate::session::trust::Moment;
use crate::session::{Current, Inner, ORPHANED, connector, ended, keeper};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the hosts are tried, to find out why they do not answer.
const DIAGNOSIS: Duration = Duration::from_millis(500);

/// The least session timeout that servers agree to unless they are configured otherwise: two ticks of 2 s.
const LEAST_BY_DEFAULT: Duration = Duration::from_secs(4);

/// Trust in a lock assumes two ticks, for which a client cannot ask.
pub(super) fn warn_if_short(client: &Client) {
    if client.session_timeout() < LEAST_BY_DEFAULT {
        tracing::warn!(
            timeout = ?client.session_timeout(),
            "the session timeout is shorter than two ticks of a server with the default tickTime (2 s); trust in a lock \
             assumes at least two ticks of these servers"
        );
    }
}

/// Where to connect to, and how.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    connector: Connector,
    hosts: Arc<str>,
    diagnosis: Arc<Diagnosis>,
}

impl Servers {
    pub(crate) fn new(connector: Connector, hosts: &str) -> Result<Self> {
        let hosts = connector::normalize(hosts)?;
        connector::check(&connector)?;
        let hosts: Arc<str> = hosts.into();
        Ok(Self { connector, diagnosis: Diagnosis::new(hosts.clone()), hosts })
    }

    pub(crate) fn hosts(&self) -> &Arc<str> {
        &self.hosts
    }

    pub(super) fn diagnosis(&self) -> &Arc<Diagnosis> {
        &self.diagnosis
    }

    /// Connects for the first time, when a chroot that does not exist is a mistake in the hosts.
    pub(crate) async fn connect_first(&self) -> Result<(Client, Moment)> {
        let (client, created) = self.connect().await?;
        if client.path() != "/" {
            let (began, patience) = (Moment::now(), client.session_timeout());
            let checked = tokio::time::timeout(patience, self.check_chroot(&client)).await;
            match checked {
                Ok(checked) => checked?,
                Err(_) => return Err(self.unavailable(began).await),
            }
        }
        Ok((client, created))
    }

    async fn check_chroot(&self, client: &Client) -> Result<()> {
        let began = Moment::now();
        loop {
            match exists(client).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let reason = format!("{} does not exist; create it first", client.path());
                    return Err(Error::invalid("chroot", reason));
                }
                // Locks below it may still be allowed.
                Err(zookeeper_client::Error::NoAuth) => return Ok(()),
                Err(error @ zookeeper_client::Error::AuthFailed) => return Err(self.refused(error)),
                Err(error) if client.state().is_terminated() => {
                    tracing::debug!(%error, "session ended while its chroot was looked for");
                    return Err(self.unavailable(began).await);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot look for the chroot yet");
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        }
    }

    async fn unavailable(&self, since: Moment) -> Error {
        self.diagnosis.run(DIAGNOSIS).await;
        let (hosts, after) = (self.hosts.to_string(), Moment::now().since(since));
        Error::Unavailable { hosts, after, why: Unanswered::Servers, failures: self.diagnosis.failures() }
    }

    fn refused(&self, source: zookeeper_client::Error) -> Error {
        Error::Client { action: "authenticate at", path: self.hosts.to_string(), source }
    }

    /// Connects with a new session, which is created after the moment that comes with it.
    pub(crate) async fn connect(&self) -> Result<(Client, Moment)> {
        let began = Moment::now();
        let client = match self.connector.clone().connect(&self.hosts).await {
            Ok(client) => client,
            Err(zookeeper_client::Error::BadArguments(reason)) => {
                let reason = format!("{:?}: {reason}; {}", self.hosts, connector::FORM);
                return Err(Error::invalid("hosts", reason));
            }
            Err(error @ zookeeper_client::Error::AuthFailed) => return Err(self.refused(error)),
            Err(
                zookeeper_client::Error::Timeout
                | zookeeper_client::Error::NoHosts
                | zookeeper_client::Error::ConnectionLoss
                | zookeeper_client::Error::Custom(_),
            ) => return Err(self.unavailable(began).await),
            Err(source) => {
                return Err(Error::Client { action: "connect to", path: self.hosts.to_string(), source });
            }
        };
        warn_if_short(&client);
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
            // Without credentials there will be no new session either, and connecting reports it.
            Err(zookeeper_client::Error::SessionExpired | zookeeper_client::Error::AuthFailed) => true,
            Err(error) => {
                tracing::debug!(session = %old.id(), %error, "not known yet whether the old session is gone");
                self.diagnosis.run(DIAGNOSIS).await;
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

/// Whether the chroot of a client exists.
async fn exists(client: &Client) -> Result<bool, zookeeper_client::Error> {
    if client.check_stat("/").await?.is_some() {
        return Ok(true);
    }
    // It may be newer than what a server knows that lags behind.
    client.sync("/").await?;
    Ok(client.check_stat("/").await?.is_some())
}

/// Ends a session whose runtime is dropped while it is being renewed, or is about to be.
pub(super) struct Supervisor(pub(super) Weak<Inner>);

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.renews.store(false, Ordering::Release);
            let renewing = matches!(&*inner.current.borrow(), Current::Renewing(_));
            if renewing {
                inner.end(ended(ORPHANED));
            }
            // Callers that wait for the next session look again.
            inner.current.send_modify(|_| {});
        }
    }
}

/// Renews the session whenever it has expired, for as long as somebody uses it.
pub(super) async fn supervise(supervisor: Supervisor, servers: Servers) {
    let session = &supervisor.0;
    loop {
        let Some(zk) = session.upgrade().map(|inner| inner.current.borrow().zk().clone()) else {
            return;
        };
        let end = tokio::select! {
            end = zk.over() => end,
            () = servers.diagnosis.watch(&zk) => zk.over().await,
        };
        let Some(old) = zk.client().filter(|_| end == End::Expired) else {
            if let (End::AuthFailed, Some(inner)) = (end, session.upgrade()) {
                inner.end(ended("the servers refuse its credentials"));
            }
            return;
        };
        tracing::warn!(session = %zk.id(), "session has expired; its locks are lost, and a new one is made");
        let replaced = session.upgrade().is_some_and(|inner| inner.replace(&zk, Current::Renewing(zk.clone())));
        if !replaced {
            return;
        }
        let wanted =
            || session.upgrade().is_some_and(|inner| matches!(&*inner.current.borrow(), Current::Renewing(_)));
        let Some(renewed) = servers.renew(old.session(), wanted).await else {
            return;
        };
        let Some(inner) = session.upgrade() else {
            return;
        };
        match renewed {
            Ok((client, created)) => {
                let next = keeper::start(client, Some(created));
                tracing::info!(session = %next.id(), "session is renewed");
                if !inner.replace(&zk, Current::Live(next.clone())) {
                    next.close();
                    return;
                }
            }
            Err(error) => {
                inner.end(ended(format!("connecting again failed: {error}")));
                return;
            }
        }
    }
}
