//! Owns [`Servers`]: where and how a session connects, at first and when it is renewed.
//!
//! 1. The hosts and the settings are given once, or a function of the user's returns them at every attempt to connect.
//! 2. The servers may still have the old session when a new one is made, because the client declares a session expired by its
//!    own clock. The new session then treats the old nodes as those of another client, unless it has a unique name. They
//!    stay ahead of its own nodes until the servers expire the old session.

use std::fmt;
use std::future::pending;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tokio::time::timeout;
use zookeeper_client::{Client, Connector};

use crate::clock::now;
use crate::error::{Error, HostFailure, Result, Unanswered, ZkError};
use crate::locked::locked;
use crate::machine::Moment;
use crate::options::Options;
use crate::session::times::Times;
use crate::session::unique_name::UniqueName;
use crate::session::{addresses, hosts};
use crate::telemetry::guarded;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause after refused credentials. This pause is longer because a fix takes a while, and servers log each refusal.
const LONGEST_PAUSE_REFUSED: Duration = Duration::from_secs(30);

/// The longest time that the function given to [`Servers::from_fn`] may take in the background.
const LONGEST_QUESTION: Duration = Duration::from_secs(30);

/// The action named in the error for refused credentials.
const AUTHENTICATE: &str = "authenticate at";

/// The shortest session timeout that servers grant with the default configuration: two ticks of 2 s.
const LEAST_BY_DEFAULT: Duration = Duration::from_secs(4);

/// Warns if the session timeout is shorter than two default ticks. Trust in a lock assumes that the timeout is at least
/// two ticks of the servers, but a client cannot read their `tickTime`.
fn warn_if_short(client: &Client) {
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

/// The session timeouts that can be requested, in milliseconds. The client replaces shorter ones, and sends a signed 32-bit
/// number.
const TIMEOUTS_MS: RangeInclusive<u32> = 8..=i32::MAX as u32;

/// The client's default session timeout.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(6);

/// The function given to [`Servers::from_fn`].
type Question = dyn Fn() -> BoxFuture<'static, Result<Servers, BoxError>> + Send + Sync;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The servers of a session, and how to connect to them: the argument of [`Session::connect`](crate::Session::connect) and
/// [`Session::lazy`](crate::Session::lazy).
///
/// A list of hosts converts to servers with the default settings. A reference to a [`Config`](crate::Config) converts to the
/// deployment's servers. Credentials are added to earlier ones. Any other setting replaces an earlier one.
///
/// A list looks like `zk1:2181,zk2:2181,zk3:2181/chroot`. White space around its elements is ignored. A chroot must exist, and
/// costs the first connect one more request. A server with the prefix `tcp+tls://` is connected over TLS.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), zookeeper_recipes::Error> {
/// use std::time::Duration;
///
/// use zookeeper_recipes::{Config, Servers, Session};
///
/// let session = Session::connect("zk1:2181,zk2:2181,zk3:2181").await?;
///
/// let servers = Servers::new("zk1:2181,zk2:2181,zk3:2181/billing")
///     .with_session_timeout(Duration::from_secs(10))
///     .with_auth("digest", "billing:secret");
/// let session = Session::connect(servers).await?;
///
/// let session = Session::connect(&Config::from_env("ZK")?).await?;
/// # Ok(())
/// # }
/// ```
pub struct Servers {
    /// The user's function, called at every attempt to connect. `None` if the servers stay the same.
    question: Option<Box<Question>>,
    /// The servers of the latest attempt to connect. Before the first attempt: the servers to try, if they are known, or
    /// the error of a setting.
    target: Mutex<Result<Option<Target>>>,
    /// Why the hosts did not answer at the latest attempt.
    failures: Mutex<Vec<HostFailure>>,
    /// The chroot of the first session. It must not change, because the same paths would then be other locks.
    chroot: OnceLock<String>,
    /// The options of the session's locks.
    pub(super) lock_options: Options,
    unique_name: Option<String>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials are not shown.
        let (hosts, timeout) = (self.hosts(), self.requested_timeout());
        f.debug_struct("Servers").field("hosts", &hosts).field("session_timeout", &timeout).finish_non_exhaustive()
    }
}

