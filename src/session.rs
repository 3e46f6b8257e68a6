//! [`Session`]: a ZooKeeper session that renews itself.

mod addresses;
mod close;
mod hosts;
mod looks;
mod requests;
pub(crate) mod servers;
pub(crate) mod state_changes;
mod states;
pub(crate) mod times;
mod unique_name;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use zookeeper_client::{Client, SessionId};

use crate::driver::{Core, drive};
use crate::error::{Error, Result};
use crate::machine::Moment;
use crate::options::Options;
use crate::path::LockPath;
use crate::telemetry;

pub use self::looks::Looks;
pub use self::servers::Servers;
pub use self::states::{SessionState, SessionStates};

use self::unique_name::UniqueName;

pub(crate) use self::hosts::{has_chroot, normalize};
use self::requests::fired;
pub(crate) use self::requests::{Interrupt, Zk, found};

/// A ZooKeeper session for locks. It renews itself after it has expired.
///
/// Clones share the session. When the last of them is dropped, with all locks and guards made from them, the session is
/// closed in the background. [`close`](Self::close) also waits for the end. A program that exits without `close()` may
/// leave its nodes, and so its locks, until the servers expire the session.
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
    /// The servers to connect to.
    servers: Arc<Servers>,
    core: Arc<Core>,
    /// The runtime on which the session's tasks run.
    runtime: Handle,
    /// The highest czxid among the nodes of granted locks, since the servers' czxids last fell.
    newest_grant: AtomicI64,
    _name: Option<UniqueName>,
}

