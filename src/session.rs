//! Owns [`Session`]: a ZooKeeper session that renews itself.

mod budget;
mod cleanup;
mod connector;
mod diagnosis;
mod keeper;
mod nodes;
mod operations;
mod renewal;
mod request;
mod search;
mod server_session;
mod shared;
mod trust;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use zookeeper_client::{Client, Connector, SessionId, SessionState};

use crate::error::{Error, Result, Unanswered};
use crate::options::Options;
use crate::path::LockPath;
use crate::session::diagnosis::Diagnosis;
use crate::session::renewal::{Servers, Supervisor, supervise};
use crate::session::server_session::Closing;

pub(crate) use self::budget::Reserved;
pub(crate) use self::cleanup::{Deletion, delete_abandoned, delete_in_background};
pub(crate) use self::nodes::{NewNode, OwnNode, OwnNodes};
pub(crate) use self::operations::{Created, Event, Refusal, Watch};
pub(crate) use self::request::{Answer, Failure, SessionOver};
pub(crate) use self::search::{delete_late_doubles, find};
pub(crate) use self::server_session::{End, Lasting, Phase, ServerSession, TrustNeed, Work};
pub(crate) use self::shared::Names;
pub(crate) use self::trust::Moment;

/// Why an attempt in one ZooKeeper session failed.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// The session is over; there may be another.
    SessionOver,
    Failed(Error),
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<SessionOver> for Interrupt {
    fn from(SessionOver: SessionOver) -> Self {
        Self::SessionOver
    }
}

/// A ZooKeeper session for locks. It renews itself after it has expired.
///
/// Clones share the session. When the last of them is dropped, with all locks and guards made from them, the session is
/// closed in the background. [`close`](Self::close) closes it and waits for that. A program that exits without
/// `close()` may leave its nodes, and so its locks, until the servers expire the session.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_recipes::{Mutex, Session};
///
/// let session = Session::connect("localhost:2181").await?;
/// let mutex = Mutex::new(&session, "/locks/nightly-report")?;
/// let guard = mutex.lock().await?;
/// println!("token {}", guard.fencing_token());
/// guard.release().await?;
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    options: Options,
}

struct Inner {
    hosts: Arc<str>,
    /// Why the hosts cannot be reached, where they are known.
    diagnosis: Option<Arc<Diagnosis>>,
    /// Whether somebody puts another session in the place of one that has expired.
    renews: AtomicBool,
    current: watch::Sender<Current>,
}

/// What stands for the session at the moment.
#[derive(Clone)]
enum Current {
    /// A ZooKeeper session; it may be over, and then is about to be replaced.
    Live(Arc<ServerSession>),
    /// None, until the servers are reached again; the last one is kept for its id.
    Renewing(Arc<ServerSession>),
    /// None any more.
    Ended(Arc<ServerSession>, Error),
}

impl Current {
    fn zk(&self) -> &Arc<ServerSession> {
        match self {
            Self::Live(zk) | Self::Renewing(zk) | Self::Ended(zk, _) => zk,
        }
    }
}

