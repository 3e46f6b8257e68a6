//! Owns [`KeptNode`]: an ephemeral node that exists as long as its service runs, across ZooKeeper sessions.
//!
//! 1. Whether the node at the path is ours depends on its owner session, never on the answer to a create, which may be lost.
//! 2. One task looks, creates, writes and deletes, one after the other. A create sent before a removal may still be applied after
//!    the removal: see `in_doubt`.
//! 3. A session keeps at most one node at a path. Of two kept nodes neither could tell whether the node there is its own.
//! 4. A turn of the task is a look, then a create or a write if needed. Turns begin at least 200 ms apart, so other clients that
//!    change or delete the node cost a bounded number of requests.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;
use zookeeper_recipes::options::Parents;
use zookeeper_recipes::session::Looks;
use zookeeper_recipes::zookeeper_client::{
    Client, CreateMode, Error as ZkError, MultiWriteError, SessionId, Stat,
};
use zookeeper_recipes::{Error, Result, Session, SessionState};

use crate::request::{create, invalid, is_over, refused, validate_data, validate_path};

/// The pause before a refused request is retried.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// The pause before a second delete. After a connection is lost, a server may still apply a create that was sent over it.
const SECOND_SEARCH: Duration = Duration::from_secs(1);

/// The most data of a node, so that a request with it fits into a server's `jute.maxbuffer`.
const MOST_BYTES: usize = 1_000_000;

/// The kept nodes of this process.
static PLACES: LazyLock<watch::Sender<Vec<Place>>> = LazyLock::new(watch::Sender::default);

/// The session and the path of a kept node, and its initial data.
#[derive(Clone)]
struct Place {
    session: Session,
    path: String,
    data: Arc<[u8]>,
    /// Dead once the [`KeptNode`] is dropped or removed. The node is then being deleted, and the path can be kept again soon.
    handle: Weak<()>,
}

/// Removes a place from [`PLACES`] when dropped.
struct PlaceGuard(Place);

impl Place {
    fn is(&self, session: &Session, path: &str) -> bool {
        self.session == *session && self.path == path
    }

    /// Adds this place to [`PLACES`]. Fails if the session already keeps a node at the path.
    fn take(self) -> Result<PlaceGuard> {
        let mut taken = None;
        PLACES.send_if_modified(|places| {
            taken =
                places.iter().find(|place| place.is(&self.session, &self.path)).map(|place| place.data.to_vec());
            places.extend(taken.is_none().then(|| self.clone()));
            taken.is_none()
        });
        match taken {
            Some(data) => Err(Error::NameTaken { session: self.session.id(), path: self.path, data }),
            None => Ok(PlaceGuard(self)),
        }
    }

    /// Returns whether this session keeps a node at the path that is not being removed.
    fn is_kept(session: &Session, path: &str) -> bool {
        PLACES.borrow().iter().any(|place| place.is(session, path) && place.handle.strong_count() > 0)
    }

    /// Waits until this session keeps no node at the path.
    async fn until_free(session: &Session, path: &str) {
        // This does not fail, because the sender is a static.
        _ = PLACES.subscribe().wait_for(|places| !places.iter().any(|place| place.is(session, path))).await;
    }
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        PLACES.send_modify(|places| places.retain(|place| !place.is(&self.0.session, &self.0.path)));
    }
}

/// The state of the node, as the task that keeps the node saw it last.
#[derive(Clone, Debug)]
enum Standing {
    Absent,
    /// Another session's node is at the path, with this data.
    Taken(SessionId, Arc<[u8]>),
    There {
        /// The ZooKeeper session that owns the node.
        id: SessionId,
        /// The transaction that created the node.
        czxid: i64,
        /// The number of the data written last.
        number: u64,
        /// The number of the data that the servers refuse to write, and their error.
        refused: Option<(u64, Error)>,
    },
    /// The servers refuse a request, or the session is over.
    Failed(Error),
}

/// The newest data to write.
struct Data {
    /// 0 for the initial data, and one more after each change.
    number: u64,
    bytes: Arc<[u8]>,
}

