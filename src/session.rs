//! Owns [`Session`]: a ZooKeeper session that renews itself.

mod addresses;
mod attempt;
mod budget;
mod cleanup;
mod connector;
mod drain;
mod identity;
mod keeper;
mod nodes;
mod operations;
mod register;
mod renewal;
mod request;
mod search;
mod server_session;
mod servers;
mod shared;
mod standing;
mod states;
mod times;
mod trust;
mod undisturbed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use zookeeper_client::{Client, SessionId};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::path::LockPath;
use crate::session::renewal::{Supervisor, supervise};
use crate::session::server_session::Closing;
use crate::telemetry;

pub use self::servers::Servers;
pub use self::states::{SessionState, SessionStates};

pub(crate) use self::budget::Reserved;
pub(crate) use self::cleanup::{Deletion, delete_abandoned, delete_in_background};
pub(crate) use self::connector::{TIMEOUTS_MS, has_chroot, normalize};
pub(crate) use self::drain::drained;
pub(crate) use self::identity::Connection;
pub(crate) use self::nodes::{NewNode, OwnNode, OwnNodes};
pub(crate) use self::operations::{Created, Refusal};
pub(crate) use self::register::{Following, Watched};
pub(crate) use self::request::{Answer, Failure, Interrupt, SessionOver};
pub(crate) use self::search::{delete_late_doubles, find};
pub(crate) use self::server_session::{End, Lasting, Phase, ServerSession, TrustNeed, Work};
pub(crate) use self::shared::Names;
pub(crate) use self::standing::{Arming, Event, StandingWatch, Watch};
pub(crate) use self::trust::Moment;
pub(crate) use self::undisturbed::{Alone, Last};

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
/// drop(guard);
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
    /// The servers that the session was given; `None` if it was given a client.
    servers: Option<Arc<Servers>>,
    /// Whether no lock is granted any more.
    draining: watch::Sender<bool>,
    current: watch::Sender<Current>,
}

/// What stands for the session at the moment.
#[derive(Clone)]
enum Current {
    /// None yet: no server has been reached.
    Connecting(Trial),
    /// A ZooKeeper session; it may be over, and then is about to be replaced.
    Live(Arc<ServerSession>),
    /// None, until the servers are reached again; the last one is kept for its id.
    Renewing(Arc<ServerSession>, Trial),
    /// None any more.
    Ended(Option<Arc<ServerSession>>, Error),
}

/// How the attempts to connect go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    UnderWay,
    /// The credentials were refused, and are tried again.
    Refused,
}

impl Current {
    fn zk(&self) -> Option<&Arc<ServerSession>> {
        match self {
            Self::Connecting(_) => None,
            Self::Live(zk) | Self::Renewing(zk, _) => Some(zk),
            Self::Ended(zk, _) => zk.as_ref(),
        }
    }

    /// Whether there is no session, and attempts to connect are under way.
    fn is_trying(&self) -> bool {
        matches!(self, Self::Connecting(_) | Self::Renewing(..))
    }
}

impl Session {
    /// Connects to ZooKeeper. The [servers](Servers) are a list like `zk1:2181,zk2:2181,zk3:2181`, which is connected with the
    /// client's default session timeout of 6 s, or [`Servers::new`], [`Servers::from_fn`] or a [`Config`](crate::Config).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt. A session that was already created ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], with a reason for each host, if none answers within about one session timeout (6 s by
    /// default), or within another for the check of the chroot. It is not returned earlier, even if all hosts refuse: try
    /// again, as a service does that starts before its servers. [`Error::InvalidInput`] if the servers [cannot be
    /// used](Servers::new), or the chroot does not exist. [`Error::Client`] if the credentials are refused.
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
    pub async fn connect(servers: impl Into<Servers>) -> Result<Self> {
        let servers = servers.into().checked()?;
        let (client, created) = servers.connect_first().await?;
        Ok(Self::supervised(servers, Current::Live(keeper::start(client, Some(created)))))
    }

