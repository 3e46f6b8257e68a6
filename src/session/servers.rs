//! Owns [`Servers`]: where a session connects to, and how, the first time and again after it has expired.
//!
//! 1. The hosts and the connector are given once, or asked for at every attempt to connect.
//! 2. Before a new session is used, the old one is attached to once more and closed. `SessionExpired` in answer, or the
//!    end of the closing, is the proof that its nodes are gone: the client's word alone is not (it gives a session up by
//!    its own clock), and an old node would stand before us in the queue until the server agrees.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, Client, Connector, CreateMode, SessionInfo};

use crate::clock::now;
use crate::error::{Error, HostFailure, Result, Unanswered, ZkError};
use crate::locked::locked;
use crate::machine::Moment;
use crate::options::Options;
use crate::session::state_changes::StateChanges;
use crate::session::times::Times;
use crate::session::{addresses, connector};
use crate::telemetry::guarded;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Refused credentials may be put right, but not soon, and servers write down each refusal.
const LONGEST_PAUSE_REFUSED: Duration = Duration::from_secs(30);

/// How long it may take to ask for the hosts when a session is renewed.
const LONGEST_QUESTION: Duration = Duration::from_secs(30);

/// What refused credentials were for.
const AUTHENTICATE: &str = "authenticate at";

/// The least session timeout that servers agree to unless they are configured otherwise: two ticks of 2 s.
const LEAST_BY_DEFAULT: Duration = Duration::from_secs(4);

/// Trust in a lock assumes two ticks, for which a client cannot ask.
pub(super) fn warn_if_short(client: &Client) {
    if client.session_timeout() < LEAST_BY_DEFAULT {
        guarded(|| {
            tracing::warn!(
                timeout = ?client.session_timeout(),
                "the session timeout is shorter than two ticks of a server with the default tickTime (2 s); trust in a lock \
                 assumes at least two ticks of these servers"
            );
        });
    }
}

/// The function given to [`Servers::from_fn`].
type Question = dyn Fn() -> BoxFuture<'static, Result<(Connector, String), BoxError>> + Send + Sync;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The servers of a session, and how to connect to them: the argument of [`Session::connect`](crate::Session::connect) and
/// [`Session::lazy`](crate::Session::lazy).
///
/// A list of hosts stands for servers that are connected with the defaults of the client, a reference to a
/// [`Config`](crate::Config) for what the deployment chose.
///
/// The list is like `zk1:2181,zk2:2181,zk3:2181/chroot`. White space around its elements is ignored. A chroot must exist; with
/// one, connecting costs one more request. A server with the prefix `tcp+tls://` is connected over TLS.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_recipes::{Config, Servers, Session};
/// use zookeeper_recipes::zookeeper_client::Client;
///
/// let session = Session::connect("zk1:2181,zk2:2181,zk3:2181").await?;
///
/// let connector = Client::connector().with_auth("digest", b"billing:secret");
/// let session = Session::connect(Servers::new(connector, "zk1:2181,zk2:2181,zk3:2181/billing")).await?;
///
/// let session = Session::connect(&Config::from_env("ZK")?).await?;
/// # Ok(())
/// # }
/// ```
pub struct Servers {
    /// Asked at every attempt to connect; `None` if the servers stay the same.
    question: Option<Box<Question>>,
    /// The servers of the latest attempt. At first those of the next one, if they are known.
    target: Mutex<Result<Option<Target>>>,
    /// Why the hosts did not answer at the latest attempt.
    failures: Mutex<Vec<HostFailure>>,
    /// The chroot of the first session. With another, the locks would be others.
    chroot: OnceLock<String>,
    /// The ACLs of a chroot that is created if it does not exist.
    chroot_acls: Option<Arc<[Acl]>>,
    /// Of the locks of the session.
    pub(super) lock_options: Options,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A connector may hold a password.
        f.debug_struct("Servers").field("hosts", &self.hosts()).finish_non_exhaustive()
    }
}

impl<S: AsRef<str>> From<S> for Servers {
    fn from(hosts: S) -> Self {
        Self::new(Client::connector(), hosts.as_ref())
    }
}

