//! Owns [`Session`]: a ZooKeeper session that renews itself.

mod answer;
mod budget;
pub(crate) mod clock;
mod hosts;
mod keeper;
mod link;
mod listings;
mod places;
mod renewal;
mod requests;
mod transactions;
mod trust;
mod upkeep;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client::{Client, Connector, SessionId, SessionState};

use crate::error::{Error, Result, Unanswered};
use crate::options::Options;
use crate::session::renewal::Servers;

pub(crate) use self::answer::{Answer, Failure, Slot};
pub(crate) use self::budget::Reserved;
pub(crate) use self::link::{Closing, End, Link, LinkOver, Phase, Work};
pub(crate) use self::places::Entered;
pub(crate) use self::requests::{Created, Draft, Fired, Names, Requests, Watch};
pub(crate) use self::transactions::Refusal;
pub(crate) use self::upkeep::Interest;

/// A ZooKeeper session that locks are taken in, and that renews itself after it has expired.
///
/// Clones share the session. When the last of them is gone, and all locks and guards made from them, it is closed in
/// the background; [`close`](Self::close) does that and waits for it. A program that simply ends leaves its nodes, and
/// so its locks, until the server gives the session up.
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
    /// Whether somebody puts another session in the place of one that has expired.
    renews: AtomicBool,
    current: watch::Sender<Current>,
}

/// What stands for the session at the moment.
#[derive(Clone)]
enum Current {
    /// A ZooKeeper session; it may be over, and then is about to be replaced.
    Live(Arc<Link>),
    /// None, until the servers are reached again; the last one is kept for its id.
    Renewing(Arc<Link>),
    /// None any more.
    Ended(Arc<Link>, Error),
}

impl Current {
    fn link(&self) -> &Arc<Link> {
        match self {
            Self::Live(link) | Self::Renewing(link) | Self::Ended(link, _) => link,
        }
    }
}

