//! Owns where a session connects to, and how: the first time, and again after it has expired.
//!
//! 1. The hosts and the connector are given once, or asked for at every attempt to connect.
//! 2. Before a new session is used, the old one is attached to once more and closed. `SessionExpired` in answer, or the
//!    end of the closing, is the proof that its nodes are gone: the client's word alone is not (it gives a session up by
//!    its own clock), and an old node would stand before us in the queue until the server agrees.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, Client, Connector, CreateMode, SessionInfo};

use crate::error::{Error, Result, Unanswered};
use crate::session::diagnosis::Diagnosis;
use crate::session::trust::Moment;
use crate::session::{connector, names};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Refused credentials may be put right, but not soon, and servers write down each refusal.
const LONGEST_PAUSE_REFUSED: Duration = Duration::from_secs(30);

/// How long it may take to ask for the hosts when a session is renewed.
const LONGEST_QUESTION: Duration = Duration::from_secs(30);

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

/// What a user gives who asks for the hosts again.
pub(crate) type Question = dyn Fn() -> BoxFuture<'static, Result<(Connector, String), BoxError>> + Send + Sync;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where to connect to, and how, at every attempt.
#[derive(Clone)]
pub(crate) struct Servers {
    source: Source,
    /// The session timeout that is asked for, and whether there is a chroot; guesses, where that is asked for only later.
    known: (Duration, bool),
    diagnosis: Arc<Diagnosis>,
    /// Of the first session. With another, the locks would be others.
    chroot: Arc<OnceLock<String>>,
    /// The ACLs of a chroot that is created if it does not exist.
    chroot_acls: Option<Arc<[Acl]>>,
}

#[derive(Clone)]
enum Source {
    Given(Box<Target>),
    Asked(Arc<Question>),
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("diagnosis", &self.diagnosis).finish_non_exhaustive()
    }
}

impl Servers {
    pub(crate) fn given(connector: Connector, hosts: &str) -> Result<Self> {
        let target = Target::new(connector, hosts)?;
        let this = Self::of(Source::Given(Box::new(target.clone())), target.settings(), target.hosts.clone());
        this.diagnosis.is_of(target.hosts, target.connector);
        Ok(this)
    }

    pub(crate) fn asked(question: Arc<Question>) -> Self {
        let known = (connector::DEFAULT_TIMEOUT, false);
        Self::of(Source::Asked(question), known, "hosts that were not asked for yet".into())
    }

    /// Those of a configuration, which answers at every attempt, and has answered once.
    pub(crate) fn configured(first: (Connector, String), question: Arc<Question>) -> Result<Self> {
        let target = Target::new(first.0, &first.1)?;
        Ok(Self::of(Source::Asked(question), target.settings(), target.hosts))
    }

    fn of(source: Source, known: (Duration, bool), hosts: Arc<str>) -> Self {
        Self { source, known, diagnosis: Diagnosis::new(hosts), chroot: Arc::default(), chroot_acls: None }
    }

    /// The same, with a chroot that is created if it does not exist when the session connects first.
    pub(crate) fn creating_chroot(self, acls: Acls<'_>) -> Self {
        Self { chroot_acls: Some(Arc::from(&*acls)), ..self }
    }

    pub(super) fn diagnosis(&self) -> &Arc<Diagnosis> {
        &self.diagnosis
    }

    /// The session timeout that is asked for, and whether there is a chroot, if that is known.
    pub(super) fn known(&self) -> (Duration, bool) {
        self.known
    }

    /// Connects for the first time; also returns the session timeout that was asked for, and whether there is a chroot.
    pub(crate) async fn connect_first(&self) -> Result<(Client, Moment, (Duration, bool))> {
        let target = self.target().await?;
        let (client, created) = self.connect_to(&target, true).await?;
        Ok((client, created, target.settings()))
    }

    async fn target(&self) -> Result<Target> {
        let target = match &self.source {
            Source::Given(target) => return Ok((**target).clone()),
            Source::Asked(question) => match question().await {
                Ok((connector, hosts)) => Target::new(connector, &hosts)?,
                Err(error) => return Err(refusal_of(error)),
            },
        };
        self.diagnosis.is_of(target.hosts.clone(), target.connector.clone());
        Ok(target)
    }