impl Servers {
    /// Servers that are connected with a connector, which sets the session timeout, TLS, SASL and credentials.
    ///
    /// The connector is kept and used again to renew the session. All servers should have the same limits for session
    /// timeouts: the session relies on the timeout that was agreed upon first. Leave the connection timeout as it is:
    /// how often the client pings follows from it, and [trust](crate#trust) relies on that.
    ///
    /// A connector or a list that cannot be used is reported where the session is made:
    /// [`Error::InvalidInput`] if `hosts` cannot be parsed, or if the connector carries an old session (`with_session`),
    /// keeps its session after the drop (`with_detached`), or accepts read-only servers (`with_readonly`). Likewise if its
    /// session timeout is longer than 2,147,483,647 ms (24 days), or one of its timeouts is shorter than 8 ms: the client
    /// cannot send these; and if it has no TLS options and a host needs them.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// use zookeeper_recipes::{Servers, Session};
    /// use zookeeper_recipes::zookeeper_client::Client;
    ///
    /// let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
    /// let session = Session::connect(Servers::new(connector, "zk1:2181,zk2:2181,zk3:2181")).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(connector: Connector, hosts: &str) -> Self {
        Self::of(None, Target::new(connector, hosts).map(Some))
    }

    /// A connector and hosts that `ask` returns, at the first connection and again whenever the session is renewed: for
    /// passwords that are rotated, and for servers that move.
    ///
    /// `ask` is not called while the session lives, also if the connection is lost: the client reconnects to the hosts that it has.
    /// So while servers are replaced, list old and new ones, until the sessions that know only the old ones are renewed or
    /// their processes restarted. Otherwise a session ends with the last of its old servers.
    ///
    /// `ask` is called at every attempt to make a session, so during an outage about once in a session timeout. Then it may take 30 s.
    /// While it fails, the session is not renewed, and [`Error::Unavailable`] has the text of its error as the
    /// reason. The chroot has to remain the same: with another, the locks would be others.
    ///
    /// [`Session::connect`](crate::Session::connect) returns the error of `ask`, if it is one of this crate, else
    /// [`Error::InvalidInput`] with its text.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::{Servers, Session};
    /// use zookeeper_recipes::zookeeper_client::Client;
    ///
    /// let servers = Servers::from_fn(async || {
    ///     let password = tokio::fs::read_to_string("/run/secrets/zookeeper").await?;
    ///     let hosts = tokio::fs::read_to_string("/etc/zookeeper-hosts").await?;
    ///     let credentials = format!("billing:{}", password.trim_end());
    ///     Ok((Client::connector().with_auth("digest", credentials.as_bytes()), hosts))
    /// });
    /// let session = Session::connect(servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn from_fn<F, A>(ask: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<(Connector, String), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        Self::of(Some(Box::new(move || ask().boxed())), Ok(None))
    }

    /// The same for a [`Config`](crate::Config), which has answered once: the only thing that it needs beside the public API.
    /// With ACLs, a chroot that does not exist is created when the session connects first.
    pub(crate) fn configured(
        self,
        first: Result<(Connector, String)>,
        lock_options: Options,
        chroot_acls: Option<Acls<'_>>,
    ) -> Self {
        let target = first.and_then(|(connector, hosts)| Target::new(connector, &hosts)).map(Some);
        let chroot_acls = chroot_acls.map(|acls| Arc::from(&*acls));
        Self { target: Mutex::new(target), lock_options, chroot_acls, ..self }
    }

    fn of(question: Option<Box<Question>>, target: Result<Option<Target>>) -> Self {
        Self {
            question,
            target: Mutex::new(target),
            failures: Mutex::default(),
            chroot: OnceLock::new(),
            chroot_acls: None,
            lock_options: Options::new(),
        }
    }

    /// For one session; fails if the connector or the hosts cannot be used.
    pub(super) fn checked(self) -> Result<Arc<Self>> {
        locked(&self.target).clone()?;
        Ok(Arc::new(self))
    }

    /// The hosts of the latest attempt.
    pub(super) fn hosts(&self) -> Arc<str> {
        let known = self.known().map(|target| target.hosts);
        known.unwrap_or_else(|| "hosts that were not asked for yet".into())
    }

    /// The session timeout that is asked for, as far as that is known.
    pub(super) fn session_timeout(&self) -> Duration {
        self.known().map_or(connector::DEFAULT_TIMEOUT, |target| target.session_timeout())
    }

    /// Whether there is a chroot, as far as that is known.
    pub(super) fn has_chroot(&self) -> bool {
        self.known().is_some_and(|target| connector::has_chroot(&target.hosts))
    }

    /// Why the hosts did not answer at the latest attempt.
    pub(super) fn failures(&self) -> Vec<HostFailure> {
        locked(&self.failures).clone()
    }

    fn set_failures(&self, failures: Vec<HostFailure>) {
        *locked(&self.failures) = failures;
    }

    /// Notes why all hosts are of no use.
    fn failed(&self, reason: &str) {
        let failure = |host: &str| HostFailure { host: host.to_owned(), reason: reason.to_owned() };
        self.set_failures(self.hosts().split(',').map(failure).collect());
    }

    /// Tries the hosts, to find out why they do not answer.
    async fn try_hosts(&self, target: &Target) {
        self.set_failures(addresses::failures(&target.hosts, Times::of(target.session_timeout()).host()).await);
    }

    fn known(&self) -> Option<Target> {
        locked(&self.target).clone().ok().flatten()
    }

    /// Where to connect to now.
    async fn target(&self) -> Result<Target> {
        let Some(question) = &self.question else {
            return Ok(locked(&self.target).clone()?.expect("servers that are not asked for are given"));
        };
        let (connector, hosts) = question().await.map_err(refusal_of)?;
        let target = Target::new(connector, &hosts)?;
        *locked(&self.target) = Ok(Some(target.clone()));
        Ok(target)
    }

    /// Connects for the first time.
    pub(super) async fn connect_first(&self) -> Result<(Client, Moment)> {
        self.connect_to(&self.target().await?, true).await
    }

    /// Connects with a new session, which is created after the moment that comes with it. If that takes long, tries the hosts
    /// meanwhile.
    async fn connect_to(&self, target: &Target, is_first: bool) -> Result<(Client, Moment)> {
        let tries = async {
            tokio::time::sleep(Times::of(target.session_timeout()).host()).await;
            self.try_hosts(target).await;
            pending().await
        };
        let connected = tokio::select! {
            biased;
            connected = self.connect_once(target, is_first) => connected?,
            never = tries => never,
        };
        self.set_failures(Vec::new());
        Ok(connected)
    }

    async fn connect_once(&self, target: &Target, is_first: bool) -> Result<(Client, Moment)> {
        let began = now();
        let unavailable = |since: Moment| {
            let (hosts, after) = (target.hosts.to_string(), Duration::from_micros(now().since(since)));
            Error::Unavailable { hosts, after, why: Unanswered::Servers, failures: self.failures() }
        };
        let client = match target.connect(None).await {
            Ok(client) => client,
            Err(ZkError::BadArguments(reason)) => {
                let reason = format!("{:?}: {reason}; {}", target.hosts, connector::FORM);
                return Err(Error::invalid("hosts", reason));
            }
            Err(error @ ZkError::AuthFailed) => return Err(Error::refused(AUTHENTICATE, &target.hosts, error)),
            Err(error @ (ZkError::Custom(_) | ZkError::Timeout | ZkError::NoHosts | ZkError::ConnectionLoss)) => {
                if let ZkError::Custom(reason) = error {
                    self.failed(&reason.to_string());
                }
                return Err(unavailable(began));
            }
            Err(error) => return Err(Error::refused("connect to", &target.hosts, error)),
        };
        warn_if_short(&client);
        // At first, a chroot that does not exist is a mistake in the hosts.
        if is_first && client.path() != "/" {
            let (since, patience) = (now(), client.session_timeout());
            let checked = timeout(patience, target.check_chroot(&client, self.chroot_acls.as_deref())).await;
            if !checked.unwrap_or(Ok(false))? {
                return Err(unavailable(since));
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
                Ok(connected) => return Some(connected),
                Err(Error::Client { source: ZkError::AuthFailed, .. }) => {
                    guarded(
                        || tracing::warn!(hosts = %self.hosts(), "the servers refuse the credentials; trying them again"),
                    );
                    self.failed("refuses the credentials");
                    refused();
                    longest = LONGEST_PAUSE_REFUSED;
                }
                Err(Error::InvalidInput { reason, .. }) => {
                    guarded(
                        || tracing::warn!(hosts = %self.hosts(), reason, "cannot work with these servers yet"),
                    );
                    self.failed(&reason);
                }
                Err(error) => guarded(|| tracing::debug!(%error, "cannot connect yet")),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
        None
    }

    async fn try_to_renew(&self, old: Option<&SessionInfo>, is_gone: &mut bool) -> Result<(Client, Moment)> {
        let target = timeout(LONGEST_QUESTION, self.target()).await.unwrap_or_else(|_| {
            let reason =
                format!("the function given to `Servers::from_fn` did not return within {LONGEST_QUESTION:?}");
            Err(Error::invalid("servers", reason))
        })?;
        if let Some(old) = old.filter(|_| !*is_gone) {
            self.bury(&target, old)
                .await
                .map_err(|error| Error::refused("end the old session at", &target.hosts, error))?;
            *is_gone = true;
        }
        self.connect_to(&target, old.is_none()).await
    }

    /// Makes certain that the old session is gone.
    async fn bury(&self, target: &Target, old: &SessionInfo) -> Result<(), ZkError> {
        match target.connect(Some(old)).await {
            Err(ZkError::SessionExpired) => Ok(()),
            // The servers keep the old session, and refuse a new one as well.
            Err(ZkError::AuthFailed) => Err(ZkError::AuthFailed),
            Err(error) => {
                self.try_hosts(target).await;
                Err(error)
            }
            // A server that makes another session instead proves nothing. Then the old nodes stay in their queues until it has
            // ended the old session, and those behind them wait.
            Ok(client) => {
                let ((_, changes), patience) =
                    (StateChanges::new(client.state_watcher()), client.session_timeout());
                drop(client);
                timeout(patience, changes.ended()).await.map_err(|_| ZkError::Timeout)
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

    /// The session timeout that is asked for.
    fn session_timeout(&self) -> Duration {
        connector::session_timeout(&self.connector)
    }

    /// Connects with a new session, or with an old one.
    async fn connect(&self, old: Option<&SessionInfo>) -> Result<Client, ZkError> {
        let connector = match old {
            Some(old) => self.connector.clone().with_session(old.clone()).with_fail_eagerly(),
            None => self.connector.clone(),
        };
        if connector::needs_names(&connector) {
            return connector.connect(&self.hosts).await;
        }
        let hosts = addresses::expand(&self.hosts, Times::of(self.session_timeout()).host()).await;
        connector.connect(&hosts).await
    }

    /// Whether the session of the client lived long enough to see that its chroot exists; an error if it does not. With
    /// ACLs it is created.
    async fn check_chroot(&self, client: &Client, acls: Option<&[Acl]>) -> Result<bool> {
        let missing = |how: &str| Err(Error::invalid("chroot", format!("{} does not exist{how}", client.path())));
        loop {
            let error = match (exists(client).await, acls) {
                // Locks below one that we may not look at may still be allowed.
                (Ok(true) | Err(ZkError::NoAuth), _) => return Ok(true),
                (Ok(false), None) => return missing("; create it first"),
                (Ok(false), Some(acls)) => match create_chroot(client, acls).await {
                    Ok(()) => return Ok(true),
                    Err(error) if is_refusal(&error) => {
                        return missing(&format!(", and cannot be created: {error}"));
                    }
                    Err(error) => error,
                },
                (Err(error), _) => error,
            };
            match error {
                ZkError::AuthFailed => return Err(Error::refused(AUTHENTICATE, &self.hosts, error)),
                _ if client.state().is_terminated() => return Ok(false),
                error => guarded(|| tracing::debug!(%error, "cannot look for the chroot yet")),
            }
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }
}

/// Whether the chroot of a client exists.
async fn exists(client: &Client) -> Result<bool, ZkError> {
    if client.check_stat("/").await?.is_some() {
        return Ok(true);
    }
    // It may be newer than what a server knows that lags behind.
    client.sync("/").await?;
    Ok(client.check_stat("/").await?.is_some())
}

/// Creates the chroot of a client, and its missing ancestors.
async fn create_chroot(client: &Client, acls: &[Acl]) -> Result<(), ZkError> {
    let from_root = client.clone().chroot("/").expect("the root is a path");
    from_root.mkdir(client.path(), &CreateMode::Persistent.with_acls(Acls::new(acls))).await?;
    guarded(|| tracing::info!(chroot = client.path(), "chroot is created"));
    Ok(())
}

/// Whether the servers will not create the chroot, however often they are asked.
fn is_refusal(error: &ZkError) -> bool {
    use ZkError::{InvalidAcl, NoAuth, NoChildrenForEphemerals, QuotaExceeded};

    matches!(error, NoAuth | InvalidAcl | NoChildrenForEphemerals | QuotaExceeded)
}