/// An ephemeral node that is created again in every ZooKeeper session.
///
/// Curator calls this a `PersistentNode`. Dropping it deletes the node in the background.
///
/// A task on the tokio runtime of the [`keep`](Self::keep) call keeps the node. While this runtime is blocked, the node is not
/// created again. After the node was changed or deleted, the task reads it immediately, but at most five times a second.
///
/// The node is deleted with its ZooKeeper session: after a [`close`](Session::close) or a [`drain`](Session::drain), once the
/// last clone of the session's client is dropped.
///
/// # Examples
///
/// ```no_run
/// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_groups::KeptNode;
///
/// let member = KeptNode::keep(session, "/billing/members/host-7", b"10.0.0.7:8080")?;
/// member.created().await?;
/// // The service runs.
/// member.remove().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it deletes the node"]
#[doc(alias = "PersistentNode")]
#[doc(alias = "GroupMember")]
pub struct KeptNode {
    node: Arc<Node>,
    standing: watch::Receiver<Standing>,
    /// Dropped before `stop`, so [`Place::is_kept`] is false from the start of a removal.
    _handle: Arc<()>,
    /// Dropping this makes the task remove the node.
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

/// State shared by the handle and the task that keeps the node.
struct Node {
    session: Session,
    path: String,
    data: watch::Sender<Data>,
    /// Whether a change of the data fires the watches on the parent's children.
    is_announced: bool,
    /// Whether the servers may still apply an unanswered create.
    in_doubt: AtomicBool,
    _place: PlaceGuard,
}

impl KeptNode {
    /// Keeps an ephemeral node at `path` for as long as the returned value lives. The node is created again after a deletion, and
    /// in each session that replaces an expired one.
    ///
    /// Missing ancestors are created one by one, according to the [options](zookeeper_recipes::Options::with_parents) of the
    /// session, which also set the ACLs of the node. Another client's node at `path` is left alone, and ours is created once that
    /// node is gone. The same holds for the node of our own last session, which stays until the servers expire that session. Data
    /// that another client writes to the node stays until the node is created again, or until [`set_data`](KeptNode::set_data).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path, if `data` is longer than 1,000,000 bytes, and outside a tokio
    /// runtime. [`Error::NameTaken`] if this session keeps a node at `path` already. [`Error::SessionFull`] if the session has no
    /// room for another watch.
    pub fn keep(session: &Session, path: &str, data: &[u8]) -> Result<Self> {
        Self::begin(session, path, data, false)
    }

    /// As [`keep`](Self::keep). If `is_announced`, a change of the data fires the watches on the parent's children.
    fn begin(session: &Session, path: &str, data: &[u8], is_announced: bool) -> Result<Self> {
        validate_path(path)?;
        validate_data(data, MOST_BYTES)?;
        let runtime = Handle::try_current().map_err(|_| {
            invalid("runtime", "there is none; call this on the tokio runtime that is to keep the node")
        })?;
        let looks = session.looks([path])?;
        let _handle = Arc::new(());
        let handle = Arc::downgrade(&_handle);
        let place = Place { session: session.clone(), path: path.to_owned(), data: data.into(), handle };
        let _place = place.clone().take()?;
        let Place { session, path, data, .. } = place;
        let (data, in_doubt) = (watch::Sender::new(Data { number: 0, bytes: data }), AtomicBool::new(false));
        let node = Arc::new(Node { session, path, data, is_announced, in_doubt, _place });
        let ((sender, standing), (stop, stopped)) = (watch::channel(Standing::Absent), oneshot::channel());
        let task = runtime.spawn(run(node.clone(), looks, sender, stopped));
        Ok(Self { node, standing, _handle, stop, task })
    }

    /// Keeps the node of a member. If this session is removing a node at the path, waits for the end of the removal. With
    /// `waits`, also waits while another [`KeptNode`] of this session keeps a node there.
    pub(crate) async fn of_member(session: &Session, path: &str, data: &[u8], waits: bool) -> Result<Self> {
        loop {
            match Self::begin(session, path, data, true) {
                Err(Error::NameTaken { .. }) if waits || !Place::is_kept(session, path) => {
                    Place::until_free(session, path).await;
                }
                begun => return begun,
            }
        }
    }