impl Session {
    /// Connects to ZooKeeper, with the client's default session timeout of 6 s.
    ///
    /// `hosts` is a list like `zk1:2181,zk2:2181,zk3:2181/chroot`. White space around its elements is ignored. A chroot
    /// must exist; with one, connecting costs one more request. A server with the prefix `tcp+tls://` is connected over
    /// TLS, which needs [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt. A session that was already created ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], with a reason for each host, if none answers within about one session timeout (6 s by
    /// default), or within another for the check of the chroot. It is not returned earlier, even if all hosts refuse: try
    /// again, as a service does that starts before its servers. [`Error::InvalidInput`] if `hosts` cannot be parsed, or the chroot does not
    /// exist.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::{Error, Session};
    ///
    /// let session = match Session::connect("zk1:2181,zk2:2181,zk3:2181").await {
    ///     Err(Error::Unavailable { failures, .. }) => {
    ///         failures.iter().for_each(|failure| eprintln!("{failure}"));
    ///         return Ok(()); // try again later
    ///     }
    ///     connected => connected?,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(hosts: &str) -> Result<Self> {
        Self::connect_with(Client::connector(), hosts).await
    }

    /// Connects with a connector, which sets the session timeout, TLS, SASL and credentials.
    ///
    /// The connector is kept and used again to renew the session. All servers should have the same limits for session
    /// timeouts: the session relies on the timeout that was agreed upon first. Leave the connection timeout as it is:
    /// how often the client pings follows from it, and [trust](crate#trust) relies on that.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); [`Error::InvalidInput`] also if the connector carries an old session
    /// (`with_session`), keeps its session after the drop (`with_detached`), or accepts read-only servers
    /// (`with_readonly`). Likewise if its session timeout is longer than 2,147,483,647 ms (24 days), or one of its
    /// timeouts is shorter than 8 ms: the client cannot send these. [`Error::Client`] if the credentials are refused.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// use zookeeper_recipes::Session;
    /// use zookeeper_recipes::zookeeper_client::Client;
    ///
    /// let connector = Client::connector()
    ///     .with_session_timeout(Duration::from_secs(10))
    ///     .with_auth("digest", b"billing:secret");
    /// let session = Session::connect_with(connector, "zk1:2181,zk2:2181,zk3:2181/billing").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_with(connector: Connector, hosts: &str) -> Result<Self> {
        let servers = Servers::new(connector, hosts)?;
        let (client, created) = servers.connect_first().await?;
        let zk = keeper::start(client, Some(created));
        let session = Self::of(zk, servers.hosts().clone(), Some(servers.diagnosis().clone()));
        tokio::spawn(supervise(Supervisor(Arc::downgrade(&session.inner)), servers));
        Ok(session)
    }

    /// Shares the session of a client that is already connected.
    ///
    /// Such a session is not renewed when it expires, and [`close`](Self::close) releases its locks but does not end
    /// the client's session. Call it on the runtime on which the client was connected: the locks end with that runtime.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] outside a tokio runtime. Another runtime than the client's is not noticed.
    ///
    /// # Panics
    ///
    /// Panics on a tokio runtime without timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use zookeeper_recipes::Session;
    /// use zookeeper_recipes::zookeeper_client::Client;
    ///
    /// let client = Client::connect("localhost:2181").await?;
    /// let session = Session::attach(client.clone())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach(client: Client) -> Result<Self> {
        if tokio::runtime::Handle::try_current().is_err() {
            let reason =
                "there is none; attach the session on the tokio runtime on which its client was connected";
            return Err(Error::invalid("runtime", reason));
        }
        // Panics here, rather than in the background, if the runtime has no timers.
        drop(tokio::time::sleep(Duration::ZERO));
        renewal::warn_if_short(&client);
        let zk = keeper::start(client, None);
        Ok(Self::of(zk, "the servers of the attached client".into(), None))
    }

    fn of(zk: Arc<ServerSession>, hosts: Arc<str>, diagnosis: Option<Arc<Diagnosis>>) -> Self {
        let renews = AtomicBool::new(diagnosis.is_some());
        let inner = Inner { hosts, diagnosis, renews, current: watch::Sender::new(Current::Live(zk)) };
        Self { inner: Arc::new(inner), options: Options::new() }
    }

    /// Sets options of the locks that are created from this value, over those that it has. The options of a lock are laid
    /// over these.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::zookeeper_client::Acls;
    /// use zookeeper_recipes::{Mutex, Options, Session};
    ///
    /// let session = Session::connect("zk1:2181").await?.with_lock_options(Options::new().with_acls(Acls::creator_all()));
    /// // Its nodes have the ACLs of the session, and an identifier of its own.
    /// let mutex = Mutex::with_options(&session, "/locks/report", Options::new().with_identifier("billing-7"))?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_lock_options(mut self, options: Options) -> Self {
        self.options = options.over(&self.options);
        self
    }

    /// The present client, for other work in the same ZooKeeper session.
    ///
    /// After a renewal it is another client. While you keep a clone, [`close`](Self::close) cannot end the session; it
    /// still releases all locks, if the servers can be reached. If the session ended in any other way, this is its last
    /// client, whose requests fail.
    ///
    /// `None` after [`close`](Self::close), or after a task of the session has panicked.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Some(client) = session.client() {
    ///     let (data, _) = client.get_data("/config/limits").await?;
    ///     println!("{} bytes", data.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn client(&self) -> Option<Client> {
        self.present().share_client().map(|client| Client::clone(&client))
    }

    /// Lists the paths of the children of `parent`: where there is a lock per key, the locks that exist at the moment,
    /// held or not. Empty if `parent` does not exist, for example because the servers have deleted the empty container.
    ///
    /// [`path::key`](crate::path::key) returns the key of a path's last segment.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `parent` cannot be a lock path, [`Error::Unavailable`] if no server answered within
    /// one session timeout, [`Error::NoAuth`] if the ACLs deny it.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::path;
    ///
    /// for lock in session.locks_under("/locks/orders").await? {
    ///     let order = lock.rsplit('/').next().and_then(path::key);
    ///     println!("{lock} is the lock of {order:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn locks_under(&self, parent: &str) -> Result<Vec<String>> {
        let parent = LockPath::new(parent)?;
        let listed = self.attempt(|zk| {
            let parent = &parent;
            async move {
                match zk.retry(|| zk.list(parent)).await? {
                    Ok(names) => Ok(names.as_slice().iter().map(|name| parent.child(name)).collect::<Vec<_>>()),
                    Err(zookeeper_client::Error::NoNode) => Ok(Vec::new()),
                    Err(error) => Err(Error::refused("list", parent.as_str(), error).into()),
                }
            }
            .boxed()
        });
        let mut paths = self.within_timeout(listed).await?;
        paths.sort_unstable();
        Ok(paths)
    }

    /// The id of the present ZooKeeper session. After a renewal it is another id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.present().id()
    }

    /// The state of the present ZooKeeper session, as its client reports it.
    #[must_use]
    pub fn state(&self) -> SessionState {
        match self.present().phase() {
            Phase::Over(End::Closed(_)) => SessionState::Closed,
            Phase::Open | Phase::Closing | Phase::Over(_) => self.present().state(),
        }
    }

    /// Ends the session and with it all its locks.
    ///
    /// Holds become [`Lost(Closed)`](crate::Loss::Closed) at once, their nodes are deleted, and waiters get
    /// [`Error::Closed`]. Then the ZooKeeper session is ended. It takes one session timeout at most. A second call
    /// waits for the same end. Closing an [attached](Self::attach) session ends only its locks. While a renewal is
    /// under way there is nothing to end, because the old session has expired.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting. The session still ends.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers could not be reached in time: nodes may stay until the servers expire the
    /// session, one session timeout after they last heard of it, or of a clone of its client. [`Error::SessionKept`] if
    /// a clone of [`client`](Self::client) keeps the session open. All locks are released then, except for nodes that
    /// the ACLs do not let us delete.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::Error;
    ///
    /// match session.close().await {
    ///     // The servers release the locks when they expire the session.
    ///     Err(Error::Unavailable { .. }) => {}
    ///     closed => closed?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) -> Result<()> {
        let (zk, renewing) = self.inner.end(Error::Closed);
        zk.close();
        let end = match tokio::time::timeout(zk.timeout(), zk.over()).await {
            Ok(end) => end,
            Err(_) => {
                let end = End::Closed(Closing::Unconfirmed);
                // The session of a given client goes on, and with it the clean-up.
                if zk.is_owned() {
                    zk.end(end);
                }
                end
            }
        };
        match end {
            End::Closed(Closing::Unconfirmed) | End::Orphaned if !renewing => Err(self.unavailable(zk.timeout())),
            End::Closed(Closing::ClientKept) => {
                tracing::warn!(session = %zk.id(), "a clone of its client keeps a session open that was closed");
                Err(Error::SessionKept { session: zk.id() })
            }
            _ => Ok(()),
        }
    }

    /// Whether it is connected to a server.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&*self.inner.current.borrow(), Current::Live(zk) if zk.is_connected())
    }

    /// Distinguishes this session, with its clones, from others for as long as it lives.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// The options of the locks that are created from this value.
    #[must_use]
    pub fn lock_options(&self) -> &Options {
        &self.options
    }

    /// Whether paths are not those of the servers, but begin below a node of theirs.
    pub(crate) fn has_chroot(&self) -> bool {
        self.present().has_chroot()
    }

    /// The error of a request that has not been answered in time.
    pub(crate) fn unavailable(&self, after: Duration) -> Error {
        let zk = self.present();
        let connected = match zk.phase() {
            Phase::Open | Phase::Closing | Phase::Over(End::Closed(_)) => zk.is_connected(),
            // What its client reports of the connection may be out of date.
            Phase::Over(End::Expired | End::AuthFailed | End::Orphaned) => false,
        };
        let why = if connected { Unanswered::TimeLimit } else { Unanswered::Servers };
        let failures = match why {
            Unanswered::TimeLimit => Vec::new(),
            Unanswered::Servers => {
                self.inner.diagnosis.as_ref().map_or_else(Vec::new, |diagnosis| diagnosis.failures())
            }
        };
        Error::Unavailable { hosts: self.inner.hosts.to_string(), after, why, failures }
    }

    /// The time within which every call ends that does not queue.
    pub(crate) fn timeout(&self) -> Duration {
        self.present().timeout()
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
                    Phase::Over(End::Expired | End::AuthFailed) if !self.inner.renews.load(Ordering::Acquire) => {
                        return Err(ended(if zk.is_owned() {
                            ORPHANED
                        } else {
                            "it has expired, and an attached session is not renewed"
                        }));
                    }
                    Phase::Over(End::Expired | End::AuthFailed) => {}
                },
                Current::Renewing(_) => {}
            }
            if changes.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }

    fn present(&self) -> Arc<ServerSession> {
        self.inner.current.borrow().zk().clone()
    }
}

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
                    zk.end_if_orphaned();
                    zk.left_open().await;
                }
            }
        }
    }

    /// Ends a request that does not queue within one session timeout.
    pub(crate) async fn within_timeout<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.timeout();
        tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(self.unavailable(limit)))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = &self.inner.hosts;
        f.debug_struct("Session").field("hosts", hosts).field("zk", &self.present()).finish_non_exhaustive()
    }
}

impl Inner {
    /// Ends the renewals. Returns the last zk, and whether a renewal was under way, when there is no session to end.
    fn end(&self, error: Error) -> (Arc<ServerSession>, bool) {
        let mut last = None;
        self.current.send_if_modified(|current| {
            let renewing = matches!(current, Current::Renewing(_));
            let ended = matches!(current, Current::Ended(..));
            let zk = current.zk().clone();
            last = Some((zk.clone(), renewing));
            if !ended {
                *current = Current::Ended(zk, error);
            }
            !ended
        });
        last.expect("the closure was called")
    }

    /// Puts `next` in the place of `zk`, unless the session was closed in the meantime.
    fn replace(&self, zk: &Arc<ServerSession>, next: Current) -> bool {
        self.current.send_if_modified(|current| {
            let open = !matches!(current, Current::Ended(..)) && Arc::ptr_eq(current.zk(), zk);
            if open {
                *current = next;
            }
            open
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.current.borrow().zk().close();
    }
}

const ORPHANED: &str = "the runtime that it ran on is gone, or a task of it has panicked";

fn ended(reason: impl Into<String>) -> Error {
    Error::SessionEnded { reason: reason.into() }
}