impl Session {
    /// Connects to ZooKeeper. The [servers](Servers) are a list like `zk1:2181,zk2:2181,zk3:2181`, [`Servers::new`],
    /// [`Servers::from_fn`] or a [`Config`](crate::Config). With a plain list, the session timeout is the client's default
    /// of 6 s.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt. A ZooKeeper session that was already created ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], with a reason for each host, if none answers within about one session timeout (6 s by
    /// default). The check of the chroot may take another session timeout. The call does not fail earlier, even if all
    /// hosts refuse. A service that may start before its servers retries, or uses [`lazy`](Self::lazy).
    /// [`Error::InvalidInput`] if the servers [cannot be used](Servers::new), or the chroot does not exist.
    /// [`Error::Client`] if the credentials are refused.
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
        let name = servers.unique_name()?;
        let (client, created) = servers.connect_first().await?;
        Ok(Self::begin(servers, name, Some((client, created))))
    }

    /// Connects in the background, and returns at once. Use it for a service that starts before its servers.
    ///
    /// Until a server is reached, calls that wait for a lock also wait for the server. Calls that do not wait return
    /// [`Error::Unavailable`], with a reason for each host. If the chroot is missing or the credentials are refused, the
    /// session retries, as in a renewal. [`states`](Self::states) reports the first connection, and [`close`](Self::close)
    /// works at any time.
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
    /// // Also waits for a server.
    /// let guard = mutex.lock().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lazy(servers: impl Into<Servers>) -> Result<Self> {
        let servers = servers.into().checked()?;
        need_runtime()?;
        let name = servers.unique_name()?;
        Ok(Self::begin(servers, name, None))
    }

    /// Starts the session's tasks on the current runtime, which must be the client's. `connected`: the client, and a time
    /// before its ZooKeeper session was created.
    fn begin(servers: Arc<Servers>, name: Option<UniqueName>, connected: Option<(Client, Moment)>) -> Self {
        telemetry::session_begins();
        let options = servers.lock_options.clone();
        let core = Core::new(name.as_ref().map(UniqueName::hash));
        if let Some((client, created)) = connected {
            core.renew(&mut core.lock(), client, created);
        }
        tokio::spawn(Arc::clone(&core.reports).run());
        tokio::spawn(drive(Arc::clone(&core), Arc::clone(&servers)));
        Self {
            inner: Arc::new(Inner {
                servers,
                core,
                runtime: Handle::current(),
                newest_grant: AtomicI64::new(0),
                _name: name,
            }),
            options,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Returns the session's runtime. When this runtime ends, so does the session.
    ///
    /// A `SemaphoreShare` runs its task there, because the runtime of its callers may end earlier.
    pub(crate) fn home(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Sets options for the locks that are created from this value. Options set earlier stay, unless `options` sets
    /// them again. A lock's own options override them.
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

    /// Returns the current client, for other work in the same ZooKeeper session.
    ///
    /// A renewal replaces the client. While you keep a clone, the ZooKeeper session goes on after a
    /// [`close`](Self::close), which deletes all lock nodes.
    ///
    /// While an expired session is renewed, and after the session's runtime has ended, this returns the last client, whose
    /// requests fail.
    ///
    /// Returns `None` before a [`lazy`](Self::lazy) session has reached a server, and after [`close`](Self::close). Also
    /// returns `None` after a panic in the session, after another process has taken the session's
    /// [unique name](Servers::with_unique_name), and during a renewal because the server gave the connection to another
    /// session.
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
        self.core().lock().client.as_deref().cloned()
    }

    /// Lists the paths of all children of `parent`. With one lock per key, these are the locks that exist now, held or
    /// not. The list is empty if `parent` does not exist, for example because the servers have deleted the empty
    /// container. The list comes from the connected server, which may be behind the others.
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
    /// one session timeout, [`Error::NoAuth`] if the ACLs deny it, [`Error::Closed`] and [`Error::SessionEnded`] if the
    /// session is over.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::path;
    ///
    /// for lock in session.children_of("/locks/orders").await? {
    ///     let order = lock.rsplit('/').next().and_then(path::key);
    ///     println!("{lock} is the lock of {order:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn children_of(&self, parent: &str) -> Result<Vec<String>> {
        let parent = LockPath::new(parent)?;
        let parent = parent.as_str();
        let mut names = self.attempt_within_timeout(|zk| async move { zk.list(parent).await }).await?;
        names.sort_unstable();
        Ok(names.iter().map(|name| format!("{parent}/{name}")).collect())
    }

    /// Returns the id of the current ZooKeeper session. A renewal changes the id. Before a [`lazy`](Self::lazy) session has
    /// reached a server it is 0.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.core().lock().session_id()
    }

    /// Returns the reason why the session will not be renewed any more, or `None` while it may be.
    pub(crate) fn error(&self) -> Option<Error> {
        self.core().lock().error.clone()
    }

    /// Returns a number that no other live session has. Clones of a session have the same number.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// Returns the options of the locks that are created from this value.
    #[must_use]
    pub fn lock_options(&self) -> &Options {
        &self.options
    }

    /// Returns the highest czxid among the nodes of granted locks, since the servers' czxids last fell. Later nodes have higher
    /// czxids unless the servers' data was replaced.
    pub(crate) fn newest_grant(&self) -> i64 {
        self.inner.newest_grant.load(Ordering::Relaxed)
    }

    /// Records the czxid of a granted node. `before`: [`newest_grant`](Self::newest_grant) when its acquisition began.
    /// Returns whether the czxid shows that the servers' czxids have fallen since then. Only the first grant after a fall
    /// returns `true`.
    pub(crate) fn is_grant_of_older_data(&self, before: i64, czxid: i64) -> bool {
        let newest = &self.inner.newest_grant;
        if czxid > before {
            newest.fetch_max(czxid, Ordering::Relaxed);
            return false;
        }
        let lower = |newest| (newest > czxid).then_some(czxid);
        newest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower).is_ok()
    }

    /// Returns whether the session's paths are below a chroot.
    pub(crate) fn has_chroot(&self) -> bool {
        let asked = self.inner.servers.has_chroot();
        let state = self.core().lock();
        if state.was_connected() { state.has_chroot() } else { asked }
    }

    /// Returns the hosts of the latest attempt to connect.
    fn hosts(&self) -> Arc<str> {
        self.inner.servers.hosts()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("hosts", &self.hosts())
            .field("id", &self.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Sessions are equal if they are clones of one session.
impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Session {}

impl Drop for Inner {
    fn drop(&mut self) {
        close::close(&self.core, &mut self.core.lock());
    }
}

/// Fails without a tokio runtime. Panics on a runtime without timers, because the session's tasks would panic later.
fn need_runtime() -> Result<()> {
    if Handle::try_current().is_err() {
        let reason = "there is none; connect the session on the tokio runtime on which it is to live";
        return Err(Error::invalid("runtime", reason));
    }
    drop(tokio::time::sleep(Duration::ZERO));
    Ok(())
}