    /// Connects with a new session, which is created after the moment that comes with it.
    async fn connect_to(&self, target: &Target, is_first: bool) -> Result<(Client, Moment)> {
        let began = Moment::now();
        let unavailable = async |since: Moment| {
            self.diagnosis.run(DIAGNOSIS).await;
            let (hosts, after) = (target.hosts.to_string(), Moment::now().since(since));
            Error::Unavailable { hosts, after, why: Unanswered::Servers, failures: self.diagnosis.failures() }
        };
        let client = match target.connect(None).await {
            Ok(client) => client,
            Err(zookeeper_client::Error::BadArguments(reason)) => {
                let reason = format!("{:?}: {reason}; {}", target.hosts, connector::FORM);
                return Err(Error::invalid("hosts", reason));
            }
            Err(error @ zookeeper_client::Error::AuthFailed) => return Err(target.refused(error)),
            Err(
                zookeeper_client::Error::Timeout
                | zookeeper_client::Error::NoHosts
                | zookeeper_client::Error::ConnectionLoss
                | zookeeper_client::Error::Custom(_),
            ) => return Err(unavailable(began).await),
            Err(source) => {
                return Err(Error::Client { action: "connect to", path: target.hosts.to_string(), source });
            }
        };
        warn_if_short(&client);
        // At first, a chroot that does not exist is a mistake in the hosts.
        if is_first && client.path() != "/" {
            let (since, patience) = (Moment::now(), client.session_timeout());
            match timeout(patience, target.check_chroot(&client, self.chroot_acls.as_deref())).await {
                Ok(Ok(true)) => {}
                Ok(Err(error)) => return Err(error),
                Ok(Ok(false)) | Err(_) => return Err(unavailable(since).await),
            }
        }
        let chroot = self.chroot.get_or_init(|| client.path().to_owned());
        if client.path() != chroot {
            let reason = format!(
                "{:?}: the chroot of the session is {chroot}, and has to remain; with another, its locks would be others",
                target.hosts
            );
            return Err(Error::invalid("hosts", reason));
        }
        Ok((client, began))
    }

    /// Connects, with a new session; makes sure that the old one is gone, if there was one. Tries for as long as `wanted`, and
    /// calls `refused` whenever the credentials are.
    pub(crate) async fn renew(
        &self,
        old: Option<&SessionInfo>,
        wanted: impl Fn() -> bool,
        refused: impl Fn(),
    ) -> Option<(Client, Moment)> {
        let mut pause = FIRST_PAUSE;
        let mut is_gone = old.is_none();
        while wanted() {
            let mut longest = LONGEST_PAUSE;
            match self.try_to_renew(old, &mut is_gone).await {
                Ok(Some(connected)) => return Some(connected),
                Ok(None) => {}
                Err(Error::Client { source: zookeeper_client::Error::AuthFailed, .. }) => {
                    tracing::warn!(hosts = %self.diagnosis.hosts(), "the servers refuse the credentials; trying them again");
                    self.diagnosis.failed("refuses the credentials");
                    refused();
                    longest = LONGEST_PAUSE_REFUSED;
                }
                Err(Error::InvalidInput { reason, .. }) => {
                    tracing::warn!(hosts = %self.diagnosis.hosts(), reason, "cannot work with these servers yet");
                    self.diagnosis.failed(&reason);
                }
                Err(error) => tracing::debug!(%error, "cannot connect yet"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
        None
    }

    /// `None` if it is not known yet whether the old session is gone.
    async fn try_to_renew(
        &self,
        old: Option<&SessionInfo>,
        is_gone: &mut bool,
    ) -> Result<Option<(Client, Moment)>> {
        let target = match timeout(LONGEST_QUESTION, self.target()).await {
            Ok(target) => target?,
            Err(_) => {
                let reason = format!("what is asked for the hosts has not answered within {LONGEST_QUESTION:?}");
                return Err(Error::invalid("servers", reason));
            }
        };
        if let Some(old) = old.filter(|_| !*is_gone) {
            *is_gone = self.bury(&target, old).await;
            if !*is_gone {
                return Ok(None);
            }
        }
        self.diagnosed(target.settings().0, self.connect_to(&target, old.is_none())).await.map(Some)
    }

    /// Finds out why the hosts do not answer, if `connected` takes long.
    async fn diagnosed<T>(&self, session_timeout: Duration, connected: impl Future<Output = T>) -> T {
        let diagnosis = async {
            tokio::time::sleep(session_timeout / 8).await;
            self.diagnosis.run(DIAGNOSIS).await;
            pending().await
        };
        tokio::select! {
            biased;
            connected = connected => connected,
            never = diagnosis => never,
        }
    }

    /// Whether the old session is certainly gone.
    async fn bury(&self, target: &Target, old: &SessionInfo) -> bool {
        match target.connect(Some(old)).await {
            // Without credentials there will be no new session either, and connecting reports it.
            Err(zookeeper_client::Error::SessionExpired | zookeeper_client::Error::AuthFailed) => true,
            Err(error) => {
                tracing::debug!(session = %old.id(), %error, "not known yet whether the old session is gone");
                self.diagnosis.run(DIAGNOSIS).await;
                false
            }
            // A server that makes another session instead proves nothing. Then the old nodes stay in their queues until it has
            // ended the old session, and those behind them wait.
            Ok(client) => {
                let (mut state, patience) = (client.state_watcher(), client.session_timeout());
                drop(client);
                let ended = async {
                    while !state.state().is_terminated() {
                        state.changed().await;
                    }
                };
                timeout(patience, ended).await.is_ok()
            }
        }
    }
}

/// Why the hosts are not known; an error of this crate as it is.
fn refusal_of(error: BoxError) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::invalid("servers", format!("they could not be asked for: {error}")),
    }
}

/// Where to connect to, and how, this time.
#[derive(Clone)]
struct Target {
    connector: Connector,
    hosts: Arc<str>,
}

impl Target {
    fn new(connector: Connector, hosts: &str) -> Result<Self> {
        let hosts = connector::normalize(hosts)?;
        connector::check(&connector)?;
        connector::check_tls(&connector, &hosts)?;
        Ok(Self { connector, hosts: hosts.into() })
    }