    /// The path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.node.path
    }

    /// Whether the node exists in the present ZooKeeper session, as far as is known. Without a connection, the session may have
    /// expired unnoticed, and the node with it.
    #[must_use]
    pub fn is_created(&self) -> bool {
        self.seen().is_some()
    }

    /// The `czxid` of the node, if it [exists](Self::is_created): the number of the transaction that created it. This number
    /// grows with each create, so a service that compares it knows that its node was deleted meanwhile.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.seen().map(|(czxid, _)| czxid.cast_unsigned())
    }

    /// The `czxid` of the node and the number of its data, if the node exists in the present ZooKeeper session.
    fn seen(&self) -> Option<(i64, u64)> {
        let session = &self.node.session;
        let (present, state) = (session.id(), session.state());
        let is_alive = matches!(state, SessionState::Connected(_) | SessionState::Suspended);
        match *self.standing.borrow() {
            Standing::There { id, czxid, number, .. } if is_alive && id == present => Some((czxid, number)),
            _ => None,
        }
    }

    /// Waits until the node exists in the present ZooKeeper session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// The servers' error, such as [`Error::NoAuth`], if they refuse the node. The refused request is retried every second.
    /// [`Error::Closed`] or [`Error::SessionEnded`] if the session is over.
    pub async fn created(&self) -> Result<()> {
        self.there(0, false).await
    }

    /// As [`created`](Self::created), but fails if another session's node is at the path.
    pub(crate) async fn created_if_free(&self) -> Result<()> {
        self.there(0, true).await
    }

    /// Changes the data of the node, also for all later ZooKeeper sessions, and waits until the node has it.
    ///
    /// Without a connection, or while another client has a node at the path, the call waits as [`created`](Self::created) does. A
    /// change is written at once if the last one was 200 ms ago or longer. Of several changes within 200 ms, perhaps only the
    /// last is written. Earlier calls return when a later change is written.
    ///
    /// # Cancel safety
    ///
    /// The first poll stores the data. Dropping the future later only stops the waiting: the data is still written.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `data` is longer than 1,000,000 bytes; the node keeps its data. Otherwise as
    /// [`created`](Self::created). A refused write is retried every second, with the newest data.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(member: zookeeper_groups::KeptNode) -> Result<(), zookeeper_recipes::Error> {
    /// member.set_data(b"10.0.0.7:8080 draining").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_data(&self, data: &[u8]) -> Result<()> {
        validate_data(data, MOST_BYTES)?;
        let mut number = 0;
        self.node.data.send_modify(|last| {
            number = last.number + 1;
            *last = Data { number, bytes: data.into() };
        });
        self.there(number, false).await
    }

    /// Waits until the node exists with the data of this number, or later data. With `is_free`, another session's node at the
    /// path is an error.
    async fn there(&self, number: u64, is_free: bool) -> Result<()> {
        let mut standing = self.standing.clone();
        loop {
            match &*standing.borrow_and_update() {
                Standing::Failed(error) => return Err(error.clone()),
                Standing::There { refused: Some((refused, error)), .. } if *refused >= number && number > 0 => {
                    return Err(error.clone());
                }
                Standing::Taken(session, data) if is_free => {
                    let (path, session, data) = (self.node.path.clone(), *session, data.to_vec());
                    return Err(Error::NameTaken { path, session, data });
                }
                _ => {}
            }
            if self.seen().is_some_and(|(_, there)| there >= number) {
                return Ok(());
            }
            // This fails if the task is gone with its runtime.
            standing.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// Deletes the node, if it exists. If a create is unanswered, deletes again a second later, because servers may apply the
    /// create late. A node from before the session was renewed stays until the servers expire the old ZooKeeper session.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the removal goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server answered within one session timeout, or a second more after an unanswered create. The
    /// node is then deleted in the background, as soon as a server answers. [`Error::Closed`] or [`Error::SessionEnded`] if the
    /// session is over: the node goes with its ZooKeeper session. The servers' error, such as [`Error::NoAuth`], if they refuse
    /// the delete.
    pub async fn remove(self) -> Result<()> {
        let Self { node, stop, task, _handle, .. } = self;
        drop((_handle, stop));
        let limit = node.in_doubt.load(Ordering::Relaxed).then(|| SECOND_SEARCH + node.session.timeout());
        let session = node.session.clone();
        // Now only the task refers to the node, so the end of the task frees the place.
        drop(node);
        session.within(limit, async { task.await.unwrap_or(Err(Error::Closed)) }).await
    }
}

impl fmt::Debug for KeptNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptNode")
            .field("path", &self.node.path)
            .field("is_created", &self.is_created())
            .finish_non_exhaustive()
    }
}

