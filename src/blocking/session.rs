//! Owns the blocking [`Session`]: a session with a runtime of its own.

use std::future::Future;
use std::time::Duration;

use zookeeper_client::SessionId;

use crate::blocking::Runtime;
use crate::error::Result;
use crate::options::Options;
use crate::session::{self, Servers, SessionState};

/// A ZooKeeper session for locks, for threads that block. It renews itself after it has expired.
///
/// A session has one thread, which ends when the session is over and all locks and guards made from it are dropped.
/// Clones share the session. When the last of them is dropped, with all locks and guards, the session is closed in the
/// background. [`close`](Self::close) also waits for the end.
///
/// # Examples
///
/// ```no_run
/// # fn example() -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_recipes::blocking::{Mutex, Session};
///
/// let session = Session::connect("zk1:2181,zk2:2181,zk3:2181")?;
/// let guard = Mutex::new(&session, "/locks/nightly-report")?.lock()?;
/// println!("token {}", guard.fencing_token());
/// drop(guard);
/// session.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    session: session::Session,
    runtime: Runtime,
}

impl Session {
    /// Connects to ZooKeeper. The [servers](Servers) are those of the async session's [`connect`](crate::Session::connect).
    ///
    /// # Errors
    ///
    /// As [`connect`](crate::Session::connect) of the async session;
    /// [`Error::SessionEnded`](crate::Error::SessionEnded) if the thread cannot be started.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// use zookeeper_recipes::Servers;
    /// use zookeeper_recipes::blocking::Session;
    ///
    /// let servers = Servers::new("zk1:2181,zk2:2181,zk3:2181/billing");
    /// let session = Session::connect(servers.with_session_timeout(Duration::from_secs(10)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect(servers: impl Into<Servers>) -> Result<Self> {
        let servers = servers.into();
        Self::start(async move || session::Session::connect(servers).await)
    }

    /// Connects in the background, and does not wait for a server. Panics in a task of tokio, as all calls that
    /// [block](crate::blocking#inside-a-tokio-runtime) do. See [`lazy`](crate::Session::lazy) of the async session.
    ///
    /// # Errors
    ///
    /// As [`lazy`](crate::Session::lazy) of the async session;
    /// [`Error::SessionEnded`](crate::Error::SessionEnded) if the thread cannot be started.
    pub fn lazy(servers: impl Into<Servers>) -> Result<Self> {
        let servers = servers.into();
        Self::start(async move || session::Session::lazy(servers))
    }

    /// Calls your function `connect` on the thread of the session. Use it for ways to connect that only the async session
    /// has.
    ///
    /// # Errors
    ///
    /// The errors of your function. [`Error::SessionEnded`](crate::Error::SessionEnded) if the thread cannot be started.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example() -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::blocking::Session;
    ///
    /// let session = Session::start(async || zookeeper_recipes::Session::lazy("localhost:2181"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start<F: Future<Output = Result<session::Session>>>(
        connect: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Self> {
        let (session, runtime) = Runtime::start(connect)?;
        Ok(Self { session, runtime })
    }

    /// Sets options for the locks that are created from this value. Options set earlier stay, unless `options` sets
    /// them again. A lock's own options override them.
    #[must_use]
    pub fn with_lock_options(mut self, options: Options) -> Self {
        self.session = self.session.with_lock_options(options);
        self
    }

    /// Returns the async session behind this one, for calls without a blocking form. Await its futures with
    /// [`block_on`](Self::block_on), or in tasks of another runtime.
    #[must_use]
    pub fn as_async(&self) -> &session::Session {
        &self.session
    }

    /// Blocks this thread until `future` is ready, in the runtime of the session. Use it for calls of the async API.
    ///
    /// The future is polled on this thread, so it may borrow.
    ///
    /// # Panics
    ///
    /// Where [tokio runs a task](crate::blocking#inside-a-tokio-runtime). The future is then dropped without a poll.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: &zookeeper_recipes::blocking::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use zookeeper_recipes::MultiLock;
    ///
    /// let both = MultiLock::new(session.as_async(), ["/accounts/1", "/accounts/2"])?;
    /// let guard = session.block_on(both.lock())?;
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Returns the id of the current ZooKeeper session. A renewal changes the id. Before a [`lazy`](Self::lazy) session
    /// has reached a server it is 0.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.session.id()
    }

    /// Returns the current state of the session. The async session's [`states`](crate::Session::states) report its
    /// changes.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.session.state()
    }

    /// Lists the paths of all children of `parent`. With one lock per key, these are the locks that exist now, held or not.
    ///
    /// # Errors
    ///
    /// As [`children_of`](crate::Session::children_of) of the async session.
    pub fn children_of(&self, parent: &str) -> Result<Vec<String>> {
        self.runtime.block_on(self.session.children_of(parent))
    }

    /// Ends the session as [`close`](Self::close) does, but lets the holders finish first, for `limit` at most. Returns how
    /// many holds were cut off.
    ///
    /// Threads that wait for a lock return with [`Error::Closed`](crate::Error::Closed) at once, and
    /// [`is_revoke_requested`](crate::blocking::Guard::is_revoke_requested) is true for holders. Call `drain` from a thread
    /// that has no guard of the session, because the call would wait for that guard.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: &zookeeper_recipes::blocking::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use std::time::Duration;
    ///
    /// let cut_off = session.drain(Duration::from_secs(20))?;
    /// println!("{cut_off} locks were released under their holders");
    /// # Ok(())
    /// # }
    /// ```
    pub fn drain(&self, limit: Duration) -> Result<usize> {
        self.runtime.block_on(self.session.drain(limit))
    }

    /// Ends the session and with it all its locks, in one session timeout at most.
    ///
    /// At once, threads that wait for a lock return with [`Error::Closed`](crate::Error::Closed), and holds are
    /// [`Lost(Closed)`](crate::Loss::Closed). Guards can still be dropped afterwards.
    ///
    /// # Errors
    ///
    /// As [`close`](crate::Session::close) of the async session.
    pub fn close(&self) -> Result<()> {
        self.runtime.block_on(self.session.close())
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}