impl<S: AsRef<str>> From<S> for Servers {
    fn from(hosts: S) -> Self {
        Self::new(hosts.as_ref())
    }
}

impl Servers {
    /// Creates servers with a session timeout of 6 s, and without credentials.
    ///
    /// The same servers are used to renew the session. Unusable settings are reported where the session is made, as
    /// [`Error::InvalidInput`]: hosts that cannot be parsed, a [session timeout](Self::with_session_timeout) that cannot be
    /// sent, and hosts with `tcp+tls://` without TLS options (`with_tls`, of the feature `tls`).
    ///
    /// # Examples
    ///
    /// See [`Servers`].
    #[must_use]
    pub fn new(hosts: &str) -> Self {
        Self::of(None, Target::new(hosts).map(Some))
    }

    /// Sets the session timeout to request. [`Duration::ZERO`] stands for the default of 6 s.
    ///
    /// The timeout must be 8 ms to 2,147,483,647 ms (24 days). The servers may grant another timeout, within their limits. All
    /// servers should have the same limits, because the session relies on the timeout that was granted first.
    #[must_use]
    pub fn with_session_timeout(self, timeout: Duration) -> Self {
        let timeout = if timeout.is_zero() { DEFAULT_TIMEOUT } else { timeout };
        self.set(move |target| target.session_timeout = timeout)
    }