/// Keeps the node until `stopped` resolves, and then removes the node. Returns the session's error if the session ends first.
async fn run(
    node: Arc<Node>,
    looks: Looks,
    standing: watch::Sender<Standing>,
    stopped: oneshot::Receiver<()>,
) -> Result<()> {
    tokio::select! {
        biased;
        _ = stopped => {}
        error = keep(&node, looks, &standing) => {
            standing.send_replace(Standing::Failed(error.clone()));
            return Err(error);
        }
    }
    let removed = remove(&node).await;
    if let Err(error) = removed.as_ref()
        && !is_over(error)
    {
        tracing::warn!(path = node.path, %error, "cannot delete a node that was kept; it stays until its session ends");
    }
    removed
}

/// Keeps the node until the session is over, and returns the session's error.
async fn keep(node: &Node, mut looks: Looks, standing: &watch::Sender<Standing>) -> Error {
    let (mut data, mut written) = (node.data.subscribe(), None);
    loop {
        tokio::select! {
            () = looks.due() => {}
            _ = data.changed() => {
                looks.look_by(Instant::now());
                looks.due().await;
            }
        }
        match node.turn(&mut looks, &mut data, &mut written, standing).await {
            Ok(now) => _ = standing.send_replace(now),
            Err(error) if is_over(&error) => return error,
            Err(error) => {
                tracing::warn!(path = node.path, %error, "cannot keep a node");
                // The last look has set no watch, so the next one is due after a pause.
                standing.send_replace(Standing::Failed(error));
            }
        }
    }
}

impl Node {
    /// Reads the node, and creates or writes it if needed. `written` is the number of the data written last. If the newest data
    /// was written, but the node has other data, another client has overwritten it. The other client's data then stays.
    async fn turn(
        &self,
        looks: &mut Looks,
        data: &mut watch::Receiver<Data>,
        written: &mut Option<u64>,
        standing: &watch::Sender<Standing>,
    ) -> Result<Standing> {
        let mut look = self.look(looks).await?;
        // A change of the data after this point wakes the task again.
        let (number, bytes) = {
            let newest = data.borrow_and_update();
            (newest.number, newest.bytes.clone())
        };
        if look == Err(ZkError::NoNode) {
            standing.send_replace(Standing::Absent);
            match self.create(&bytes).await? {
                Ok(()) => *written = Some(number),
                Err(ZkError::NodeExists) => {}
                Err(ZkError::NoNode) => return Err(self.no_parent()),
                Err(error) => return Err(refused("create", &self.path, error)),
            }
            look = self.look(looks).await?;
        }
        let (there, stat) = match look {
            Ok(there) => there,
            Err(ZkError::NoNode) => {
                looks.look_by(Instant::now());
                return Ok(Standing::Absent);
            }
            Err(error) => return Err(refused("watch", &self.path, error)),
        };
        if stat.ephemeral_owner != looks.session_id().0 {
            return Ok(Standing::Taken(SessionId(stat.ephemeral_owner), there.into()));
        }
        let mut not_written = None;
        if *there == *bytes {
            *written = Some(number);
        } else if *written != Some(number) {
            match self.write(&bytes, stat.version).await? {
                Ok(()) => *written = Some(number),
                // Another client was faster, or an earlier attempt wrote the data.
                Err(ZkError::BadVersion | ZkError::NoNode) => looks.look_by(Instant::now()),
                Err(error) => {
                    not_written = Some((number, refused("write", &self.path, error)));
                    looks.look_by(Instant::now() + PAUSE);
                }
            }
        }
        let (id, czxid, number) = (looks.session_id(), stat.czxid, written.unwrap_or(0));
        Ok(Standing::There { id, czxid, number, refused: not_written })
    }