    /// The session timeout that is asked for, and whether there is a chroot.
    fn settings(&self) -> (Duration, bool) {
        (connector::session_timeout(&self.connector), connector::has_chroot(&self.hosts))
    }

    /// Connects with a new session, or with an old one.
    async fn connect(&self, old: Option<&SessionInfo>) -> Result<Client, zookeeper_client::Error> {
        let connector = match old {
            Some(old) => self.connector.clone().with_session(old.clone()).with_fail_eagerly(),
            None => self.connector.clone(),
        };
        if connector::needs_names(&connector) {
            return connector.connect(&self.hosts).await;
        }
        let hosts = names::expand(&self.hosts, self.settings().0 / 8).await;
        connector.connect(&hosts).await
    }

    /// Whether the session of the client lived long enough to see that its chroot exists; an error if it does not. With
    /// ACLs it is created.
    async fn check_chroot(&self, client: &Client, acls: Option<&[Acl]>) -> Result<bool> {
        loop {
            let found = match (exists(client).await, acls) {
                (Ok(false), Some(acls)) => match create_chroot(client, acls).await {
                    Err(error) if is_refusal(&error) => {
                        let reason = format!("{} does not exist, and cannot be created: {error}", client.path());
                        return Err(Error::invalid("chroot", reason));
                    }
                    created => created.map(|()| true),
                },
                (found, _) => found,
            };
            match found {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    let reason = format!("{} does not exist; create it first", client.path());
                    return Err(Error::invalid("chroot", reason));
                }
                // Locks below it may still be allowed.
                Err(zookeeper_client::Error::NoAuth) => return Ok(true),
                Err(error @ zookeeper_client::Error::AuthFailed) => return Err(self.refused(error)),
                Err(error) if client.state().is_terminated() => {
                    tracing::debug!(%error, "session ended while its chroot was looked for");
                    return Ok(false);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot look for the chroot yet");
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
            }
        }
    }

    fn refused(&self, source: zookeeper_client::Error) -> Error {
        Error::Client { action: "authenticate at", path: self.hosts.to_string(), source }
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

/// Creates the chroot of a client, and its missing ancestors.
async fn create_chroot(client: &Client, acls: &[Acl]) -> Result<(), zookeeper_client::Error> {
    let from_root = client.clone().chroot("/").expect("the root is a path");
    from_root.mkdir(client.path(), &CreateMode::Persistent.with_acls(Acls::new(acls))).await?;
    tracing::info!(chroot = client.path(), "chroot is created");
    Ok(())
}

/// Whether the servers will not create the chroot, however often they are asked.
fn is_refusal(error: &zookeeper_client::Error) -> bool {
    use zookeeper_client::Error;

    matches!(error, Error::NoAuth | Error::InvalidAcl | Error::NoChildrenForEphemerals | Error::QuotaExceeded)
}