    /// Names the session, so that a process that restarts after a crash does not wait until its previous session expires.
    ///
    /// Every call that lists a lock's queue, even a `try_lock`, deletes the nodes of holders and waiters that other
    /// sessions of this name left there. The lock is granted once these nodes are gone and no other contender is ahead. A
    /// `try_lock` that finds such nodes is contended; only the next can succeed. A call of a
    /// [`Semaphore`](crate::Semaphore) finds leftover permits when it is first in the queue.
    ///
    /// Nodes that belong to no lock stay until their session has ended. So a member of a group, as in `Shards`, still waits
    /// that long for its own name, and a claim of `Slots` finds its old number taken.
    ///
    /// The unique name also works on another machine, and needs no disk. It is also the
    /// [identifier](Options::with_identifier) of the session's locks, unless their options have another one.
    ///
    /// **Set a name only where no two processes with it run at once**, such as the name of a pod in a stateful set, or of a
    /// systemd unit. A second process takes the locks of the first away, as [`break_lock`](crate::Mutex::break_lock)
    /// does, and outdates its tokens. A session that has lost a node, and finds a node of another session of its name in
    /// the same queue, ends with [`Error::SessionEnded`]. So two processes do not go on taking a lock from each other. The
    /// session of either process may end, or both.
    ///
    /// An empty name, or the name of another session of this process, is refused with [`Error::InvalidInput`] when the
    /// session is made. A session has its name until its last clone is dropped. With [`from_fn`](Self::from_fn), set
    /// the name on its result: names of the servers that the function returns have no effect.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use zookeeper_recipes::{Servers, Session};
    ///
    /// // `orders-0`, in a stateful set.
    /// let pod = std::env::var("POD_NAME")?;
    /// let session = Session::connect(Servers::new("zk1:2181,zk2:2181").with_unique_name(&pod)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_unique_name(self, name: &str) -> Self {
        let lock_options = self.lock_options.over(&Options::new().with_identifier(name));
        Self { unique_name: Some(name.to_owned()), lock_options, ..self }
    }

    /// Adds credentials of a scheme, such as `user:password` for `digest`. `Debug` does not show them.
    #[must_use]
    pub fn with_auth(self, scheme: &str, auth: impl AsRef<[u8]>) -> Self {
        let (scheme, auth) = (scheme.to_owned(), auth.as_ref().to_vec());
        self.set(move |target| target.connector = target.connector.clone().with_auth(&scheme, &auth))
    }

    /// Sets the options of TLS, for hosts with the prefix `tcp+tls://`. Needs the feature `tls`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, options: zookeeper_client::TlsOptions) -> Self {
        self.set(move |target| {
            target.connector = target.connector.clone().with_tls(options.clone());
            target.has_tls = true;
        })
    }

    /// Sets the options of SASL. Needs the feature `sasl-digest-md5` or `sasl-gssapi`.
    ///
    /// With `sasl-gssapi`, a host name with several addresses counts as one server, because Kerberos checks the name. The
    /// client uses the first of these addresses that accepts a connection.
    #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    #[must_use]
    pub fn with_sasl(self, options: impl Into<zookeeper_client::SaslOptions>) -> Self {
        let options = options.into();
        self.set(move |target| {
            target.connector = target.connector.clone().with_sasl(options.clone());
            target.needs_names = cfg!(feature = "sasl-gssapi");
        })
    }

    /// Creates servers from a function. `ask` is called for the first connection, and again whenever the session is
    /// renewed. Use it for rotated passwords, and for servers that move.
    ///
    /// A setting on this value, such as by [`with_session_timeout`](Self::with_session_timeout), applies to all servers
    /// that `ask` returns. The unique name of those servers has no effect. If they come from a [`Config`](crate::Config),
    /// its identifier and token epoch have no effect either.
    ///
    /// `ask` is not called while the ZooKeeper session lives, even if the connection is lost: the client reconnects to the
    /// hosts that it has. So while you replace servers, list old and new ones, until the sessions that know only the old ones
    /// are renewed or their processes restarted. Otherwise a ZooKeeper session ends with the last of its old servers.
    ///
    /// `ask` is called at every attempt to make a session: during an outage about once per session timeout. In the
    /// background, a call that takes longer than 30 s fails. While `ask` fails, the session is not renewed, and
    /// [`Error::Unavailable`] carries the text of the error of `ask` as the reason. The chroot must stay the same, because
    /// the same paths would otherwise be other locks.
    ///
    /// If `ask` fails with an error of this crate, [`Session::connect`](crate::Session::connect) returns that error. For any
    /// other error it returns [`Error::InvalidInput`] with the text of the error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::{Servers, Session};
    ///
    /// let servers = Servers::from_fn(async || {
    ///     let password = tokio::fs::read_to_string("/run/secrets/zookeeper").await?;
    ///     let hosts = tokio::fs::read_to_string("/etc/zookeeper-hosts").await?;
    ///     Ok(Servers::new(&hosts).with_auth("digest", format!("billing:{}", password.trim_end())))
    /// });
    /// let session = Session::connect(servers).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn from_fn<F, A>(ask: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Self, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        Self::of(Some(Box::new(move || ask().boxed())), Ok(None))
    }

    /// Adds the lock options and the first servers of a [`Config`](crate::Config). An error in `first` is returned when the
    /// session is made.
    pub(crate) fn configured(self, first: Result<Self>, lock_options: Options) -> Self {
        let target = first.and_then(|first| locked(&first.target).clone());
        Self { target: Mutex::new(target), lock_options, ..self }
    }

    fn of(question: Option<Box<Question>>, target: Result<Option<Target>>) -> Self {
        Self {
            question,
            target: Mutex::new(target),
            failures: Mutex::default(),
            chroot: OnceLock::new(),
            lock_options: Options::new(),
            unique_name: None,
        }
    }

    /// Changes a setting, both here and in the servers that the user's function will return.
    fn set(mut self, set: impl Fn(&mut Target) + Clone + Send + Sync + 'static) -> Self {
        if let Ok(Some(target)) = &mut *locked(&self.target) {
            set(target);
        }
        self.question = self.question.map(|question| -> Box<Question> {
            Box::new(move || {
                let set = set.clone();
                question().map_ok(|servers| servers.set(set)).boxed()
            })
        });
        self
    }

    /// Checks the hosts and the settings. Fails if the servers cannot be used.
    pub(super) fn checked(self) -> Result<Arc<Self>> {
        locked(&self.target).clone()?.map_or(Ok(()), |target| target.check())?;
        Ok(Arc::new(self))
    }

    /// Takes the unique name, if there is one.
    pub(super) fn unique_name(&self) -> Result<Option<UniqueName>> {
        self.unique_name.as_deref().map(UniqueName::take).transpose()
    }

    /// Returns the hosts of the latest attempt to connect.
    pub(super) fn hosts(&self) -> Arc<str> {
        let known = self.known().map(|target| target.hosts);
        known.unwrap_or_else(|| "hosts that were not asked for yet".into())
    }

    /// Returns the session timeout to request, or the default while the servers are not known.
    pub(super) fn requested_timeout(&self) -> Duration {
        self.known().map_or(DEFAULT_TIMEOUT, |target| target.session_timeout)
    }

    /// Returns whether there is a chroot, or `false` while the servers are not known.
    pub(super) fn has_chroot(&self) -> bool {
        self.known().is_some_and(|target| hosts::has_chroot(&target.hosts))
    }

    /// Returns why the hosts did not answer at the latest attempt.
    pub(super) fn failures(&self) -> Vec<HostFailure> {
        locked(&self.failures).clone()
    }

    fn set_failures(&self, failures: Vec<HostFailure>) {
        *locked(&self.failures) = failures;
    }

    /// Records the same reason for all hosts.
    fn failed(&self, reason: &str) {
        let failure = |host: &str| HostFailure { host: host.to_owned(), reason: reason.to_owned() };
        self.set_failures(self.hosts().split(',').map(failure).collect());
    }

    /// Tries the hosts, to find out why they do not answer.
    async fn try_hosts(&self, target: &Target) {
        self.set_failures(addresses::failures(&target.hosts, Times::of(target.session_timeout).host()).await);
    }

    fn known(&self) -> Option<Target> {
        locked(&self.target).clone().ok().flatten()
    }

    /// Returns the servers to connect to now. Calls the user's function, if there is one.
    async fn target(&self) -> Result<Target> {
        let Some(question) = &self.question else {
            return Ok(locked(&self.target).clone()?.expect("servers that are not asked for are given"));
        };
        let target = Box::pin(question().await.map_err(refusal_of)?.target()).await?;
        target.check()?;
        *locked(&self.target) = Ok(Some(target.clone()));
        Ok(target)
    }

    /// Connects for the first time.
    pub(super) async fn connect_first(&self) -> Result<(Client, Moment)> {
        let target = self.target().await?;
        self.connect_to(&target, true).await
    }

    fn unavailable(&self, target: &Target, since: Moment) -> Error {
        let (hosts, after) = (target.hosts.to_string(), Duration::from_micros(now().since(since)));
        Error::Unavailable { hosts, after, why: Unanswered::Servers, failures: self.failures() }
    }

    /// Connects with a new session. Also returns a time before the servers created it.
    async fn connect_to(&self, target: &Target, is_first: bool) -> Result<(Client, Moment)> {
        let connected = self.with_reasons(target, self.connect_once(target, is_first)).await?;
        self.set_failures(Vec::new());
        Ok(connected)
    }

    /// Awaits `connecting`. If that takes long, also tries each host, to find out why it does not answer.
    async fn with_reasons<T>(&self, target: &Target, connecting: impl Future<Output = T>) -> T {
        let tries = async {
            tokio::time::sleep(Times::of(target.session_timeout).host()).await;
            self.try_hosts(target).await;
            pending().await
        };
        tokio::select! {
            biased;
            connected = connecting => connected,
            never = tries => never,
        }
    }

    async fn connect_once(&self, target: &Target, is_first: bool) -> Result<(Client, Moment)> {
        let began = now();
        let mut connected = target.connect().await;
        if let Ok(client) = &connected
            && let Some(granted) = target.with_granted(client)
        {
            connected = granted.connect().await;
        }
        let client = match connected {
            Ok(client) => client,
            Err(ZkError::BadArguments(reason)) => {
                let reason = format!("{:?}: {reason}; {}", target.hosts, hosts::FORM);
                return Err(Error::invalid("hosts", reason));
            }
            Err(error @ ZkError::AuthFailed) => return Err(Error::refused(AUTHENTICATE, &target.hosts, error)),
            Err(
                error @ (ZkError::Custom(_)
                | ZkError::Timeout
                | ZkError::NoHosts
                | ZkError::ConnectionLoss
                // The connection was lost after the handshake, and the new session expired before the client reconnected.
                | ZkError::SessionExpired),
            ) => {
                if let ZkError::Custom(reason) = error {
                    self.failed(&reason.to_string());
                }
                return Err(self.unavailable(target, began));
            }
            Err(error) => return Err(Error::refused("connect to", &target.hosts, error)),
        };
        warn_if_short(&client);
        // Only at the first connection is a missing chroot most likely a mistake in the hosts.
        if is_first && client.path() != "/" {
            let (since, patience) = (now(), client.session_timeout());
            let checked = timeout(patience, target.check_chroot(&client)).await;
            if !checked.unwrap_or(Ok(false))? {
                return Err(self.unavailable(target, since));
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

    /// Connects with a new session. Retries while `wanted` returns true, and returns `None` once `wanted` returns false. Calls
    /// `refused` whenever the servers refuse the credentials.
    pub(crate) async fn renew(
        &self,
        is_first: bool,
        wanted: impl Fn() -> bool,
        refused: impl Fn(),
    ) -> Option<(Client, Moment)> {
        let mut pause = FIRST_PAUSE;
        while wanted() {
            let mut longest = LONGEST_PAUSE;
            match self.try_to_renew(is_first).await {
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
            wait(&mut pause, longest).await;
        }
        None
    }

    async fn ask_for_target(&self) -> Result<Target> {
        timeout(LONGEST_QUESTION, self.target()).await.unwrap_or_else(|_| {
            let reason =
                format!("the function given to `Servers::from_fn` did not return within {LONGEST_QUESTION:?}");
            Err(Error::invalid("servers", reason))
        })
    }

    async fn try_to_renew(&self, is_first: bool) -> Result<(Client, Moment)> {
        let target = self.ask_for_target().await?;
        self.connect_to(&target, is_first).await
    }
}

/// Waits before the next attempt, and then doubles `pause`, to `longest` at most.
async fn wait(pause: &mut Duration, longest: Duration) {
    tokio::time::sleep(*pause).await;
    *pause = (*pause * 2).min(longest);
}

/// Converts the error of the user's function. An error of this crate stays as it is.
fn refusal_of(error: BoxError) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::invalid("servers", format!("they could not be asked for: {error}")),
    }
}

/// The servers and the settings of one attempt to connect.
#[derive(Clone)]
struct Target {
    hosts: Arc<str>,
    connector: Connector,
    /// The session timeout to request.
    session_timeout: Duration,
    has_tls: bool,
    /// Whether host names must not be replaced by addresses, because Kerberos needs the names.
    needs_names: bool,
}

impl Target {
    fn new(hosts: &str) -> Result<Self> {
        Ok(Self {
            hosts: hosts::normalize(hosts)?.into(),
            connector: Client::connector(),
            session_timeout: DEFAULT_TIMEOUT,
            has_tls: false,
            needs_names: false,
        })
    }

    /// Refuses settings that the client cannot use. Without TLS options, the client would retry a TLS host forever, without a
    /// pause, and would never yield its thread.
    fn check(&self) -> Result<()> {
        let timeout = self.session_timeout;
        if !u32::try_from(timeout.as_millis()).is_ok_and(|ms| TIMEOUTS_MS.contains(&ms)) {
            let (least, most) = (TIMEOUTS_MS.start(), TIMEOUTS_MS.end());
            let reason = format!("the client cannot carry {timeout:?}; give {least} ms to {most} ms (24 days)");
            return Err(Error::invalid("session timeout", reason));
        }
        if !self.has_tls && self.hosts.split(',').any(|host| host.starts_with("tcp+tls://")) {
            let reason =
                "there are none, which hosts with tcp+tls:// need; set them by with_tls, of the feature `tls`";
            return Err(Error::invalid("TLS options", reason));
        }
        Ok(())
    }

    /// Connects with a new session.
    async fn connect(&self) -> Result<Client, ZkError> {
        let connector = self
            .connector
            .clone()
            .with_session_timeout(self.session_timeout)
            .with_connection_timeout(Times::of(self.session_timeout).silence());
        if self.needs_names {
            return connector.connect(&self.hosts).await;
        }
        let hosts = addresses::expand(&self.hosts, Times::of(self.session_timeout).host()).await;
        connector.connect(&hosts).await
    }

    /// Returns these settings with the session timeout that the servers have granted to `client`, if it differs from the
    /// requested one. The client does not adapt its connection timeout to the granted session timeout. The time between its
    /// pings follows from the connection timeout, and trust after a single write depends on these pings.
    fn with_granted(&self, client: &Client) -> Option<Self> {
        let granted = client.session_timeout();
        (granted.as_millis() != self.session_timeout.as_millis())
            .then(|| Self { session_timeout: granted, ..self.clone() })
    }

    /// Checks that the chroot exists. Returns `false` if the session ended first. Fails if the chroot does not exist.
    async fn check_chroot(&self, client: &Client) -> Result<bool> {
        loop {
            match exists(client).await {
                // We have no right to look at the chroot, but may have rights below it.
                Ok(true) | Err(ZkError::NoAuth) => return Ok(true),
                Ok(false) => {
                    let reason = format!("{} does not exist; create it first", client.path());
                    return Err(Error::invalid("chroot", reason));
                }
                Err(error @ ZkError::AuthFailed) => return Err(Error::refused(AUTHENTICATE, &self.hosts, error)),
                Err(_) if client.state().is_terminated() => return Ok(false),
                Err(error) => guarded(|| tracing::debug!(%error, "cannot look for the chroot yet")),
            }
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }
}

/// Returns whether the chroot of a client exists.
async fn exists(client: &Client) -> Result<bool, ZkError> {
    if client.check_stat("/").await?.is_some() {
        return Ok(true);
    }
    // A server that is behind the others may not know a new chroot yet.
    client.sync("/").await?;
    Ok(client.check_stat("/").await?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(servers: Servers) -> String {
        servers.checked().expect_err("refused").to_string()
    }

    #[test]
    fn session_timeouts_at_the_edge_of_what_can_be_carried() {
        let edge = Duration::from_millis(i32::MAX as u64);
        for (timeout, carried) in [
            (Duration::ZERO, true),
            (Duration::from_nanos(1), false),
            (Duration::from_nanos(7_999_999), false),
            (Duration::from_millis(8), true),
            (edge, true),
            (edge + Duration::from_millis(1), false),
            (Duration::MAX, false),
        ] {
            let servers = Servers::new("zk1").with_session_timeout(timeout);
            assert_eq!(servers.checked().is_ok(), carried, "{timeout:?}");
        }
        let error = refusal(Servers::new("zk1").with_session_timeout(Duration::from_millis(7)));
        let reason = "the client cannot carry 7ms; give 8 ms to 2147483647 ms (24 days)";
        assert_eq!(error, format!("invalid session timeout: {reason}"));
    }

    #[test]
    fn hosts_over_tls_need_options() {
        let error = refusal(Servers::new("zk1,tcp+tls://zk2:2281"));
        assert!(error.starts_with("invalid TLS options: there are none") && error.contains("with_tls"), "{error}");
        Servers::new("zk1,tcp://zk2/tcp+tls:").checked().expect("no TLS");
        #[cfg(feature = "tls")]
        {
            let options = zookeeper_client::TlsOptions::new();
            Servers::new("tcp+tls://zk2:2281").with_tls(options).checked().expect("options");
        }
    }

    #[test]
    fn text_has_no_credentials() {
        let servers = Servers::new(" zk1, zk2").with_auth("digest", "billing:hunter2");
        #[cfg(feature = "sasl-digest-md5")]
        let servers = servers.with_sasl(zookeeper_client::SaslOptions::digest_md5("billing", "hunter2"));
        assert_eq!(format!("{servers:?}"), r#"Servers { hosts: "zk1,zk2", session_timeout: 6s, .. }"#);
    }

    #[tokio::test]
    async fn settings_are_those_of_all_servers_that_a_function_returns() {
        let timeout = Duration::from_secs(9);
        let inner = async || Ok(Servers::new("zk1").with_session_timeout(Duration::from_secs(3)));
        let nested = Servers::from_fn(move || std::future::ready(Ok(Servers::from_fn(inner))));
        for servers in [Servers::from_fn(inner), nested] {
            let servers = servers.with_session_timeout(timeout).checked().expect("not asked yet");
            let target = servers.target().await.expect("servers");
            assert_eq!((&*target.hosts, target.session_timeout), ("zk1", timeout));
            assert_eq!(servers.requested_timeout(), timeout);
        }
        let refused = Servers::from_fn(inner).with_session_timeout(Duration::MAX);
        let error = refused.target().await.map(drop).expect_err("too long").to_string();
        assert!(error.starts_with("invalid session timeout: "), "{error}");
    }
}