    /// Connects in the background, and comes back at once: for a service that starts before its servers.
    ///
    /// Until a server is reached, calls that wait for a lock wait for that, too, and calls that do not wait return
    /// [`Error::Unavailable`], with a reason for each host. A chroot that does not exist, and credentials that are refused, are
    /// tried again, as after an expired session. [`states`](Self::states) report the first connection, and
    /// [`close`](Self::close) works throughout.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if the servers [cannot be used](Servers::new), and outside a tokio runtime.
    ///
    /// # Panics
    ///
    /// Panics on a tokio runtime without timers; see [Runtimes](crate#runtimes).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::{Mutex, Session};
    ///
    /// let session = Session::lazy("zk1:2181,zk2:2181,zk3:2181")?;
    /// let mutex = Mutex::new(&session, "/locks/nightly-report")?;
    /// // Waits for a server, too.
    /// let guard = mutex.lock().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lazy(servers: impl Into<Servers>) -> Result<Self> {
        let servers = servers.into().checked()?;
        need_runtime("connect the session on the tokio runtime on which it is to live")?;
        Ok(Self::supervised(servers, Current::Connecting(Trial::UnderWay)))
    }

    /// A session that is connected, and renewed, for as long as somebody uses it.
    fn supervised(servers: Arc<Servers>, current: Current) -> Self {
        let session = Self::of(current, Some(servers.clone()));
        tokio::spawn(supervise(Supervisor(Arc::downgrade(&session.inner)), servers));
        session
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
        need_runtime("attach the session on the tokio runtime on which its client was connected")?;
        servers::warn_if_short(&client);
        Ok(Self::of(Current::Live(keeper::start(client, None)), None))
    }

    fn of(current: Current, servers: Option<Arc<Servers>>) -> Self {
        telemetry::session_begins();
        let options = servers.as_ref().map_or_else(Options::new, |servers| servers.lock_options().clone());
        let (draining, current) = (watch::Sender::new(false), watch::Sender::new(current));
        Self { inner: Arc::new(Inner { servers, draining, current }), options }
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
    /// `None` after [`close`](Self::close), after a task of the session has panicked, and before a [`lazy`](Self::lazy) session has
    /// reached a server.
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
        self.present()?.share_client().map(|client| Client::clone(&client))
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

    /// The id of the present ZooKeeper session. After a renewal it is another id; before a [`lazy`](Self::lazy) session has
    /// reached a server it is 0.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.present().map_or(SessionId(0), |zk| zk.id())
    }

    /// Ends the session and with it all its locks. [`drain`](Self::drain) lets the holders finish first.
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
        let (Some(zk), renewing) = self.inner.end(Error::Closed) else {
            return Ok(());
        };
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

    /// Distinguishes this session, with its clones, from others for as long as it lives.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// The options of the locks that are created from this value.
    #[must_use]
    pub fn lock_options(&self) -> &Options {
        &self.options
    }

    /// Fails if no node of ours can be at `path`, or none with these options.
    ///
    /// A seam for `kept_node`: without a connection, only the session knows whether it has a chroot.
    pub(crate) fn accepts(&self, path: &str, options: &Options) -> Result<()> {
        let path = LockPath::new(path)?;
        if !self.has_chroot() {
            path.refuse_the_servers()?;
        }
        options.validate()
    }

    /// Whether paths are not those of the servers, but begin below a node of theirs.
    pub(crate) fn has_chroot(&self) -> bool {
        let asked = self.inner.servers.as_ref().is_some_and(|servers| servers.has_chroot());
        self.present().map_or(asked, |zk| zk.has_chroot())
    }

    /// The hosts that it was given last.
    fn hosts(&self) -> Arc<str> {
        let known = self.inner.servers.as_ref().map(|servers| servers.hosts());
        known.unwrap_or_else(|| "the servers of the attached client".into())
    }

    fn present(&self) -> Option<Arc<ServerSession>> {
        self.inner.current.borrow().zk().cloned()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("hosts", &self.hosts())
            .field("zk", &self.present())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Ends the renewals. Returns the last zk, and whether a renewal was under way, when there is no session to end.
    fn end(&self, error: Error) -> (Option<Arc<ServerSession>>, bool) {
        let mut last = (None, false);
        self.current.send_if_modified(|current| {
            let ended = matches!(current, Current::Ended(..));
            let zk = current.zk().cloned();
            last = (zk.clone(), matches!(current, Current::Renewing(..)));
            if !ended {
                *current = Current::Ended(zk, error);
            }
            !ended
        });
        last
    }

    /// Notes that the credentials are refused, with which a session is wanted.
    fn credentials_are_refused(&self) {
        self.current.send_if_modified(|current| match current {
            Current::Connecting(trial) | Current::Renewing(_, trial) => {
                std::mem::replace(trial, Trial::Refused) != Trial::Refused
            }
            Current::Live(_) | Current::Ended(..) => false,
        });
    }

    /// Puts `next` in the place of what is there, unless the session was closed in the meantime.
    fn replace(&self, next: Current) -> bool {
        self.current.send_if_modified(|current| {
            let open = !matches!(current, Current::Ended(..));
            if open {
                *current = next;
            }
            open
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(zk) = self.current.borrow().zk() {
            zk.close();
        }
    }
}

/// Fails without a tokio runtime, and panics on one without timers, rather than in the background.
fn need_runtime(instead: &str) -> Result<()> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(Error::invalid("runtime", format!("there is none; {instead}")));
    }
    drop(tokio::time::sleep(Duration::ZERO));
    Ok(())
}

const ORPHANED: &str = "the runtime that it ran on is gone, or a task of it has panicked";

fn ended(reason: impl Into<String>) -> Error {
    Error::SessionEnded { reason: reason.into() }
}
