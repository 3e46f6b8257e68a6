//! Owns [`Servers`]: where a session connects to, and how, the first time and again after it has expired.
//!
//! 1. The hosts and the settings are given once, or asked for at every attempt to connect.
//! 2. Before a new session is used, the old one is attached to once more and closed. `SessionExpired` in answer, or the
//!    end of the closing, is the proof that its nodes are gone: the client's word alone is not (it gives a session up by
//!    its own clock), and an old node would stand before us in the queue until the server agrees.
//! 3. The session that an earlier process has left, by the session file, is ended in the same way. The file names a session before
//!    anybody can have a lock in it.

use std::fmt;
use std::future::pending;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, Client, Connector, CreateMode, SessionInfo};

use crate::clock::now;
use crate::error::{Error, HostFailure, Result, Unanswered, ZkError};
use crate::locked::locked;
use crate::machine::Moment;
use crate::options::Options;
use crate::session::file::SessionFile;
use crate::session::state_changes::StateChanges;
use crate::session::times::Times;
use crate::session::{addresses, hosts};
use crate::telemetry::guarded;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Refused credentials may be put right, but not soon, and servers write down each refusal.
const LONGEST_PAUSE_REFUSED: Duration = Duration::from_secs(30);

/// How long it may take to ask for the hosts when a session is renewed.
const LONGEST_QUESTION: Duration = Duration::from_secs(30);

/// What refused credentials were for.
const AUTHENTICATE: &str = "authenticate at";

const END: &str = "end the old session at";

/// The least session timeout that servers agree to unless they are configured otherwise: two ticks of 2 s.
const LEAST_BY_DEFAULT: Duration = Duration::from_secs(4);

/// Warns if the session timeout is shorter than two default ticks. Trust in a lock assumes two ticks of the servers, but no
/// client can ask for their `tickTime`.
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

/// The session timeouts that can be asked for: the client replaces shorter ones, and sends the number as a signed one of 32 bits.
pub(crate) const TIMEOUTS_MS: RangeInclusive<u32> = 8..=i32::MAX as u32;

/// The client's own.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(6);

