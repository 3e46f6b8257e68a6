//! Tests of your service without ZooKeeper: a [`LocalSession`] has simulated servers within the process.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use zookeeper_simulation::{Link, Server};

use crate::error::{Error, HostFailure, Result, Unanswered};
use crate::mutex::Mutex;
use crate::semaphore::Semaphore;
use crate::session::{Servers, Session};

/// A [`Session`] with simulated servers within the process, from [`Session::local`].
///
/// It dereferences to a real session: all of this crate works with it as with ZooKeeper. Only the servers are
/// simulated. They keep everything in memory, and listen on ports of 127.0.0.1, in a thread of their own.
///
/// A test can cause the faults of real servers. These faults take as long as with real servers: a disconnected session
/// expires after its timeout, 6 s by default. Only [`expire`](Self::expire) ends a session at once. tokio's `start_paused`
/// does not help: `zookeeper-client` has its own clocks and sockets, so while a test waits for the servers, the paused
/// clock jumps to the next timer. A test in virtual time has to replace these clocks and sockets, as `verify/virtual` in
/// the repository does.
///
/// Clones are handles of one session. The servers run until the last `LocalSession` that uses them is dropped.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use zookeeper_recipes::{Loss, Mutex, Session};
///
/// let session = Session::local().await?;
/// let guard = Mutex::new(&session, "/orders/17")?.lock().await?;
///
/// let other_process = session.another().await?;
/// assert!(Mutex::new(&other_process, "/orders/17")?.try_lock().await?.is_none());
///
/// session.expire();
/// assert_eq!(guard.lost().await, Loss::Expired);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LocalSession {
    session: Session,
    local: Arc<Local>,
}

struct Local {
    servers: Arc<Server>,
    link: Link,
}

impl Session {
    /// Starts simulated servers within the process, and connects to them: for tests without ZooKeeper. Needs the
    /// feature `testing`.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the process can open no port, or start no thread.
    ///
    /// # Panics
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// See [`LocalSession`].
    pub async fn local() -> Result<LocalSession> {
        LocalSession::connect(Arc::new(Server::start().map_err(unavailable)?), |servers| servers).await
    }
}

impl LocalSession {
    /// Connects another session to the same servers, as another process would.
    ///
    /// # Errors
    ///
    /// As [`Session::local`], and while the servers are [unavailable](Self::make_unavailable).
    pub async fn another(&self) -> Result<Self> {
        self.another_with(|servers| servers).await
    }

    /// As [`another`](Self::another), with settings that `set` adds, such as a session timeout or credentials.
    ///
    /// # Errors
    ///
    /// As [`Session::connect`].
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    ///
    /// use zookeeper_recipes::Session;
    ///
    /// let session = Session::local().await?;
    /// let other = session.another_with(|servers| servers.with_session_timeout(Duration::from_secs(4))).await?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub async fn another_with(&self, set: impl FnOnce(Servers) -> Servers) -> Result<Self> {
        Self::connect(Arc::clone(&self.local.servers), set).await
    }

    async fn connect(servers: Arc<Server>, set: impl FnOnce(Servers) -> Servers) -> Result<Self> {
        let link = servers.link().map_err(unavailable)?;
        let session = Session::connect(set(Servers::new(&link.address().to_string()))).await?;
        Ok(Self { session, local: Arc::new(Local { servers, link }) })
    }

    /// Returns where the servers listen, for other clients and for a `blocking::Session`.
    #[must_use]
    pub fn hosts(&self) -> String {
        self.local.servers.address()
    }

    /// Cuts the connection of this session. Its holds become [`Suspended`](crate::HoldState::Suspended). They are lost when
    /// their trust ends, unless the session [reconnects](Self::reconnect) before.
    pub fn disconnect(&self) {
        self.local.link.cut();
    }

    /// Lets this session connect again. If the session timeout has not passed, waiters keep their positions and holds that
    /// are not lost go on.
    pub fn reconnect(&self) {
        self.local.link.heal();
    }

    /// Ends the ZooKeeper session. The session is then renewed: holds are lost with
    /// [`Loss::Expired`](crate::Loss::Expired), and waiters queue again at the tail.
    pub fn expire(&self) {
        self.local.servers.expire(self.session.id().0);
    }

    /// Stops the servers from answering any session. They expire no session meanwhile.
    pub fn make_unavailable(&self) {
        self.local.servers.pause();
    }

    /// Lets the servers answer again after [`make_unavailable`](Self::make_unavailable).
    pub fn make_available(&self) {
        self.local.servers.resume();
    }

    /// Deletes the nodes of all holders at `path`, in any session, as an operator could. The holders of a lock, of permits
    /// or of a leadership lose it with [`Loss::Deleted`](crate::Loss::Deleted).
    ///
    /// # Errors
    ///
    /// As [`Mutex::break_lock`].
    pub async fn lose(&self, path: &str) -> Result<()> {
        let lock = Mutex::new(&self.session, path)?;
        for holder in lock.contenders().await?.iter().filter(|contender| contender.is_holder()) {
            lock.break_lock(holder).await?;
        }
        let semaphore = Semaphore::new(&self.session, path, u32::MAX)?;
        for holder in semaphore.contenders().await?.iter().filter(|contender| contender.is_holder()) {
            semaphore.break_lock(holder).await?;
        }
        Ok(())
    }
}

impl Deref for LocalSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl fmt::Debug for LocalSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSession").field("session", &self.session).field("hosts", &self.hosts()).finish()
    }
}

fn unavailable(error: std::io::Error) -> Error {
    let (hosts, reason) = ("127.0.0.1".to_owned(), error.to_string());
    let failures = vec![HostFailure { host: hosts.clone(), reason }];
    Error::Unavailable { hosts, after: Duration::ZERO, why: Unanswered::Servers, failures }
}