    /// Reads the node and watches it. Unlike `exists`, this leaves no watch if the node does not exist.
    async fn look(&self, looks: &mut Looks) -> Result<Result<(Vec<u8>, Stat), ZkError>> {
        let look = looks.look(|client| async move {
            let (data, stat, watch) = client.get_and_watch_data(&self.path).await?;
            Ok(((data, stat), vec![watch]))
        });
        look.await
    }

    /// Creates the node. If its parent is missing, creates the missing ancestors first, unless the options forbid it.
    async fn create(&self, data: &[u8]) -> Result<Result<(), ZkError>> {
        let options = self.session.lock_options();
        // This future may be dropped before the create is answered. So the create is in doubt from now on.
        let was_in_doubt = self.in_doubt.swap(true, Ordering::Relaxed);
        let sent = &AtomicU32::new(0);
        let created = self.session.request(Some(Duration::MAX), |client| async move {
            sent.fetch_add(1, Ordering::Relaxed);
            create(&client, options, &self.path, data, CreateMode::Ephemeral).await
        });
        let created = created.await?;
        if sent.load(Ordering::Relaxed) == 1 && !matches!(created, Err(ZkError::UnexpectedErrorCode(_))) {
            self.in_doubt.store(was_in_doubt, Ordering::Relaxed);
        }
        Ok(created)
    }

    fn no_parent(&self) -> Error {
        let why = match self.session.lock_options().parents() {
            Parents::MustExist => "the options leave it to you: create it first",
            _ => "it is gone as soon as it is created; does the chroot of the session exist?",
        };
        invalid("path", format!("there is no parent for {:?}, and {why}", self.path))
    }

    /// Writes the data, if the node has this version.
    async fn write(&self, data: &[u8], version: i32) -> Result<Result<(), ZkError>> {
        let path = &*self.path;
        // A sibling of the node, because an ephemeral node has no children.
        let news = &self.is_announced.then(|| format!("{path}.{}", Uuid::new_v4().simple()));
        let write = self.session.request(Some(Duration::MAX), |client| async move {
            let Some(news) = news else { return client.set_data(path, data, Some(version)).await.map(drop) };
            // Creating `news` fires the watches on the parent's children. The same transaction deletes `news`, so no listing
            // shows it.
            let mut writer = client.new_multi_writer();
            writer.add_set_data(path, data, Some(version))?;
            writer.add_create(news, &[], &CreateMode::Ephemeral.with_acls(self.session.lock_options().acls()))?;
            writer.add_delete(news, None)?;
            match writer.commit().await {
                Ok(_) => Ok(()),
                Err(
                    MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source },
                ) => Err(source),
            }
        });
        write.await
    }
}

/// Deletes the node, if this ZooKeeper session owns it. If the outcome of a create is unknown, deletes it again after
/// [`SECOND_SEARCH`].
async fn remove(node: &Node) -> Result<()> {
    let id = node.session.id();
    delete(node, id).await?;
    if node.in_doubt.load(Ordering::Relaxed) {
        sleep(SECOND_SEARCH).await;
        delete(node, id).await?;
    }
    Ok(())
}

/// Deletes the node, if the ZooKeeper session `id` owns it and is still the present one.
async fn delete(node: &Node, id: SessionId) -> Result<()> {
    let path = &*node.path;
    loop {
        let deleted = node.session.request(Some(Duration::MAX), |client: Client| async move {
            if client.session_id() != id {
                return Ok(());
            }
            // Our node may have been created over another connection. After a sync this server has the node, too.
            client.sync(path).await?;
            match client.check_stat(path).await? {
                Some(stat) if stat.ephemeral_owner == id.0 => client.delete(path, None).await,
                _ => Ok(()),
            }
        });
        match deleted.await? {
            Ok(()) | Err(ZkError::NoNode) => return Ok(()),
            Err(ZkError::Throttled) => sleep(PAUSE).await,
            Err(error) => return Err(refused("delete", path, error)),
        }
    }
}