impl Session {
    /// Connects to ZooKeeper, with the client's default session timeout of 6 s.
    ///
    /// `hosts` is a list like `zk1:2181,zk2:2181,zk3:2181/chroot`. White space around its elements is ignored. A chroot has
    /// to exist; with one, connecting costs a request more. A server with the prefix `tcp+tls://` is spoken to over TLS,
    /// which needs [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the attempt up; a session that was already made ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], naming the hosts, if none answers within about one session timeout, or within another to
    /// say whether the chroot exists; [`Error::InvalidInput`] if `hosts` cannot be understood, or the chroot does not
    /// exist.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn connect(hosts: &str) -> Result<Self> {
        Self::connect_with(Client::connector(), hosts).await
    }

    /// Connects with a connector that says how: session timeout, TLS, SASL, credentials.
    ///
    /// The connector is kept and used again to renew the session. All servers should have the same limits for session
    /// timeouts: the one that is agreed upon now is relied on later. Leave the connection timeout as it is: how often
    /// the client pings follows from it, and trust counts on that.
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); [`Error::InvalidInput`] also if the connector carries an old session
    /// (`with_session`), leaves its session behind (`with_detached`), makes do with servers that cannot take a lock
    /// (`with_readonly`), has a session timeout of more than 2,147,483,647 ms (24 days), or one of its timeouts is less than
    /// 8 ms, which the client cannot carry; [`Error::Client`] if the credentials are refused.
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
        let session = Self::of(Link::new(client, Some(created)), servers.hosts().clone(), true);
        keeper::start(&session.present());
        tokio::spawn(supervise(Supervisor(Arc::downgrade(&session.inner)), servers));
        Ok(session)
    }

    fn of(link: Arc<Link>, hosts: Arc<str>, renews: bool) -> Self {
        let inner =
            Inner { hosts, renews: AtomicBool::new(renews), current: watch::Sender::new(Current::Live(link)) };
        Self { inner: Arc::new(inner), options: Options::new() }
    }

    /// Sets the options of the locks that are made from this value and given none of their own.
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The present client, for other work in the same ZooKeeper session.
    ///
    /// After a renewal this is another one. While you keep a clone, [`close`](Self::close) cannot end the session; it
    /// still releases all locks, if the servers can be reached. After the session has ended in any other way than by
    /// [`close`](Self::close), this is its last client, whose requests fail.
    ///
    /// # Panics
    ///
    /// After [`close`](Self::close), or after a task of the session has panicked, when there is no client any more.
    #[must_use]
    pub fn client(&self) -> Client {
        let client =
            self.present().share_client().expect("a session that is closed, or has panicked, has no client");
        Client::clone(&client)
    }

    /// The id of the present ZooKeeper session. After a renewal it is another one.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.present().id()
    }

    /// The state of the present ZooKeeper session, as its client has it.
    #[must_use]
    pub fn state(&self) -> SessionState {
        match self.present().phase() {
            Phase::Over(End::Closed(_)) => SessionState::Closed,
            Phase::Open | Phase::Closing | Phase::Over(_) => self.present().requests.state(),
        }
    }

    /// Ends the session and with it all its locks.
    ///
    /// Holds become [`Lost(Closed)`](crate::Loss::Closed) at once and their nodes are deleted, waiters get
    /// [`Error::Closed`], and then the ZooKeeper session is ended. Calling it again waits for the same end. It takes
    /// one session timeout at most. A session made [`From`] a client is not ended: only its locks are. While a renewal is under way there is nothing
    /// to end, because the old session has expired.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting; the session goes on ending.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the servers could not be told in time: nodes may be left until the servers give the
    /// session up by themselves, one session timeout after they last heard of it, or of a clone of its client.
    /// [`Error::SessionKept`] if all locks are released (but for nodes that the ACLs do not let us delete), and somebody
    /// keeps a clone of [`client`](Self::client), and with it the session and whatever nodes it still has.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn close(&self) -> Result<()> {
        let (link, renewing) = self.inner.end(Error::Closed);
        link.close();
        let end = match tokio::time::timeout(link.timeout(), link.over()).await {
            Ok(end) => end,
            Err(_) => {
                let end = End::Closed(Closing::Unconfirmed);
                // The session of a given client goes on, and with it the tidying up.
                if link.is_owned() {
                    link.end(end);
                }
                end
            }
        };
        match end {
            End::Closed(Closing::Unconfirmed) | End::Orphaned if !renewing => {
                Err(self.unavailable(link.timeout()))
            }
            End::Closed(Closing::ClientKept) => {
                tracing::warn!(session = %link.id(), "a clone of its client keeps a session open that was closed");
                Err(Error::SessionKept { session: link.id() })
            }
            _ => Ok(()),
        }
    }

    /// What tells this session, with its clones, from others for as long as it lives.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// The options of the locks that are made from this value and given none of their own.
    ///
    /// For one lock with another choice, take these and change them: options that are given replace them all.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether paths are not those of the servers, but begin below a node of theirs.
    pub(crate) fn has_chroot(&self) -> bool {
        self.present().cost(0) > 0
    }

    /// The error of a request that has not been answered in time.
    pub(crate) fn unavailable(&self, after: Duration) -> Error {
        let link = self.present();
        let connected = match link.phase() {
            Phase::Open | Phase::Closing | Phase::Over(End::Closed(_)) => link.requests.is_connected(),
            // What its client says of the connection may be out of date.
            Phase::Over(End::Expired | End::AuthFailed | End::Orphaned) => false,
        };
        let why = if connected { Unanswered::TimeLimit } else { Unanswered::Servers };
        Error::Unavailable { hosts: self.inner.hosts.to_string(), after, why }
    }

    /// The time within which every call ends that does not queue.
    pub(crate) fn timeout(&self) -> Duration {
        self.present().timeout()
    }

    /// A ZooKeeper session to work in; waits while there is none.
    pub(crate) async fn link(&self) -> Result<Arc<Link>> {
        let mut changes = self.inner.current.subscribe();
        loop {
            let current = changes.borrow_and_update().clone();
            match &current {
                Current::Ended(_, error) => return Err(error.clone()),
                Current::Live(link) => {
                    keeper::start(link);
                    match link.phase() {
                        Phase::Open => return Ok(link.clone()),
                        Phase::Closing | Phase::Over(End::Closed(_)) => {
                            return Err(Error::Closed);
                        }
                        Phase::Over(End::Orphaned) => {
                            return Err(ended(ORPHANED));
                        }
                        Phase::Over(End::Expired | End::AuthFailed)
                            if !self.inner.renews.load(Ordering::Acquire) =>
                        {
                            return Err(ended(if link.is_owned() {
                                ORPHANED
                            } else {
                                "it has expired, and a session made from a client is not renewed"
                            }));
                        }
                        Phase::Over(End::Expired | End::AuthFailed) => {}
                    }
                }
                Current::Renewing(_) => {}
            }
            if changes.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }

    fn present(&self) -> Arc<Link> {
        self.inner.current.borrow().link().clone()
    }
}