/// The function given to [`Servers::from_fn`].
type Question = dyn Fn() -> BoxFuture<'static, Result<Servers, BoxError>> + Send + Sync;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The servers of a session, and how to connect to them: the argument of [`Session::connect`](crate::Session::connect) and
/// [`Session::lazy`](crate::Session::lazy).
///
/// A list of hosts stands for servers with the default settings, a reference to a [`Config`](crate::Config) for what the
/// deployment chose. Credentials add up. Any other setting replaces an earlier one.
///
/// The list is like `zk1:2181,zk2:2181,zk3:2181/chroot`. White space around its elements is ignored. A chroot must exist; with
/// one, connecting costs one more request. A server with the prefix `tcp+tls://` is connected over TLS.
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
    /// Where the session is written to, for the next process.
    session_file: Option<PathBuf>,
    /// The same once it belongs to a session.
    file: Option<Arc<SessionFile>>,
    /// Of the locks of the session.
    pub(super) lock_options: Options,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credentials.
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
    /// Servers with a session timeout of 6 s, and without credentials.
    ///
    /// They are kept and used again to renew the session. What cannot be used is reported where the session is made, by
    /// [`Error::InvalidInput`]: hosts that cannot be parsed, a [session timeout](Self::with_session_timeout) that cannot be sent,
    /// and hosts with `tcp+tls://` without TLS options (`with_tls`, of the feature `tls`).
    ///
    /// # Examples
    ///
    /// See [`Servers`].
    #[must_use]
    pub fn new(hosts: &str) -> Self {
        Self::of(None, Target::new(hosts).map(Some))
    }

    /// Sets the session timeout that is asked for. [`Duration::ZERO`] stands for the default of 6 s.
    ///
    /// It has to be 8 ms to 2,147,483,647 ms (24 days). The servers may grant another one, within their limits. All servers
    /// should have the same limits: the session relies on the timeout that was agreed upon first.
    #[must_use]
    pub fn with_session_timeout(self, timeout: Duration) -> Self {
        let timeout = if timeout.is_zero() { DEFAULT_TIMEOUT } else { timeout };
        self.set(move |target| target.session_timeout = timeout)
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
    /// With `sasl-gssapi`, a host name with several addresses is one server, because Kerberos checks the name: of these
    /// addresses, the first that accepts a connection is used.
    #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    #[must_use]
    pub fn with_sasl(self, options: impl Into<zookeeper_client::SaslOptions>) -> Self {
        let options = options.into();
        self.set(move |target| {
            target.connector = target.connector.clone().with_sasl(options.clone());
            target.needs_names = cfg!(feature = "sasl-gssapi");
        })
    }

    /// Keeps the ZooKeeper session in a file, so that a restart after a crash does not wait for the session timeout.
    ///
    /// After a crash or `kill -9`, a lock stays taken until the ZooKeeper session of the process expires. With a session
    /// file, the next process *ends* that session before it makes its own. The locks of the crashed process are free then.
    ///
    /// **It ends locks whose work may still run.** A child process can survive the process that held the lock, and so can a
    /// request that is under way to a store. Without the file, they have the rest of the session timeout to end. Use it where
    /// the work ends with the process, or where the store checks the [fencing token](crate::FencingToken).
    ///
    /// The file has the id and the password of the session. It is written before a lock can be acquired in the session, and
    /// replaced after each renewal. Who knows the password can end the session: on Unix only the owner can read the file. It
    /// is removed when the session has ended by [`close`](crate::Session::close), [`drain`](crate::Session::drain) or drop.
    ///
    /// The file belongs to one session at a time, which has a lock on `FILE.lock` beside it. The operating system releases
    /// that lock when the process ends. Never delete `FILE.lock`. Put both where they survive a restart: on a local disk, or
    /// on a volume that one machine mounts. Containers on that machine may share it. On NFS, a machine that is cut off from the
    /// file server loses the lock, and with `nolock` or `local_lock` there is none between machines. A copy of the file ends
    /// nothing, because the lock beside it is another one. A clone of the whole disk is not noticed: keep the file out of
    /// images.
    ///
    /// While no server answers, the old session cannot be ended, and no new one is made. [`connect`](crate::Session::connect)
    /// tries for one session timeout, and [`lazy`](crate::Session::lazy) until it is closed. The first failure is logged as a
    /// warning. A session that the servers do not know is nothing to end: it has expired, or was one of other servers.
    /// ClickHouse Keeper keeps no session over a reconnect, so there the locks stay until it expires.
    ///
    /// If the file cannot be written after a renewal, the session goes on, and a warning is logged. An
    /// [attached](crate::Session::attach) session has no session file. With [`from_fn`](Self::from_fn), set the file on the result. A
    /// file that is set on the servers which the function returns is ignored.
    ///
    /// Others have met this wait, or asked for a way around it: [kazoo#435], [zk-ruby#42], [Alluxio#1885], [KAFKA-1387],
    /// ClickHouse [#33714] and [#114408], [CURATOR-396].
    ///
    /// [kazoo#435]: https://github.com/python-zk/kazoo/pull/435
    /// [zk-ruby#42]: https://github.com/zk-ruby/zookeeper/issues/42
    /// [Alluxio#1885]: https://github.com/Alluxio/alluxio/pull/1885
    /// [KAFKA-1387]: https://issues.apache.org/jira/browse/KAFKA-1387
    /// [#33714]: https://github.com/ClickHouse/ClickHouse/issues/33714
    /// [#114408]: https://github.com/ClickHouse/ClickHouse/issues/114408
    /// [CURATOR-396]: https://issues.apache.org/jira/browse/CURATOR-396
    ///
    /// # Errors
    ///
    /// [`connect`](crate::Session::connect) and [`lazy`](crate::Session::lazy) return [`Error::InvalidInput`]
    ///
    /// * if the file belongs to a session that is alive, of this process or another;
    /// * if the path is a directory or no regular file, or if something else than a session is in the file, which stays as it is;
    /// * if the file cannot be read, locked or written.
    ///
    /// `connect` also returns it if the process cannot connect to itself on 127.0.0.1, which it needs to learn the password
    /// from its client.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::{Mutex, Servers, Session};
    ///
    /// let servers = Servers::new("zk1:2181,zk2:2181,zk3:2181").with_session_file("/var/lib/billing/zookeeper-session");
    /// // Ends the session of the process that was killed.
    /// let session = Session::connect(servers).await?;
    /// let guard = Mutex::new(&session, "/locks/billing")?.lock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_session_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.session_file = Some(path.into());
        self
    }

    /// Servers that `ask` returns, at the first connection and again whenever the session is renewed: for
    /// passwords that are rotated, and for servers that move.
    ///
    /// A setting of this value, as by [`with_session_timeout`](Self::with_session_timeout), is made for all servers that `ask`
    /// returns. If these come from a [`Config`](crate::Config), its identifier, `create_chroot` and
    /// `session_file` have no effect here.
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

    /// The same for a [`Config`](crate::Config), which has answered once: the only thing that it needs beside the public API.
    /// With ACLs, a chroot that does not exist is created when the session connects first.
    pub(crate) fn configured(
        self,
        first: Result<Self>,
        lock_options: Options,
        chroot_acls: Option<Acls<'_>>,
        session_file: Option<PathBuf>,
    ) -> Self {
        let target = first.and_then(|first| locked(&first.target).clone());
        let chroot_acls = chroot_acls.map(|acls| Arc::from(&*acls));
        Self { target: Mutex::new(target), lock_options, chroot_acls, session_file, ..self }
    }

    fn of(question: Option<Box<Question>>, target: Result<Option<Target>>) -> Self {
        Self {
            question,
            target: Mutex::new(target),
            failures: Mutex::default(),
            chroot: OnceLock::new(),
            chroot_acls: None,
            session_file: None,
            file: None,
            lock_options: Options::new(),
        }
    }

    /// Changes a setting, also of the servers that the function returns.
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

    /// Checks the hosts and the settings, and makes the value shareable for one session, to which the session file belongs from now
    /// on. Fails if they cannot be used.
    pub(super) fn checked(mut self) -> Result<Arc<Self>> {
        locked(&self.target).clone()?.map_or(Ok(()), |target| target.check())?;
        self.file = self.session_file.as_deref().map(SessionFile::open).transpose()?.map(Arc::new);
        Ok(Arc::new(self))
    }

    /// The hosts of the latest attempt.
    pub(super) fn hosts(&self) -> Arc<str> {
        let known = self.known().map(|target| target.hosts);
        known.unwrap_or_else(|| "hosts that were not asked for yet".into())
    }

    /// The session timeout that is asked for, as far as that is known.
    pub(super) fn requested_timeout(&self) -> Duration {
        self.known().map_or(DEFAULT_TIMEOUT, |target| target.session_timeout)
    }

    /// Whether there is a chroot, as far as that is known.
    pub(super) fn has_chroot(&self) -> bool {
        self.known().is_some_and(|target| hosts::has_chroot(&target.hosts))
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
        self.set_failures(addresses::failures(&target.hosts, Times::of(target.session_timeout).host()).await);
    }

    fn known(&self) -> Option<Target> {
        locked(&self.target).clone().ok().flatten()
    }

    /// Where to connect to now.
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
        let (target, began) = (self.target().await?, now());
        // For as long as the client tries to connect with a new session.
        let ended =
            timeout(target.session_timeout, self.with_reasons(&target, self.end_left_at_last(&target))).await;
        ended.unwrap_or_else(|_| {
            self.report_left(&ZkError::Timeout);
            Err(self.unavailable(&target, began))
        })?;
        let connected = self.connect_to(&target, true).await?;
        self.name(&connected.0).await?;
        Ok(connected)
    }

    /// Tries to end the session that an earlier process has left until the servers answer.
    async fn end_left_at_last(&self, target: &Target) -> Result<()> {
        use ZkError::{ConnectionLoss, Custom, NoHosts, Timeout};

        let mut pause = FIRST_PAUSE;
        loop {
            match self.end_left(target).await {
                Err(Error::Client { source: ConnectionLoss | Custom(_) | NoHosts | Timeout, .. }) => {}
                ended => return ended,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Ends the session that an earlier process has left, if there is one.
    async fn end_left(&self, target: &Target) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let Some(left) = file.left().await? else { return Ok(()) };
        self.bury(target, left).await.map_err(|error| {
            self.report_left(&error);
            Error::refused(END, &target.hosts, error)
        })?;
        file.left_is_gone();
        let session = left.id();
        guarded(|| tracing::info!(%session, "servers were asked to end the session that the session file names"));
        Ok(())
    }

    /// Warns, once, that the session which an earlier process has left cannot be ended.
    fn report_left(&self, error: &ZkError) {
        if let Some(session) = self.file.as_ref().and_then(|file| file.fails_first()) {
            guarded(|| {
                tracing::warn!(
                    %session, %error, hosts = %self.hosts(),
                    "cannot end the session of the session file yet; it is tried again before a new one is made"
                );
            });
        }
    }

    /// Lets the session file, if there is one, name the session of this client.
    async fn name(&self, client: &Client) -> Result<()> {
        match &self.file {
            Some(file) => file.name(client.session()).await,
            None => Ok(()),
        }
    }

    /// The session is over; the servers have ended the last one, or may still have it.
    pub(crate) async fn over(&self, is_ended: bool) {
        let Some(file) = &self.file else { return };
        if is_ended {
            file.name_none().await;
        }
        file.unlock();
    }

    /// Gives the session file up, for the next session.
    pub(crate) fn unlock(&self) {
        if let Some(file) = &self.file {
            file.unlock();
        }
    }

    fn unavailable(&self, target: &Target, since: Moment) -> Error {
        let (hosts, after) = (target.hosts.to_string(), Duration::from_micros(now().since(since)));
        Error::Unavailable { hosts, after, why: Unanswered::Servers, failures: self.failures() }
    }

    /// Connects with a new session. The moment that is returned is before the servers made the session.
    async fn connect_to(&self, target: &Target, is_first: bool) -> Result<(Client, Moment)> {
        let connected = self.with_reasons(target, self.connect_once(target, is_first)).await?;
        self.set_failures(Vec::new());
        Ok(connected)
    }

    /// Waits for servers. If that takes long, tries the hosts meanwhile, to find out why they do not answer.
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
        let client = match target.connect(None).await {
            Ok(client) => client,
            Err(ZkError::BadArguments(reason)) => {
                let reason = format!("{:?}: {reason}; {}", target.hosts, hosts::FORM);
                return Err(Error::invalid("hosts", reason));
            }
            Err(error @ ZkError::AuthFailed) => return Err(Error::refused(AUTHENTICATE, &target.hosts, error)),
            Err(error @ (ZkError::Custom(_) | ZkError::Timeout | ZkError::NoHosts | ZkError::ConnectionLoss)) => {
                if let ZkError::Custom(reason) = error {
                    self.failed(&reason.to_string());
                }
                return Err(self.unavailable(target, began));
            }
            Err(error) => return Err(Error::refused("connect to", &target.hosts, error)),
        };
        warn_if_short(&client);
        // At first, a chroot that does not exist is a mistake in the hosts.
        if is_first && client.path() != "/" {
            let (since, patience) = (now(), client.session_timeout());
            let checked = timeout(patience, target.check_chroot(&client, self.chroot_acls.as_deref())).await;
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
        self.end_left(&target).await?;
        if let Some(old) = old.filter(|_| !*is_gone) {
            self.bury(&target, old).await.map_err(|error| Error::refused(END, &target.hosts, error))?;
            *is_gone = true;
        }
        let connected = self.connect_to(&target, old.is_none()).await?;
        // The locks are needed more than the file. It names a session that has ended.
        if let Err(error) = self.name(&connected.0).await {
            let session = connected.0.session_id();
            guarded(
                || tracing::warn!(%session, %error, "no session file for this session: after a crash it has to expire"),
            );
        }
        Ok(connected)
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
    hosts: Arc<str>,
    connector: Connector,
    /// The one that is asked for.
    session_timeout: Duration,
    has_tls: bool,
    /// Whether the names of the servers must not be replaced by addresses. Kerberos needs them.
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

    /// Refuses settings that the client cannot use. Without TLS options, it would try a host over TLS for ever, without a pause
    /// and without ever giving its thread back.
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

    /// Connects with a new session, or with an old one.
    async fn connect(&self, old: Option<&SessionInfo>) -> Result<Client, ZkError> {
        let mut connector = self.connector.clone().with_session_timeout(self.session_timeout);
        if let Some(old) = old {
            connector = connector.with_session(old.clone()).with_fail_eagerly();
        }
        if self.needs_names {
            return connector.connect(&self.hosts).await;
        }
        let hosts = addresses::expand(&self.hosts, Times::of(self.session_timeout).host()).await;
        connector.connect(&hosts).await
    }

    /// Makes sure that the chroot exists; with `acls` it is created. `false`: the session ended before that was known. Fails
    /// if the chroot does not exist or cannot be created.
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