impl From<Client> for Session {
    /// Wraps a client that someone else has connected. Such a session is not renewed when it expires, and closing it
    /// gives up its locks but not the client's session.
    ///
    /// It lives on the runtime that it is made on, or else first used on; that should be the client's.
    fn from(client: Client) -> Self {
        renewal::warn_if_short(&client);
        let session = Self::of(Link::new(client, None), "the servers of the given client".into(), false);
        // Elsewhere the tasks start with the first use.
        if tokio::runtime::Handle::try_current().is_ok() {
            keeper::start(&session.present());
        }
        session
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = &self.inner.hosts;
        f.debug_struct("Session").field("hosts", hosts).field("link", &self.present()).finish_non_exhaustive()
    }
}

impl Inner {
    /// Ends the renewals. Returns the last link, and whether a renewal was under way, when there is no session to end.
    fn end(&self, error: Error) -> (Arc<Link>, bool) {
        let mut last = None;
        self.current.send_if_modified(|current| {
            let renewing = matches!(current, Current::Renewing(_));
            let ended = matches!(current, Current::Ended(..));
            let link = current.link().clone();
            last = Some((link.clone(), renewing));
            if !ended {
                *current = Current::Ended(link, error);
            }
            !ended
        });
        last.expect("the closure was called")
    }

    /// Puts `next` in the place of `link`, unless the session was closed in the meantime.
    fn replace(&self, link: &Arc<Link>, next: Current) -> bool {
        self.current.send_if_modified(|current| {
            let open = !matches!(current, Current::Ended(..)) && Arc::ptr_eq(current.link(), link);
            if open {
                *current = next;
            }
            open
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.current.borrow().link().close();
    }
}

const ORPHANED: &str = "the runtime that it ran on is gone, or a task of it has panicked";

fn ended(reason: impl Into<String>) -> Error {
    Error::SessionEnded { reason: reason.into() }
}

/// Ends a session whose runtime is dropped while it is being renewed, or is about to be.
struct Supervisor(Weak<Inner>);

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.renews.store(false, Ordering::Release);
            let renewing = matches!(&*inner.current.borrow(), Current::Renewing(_));
            if renewing {
                inner.end(ended(ORPHANED));
            }
            // Whoever waits for the next session looks again.
            inner.current.send_modify(|_| {});
        }
    }
}

/// Renews the session whenever it has expired, for as long as somebody uses it.
async fn supervise(supervisor: Supervisor, servers: Servers) {
    let session = &supervisor.0;
    loop {
        let Some(link) = session.upgrade().map(|inner| inner.current.borrow().link().clone()) else {
            return;
        };
        let end = link.over().await;
        let Some(old) = link.requests.client().filter(|_| end == End::Expired) else {
            if let (End::AuthFailed, Some(inner)) = (end, session.upgrade()) {
                inner.end(ended("the servers refuse its credentials"));
            }
            return;
        };
        tracing::warn!(session = %link.id(), "session has expired; its locks are lost, and a new one is made");
        let replaced =
            session.upgrade().is_some_and(|inner| inner.replace(&link, Current::Renewing(link.clone())));
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
                let next = Link::new(client, Some(created));
                tracing::info!(session = %next.id(), "session is renewed");
                keeper::start(&next);
                if !inner.replace(&link, Current::Live(next.clone())) {
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
