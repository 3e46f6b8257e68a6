//! Owns [`KeptNode`]: an ephemeral node that is there for as long as the service is, over all its sessions.
//!
//! 1. What is at the path is judged by the owner of the node, and never by the answer to a create: that may be lost.
//! 2. A create is sent by one task only. A removal begins once that task is gone.
//! 3. A turn of the task is a look, then at most one write. A turn begins [`TURN`] after the last one at the earliest, so other
//!    clients that change or delete the node cost a bounded number of requests.
//! 4. Two members of one session would not know whose a node is if the answers to both of their creates were lost. So only one of
//!    them creates nodes at a path, until it is removed.
//! 5. A node goes with its ZooKeeper session. After the end of the session nothing is deleted.

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use uuid::Uuid;
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, OneshotWatcher, SessionId, Stat};

use crate::driver::Reservation;
use crate::error::{Error, Result};
use crate::options::{Options, Parents, validate_data};
use crate::session::{Session, SessionState, fired};
use crate::telemetry::guarded;

/// The least time between two looks at the node that events or new data ask for.
pub(crate) const TURN: Duration = Duration::from_millis(200);

/// How long to wait after a refusal before the node is created again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// How often creates in a row may lose the connection, or find no parent, before they are taken for the cause.
const MAX_TRIES: u32 = 10;

/// How long after a removal a server may still apply a create whose connection was lost.
const SECOND_SEARCH: Duration = Duration::from_secs(1);

/// How often to look at the node without an event, which may never come.
const FALLBACK_POLL: Duration = Duration::from_secs(30);

/// The values of [`Node::mine`] in place of the number of a transaction. No transaction has them.
const NONE: i64 = 0;
const ANY: i64 = -1;

/// Whether the node is there.
#[derive(Clone, Debug)]
enum Standing {
    Absent,
    /// Another node is there: of this session, its data.
    Taken(SessionId, Arc<[u8]>),
    There {
        /// The ZooKeeper session that it belongs to.
        id: SessionId,
        /// The transaction that created it.
        czxid: i64,
        /// The number of its data.
        number: u64,
        /// The data that the servers refuse to write, and the reason.
        refused: Option<(u64, Error)>,
    },
    /// The servers refuse it.
    Failed(Error),
    /// The session is over.
    Ended(Error),
}

/// The data that the node is to have.
struct Data {
    /// Counts the changes.
    number: u64,
    bytes: Arc<[u8]>,
}

/// An ephemeral node that is created again in every ZooKeeper session, from [`Session::keep_node`].
///
/// Dropping it deletes the node in the background.
#[must_use = "dropping it deletes the node"]
#[doc(alias = "PersistentNode")]
#[doc(alias = "GroupMember")]
pub struct KeptNode {
    node: Arc<Node>,
    standing: watch::Receiver<Standing>,
    is_removed: bool,
    task: AbortHandle,
}

/// What the task that keeps the node and the removal share.
struct Node {
    session: Session,
    path: String,
    options: Options,
    data: watch::Sender<Data>,
    /// Whether it is that of a member of a group. Then another node of the session is no node of ours, and a change of the data
    /// fires watches on the children of the parent.
    is_member: bool,
    /// The transaction that created the node: [`NONE`] before a create is sent, and [`ANY`] until the node is seen.
    mine: AtomicI64,
    /// Whether this member is the one of its session that creates nodes at the path.
    has_name: AtomicBool,
    /// Whether a create has, or may yet have, an unknown outcome.
    in_doubt: AtomicBool,
    /// Whether a server has answered a create without and with parents. Then a lost connection has another cause.
    answered: [AtomicBool; 2],
    /// The room reserved for the watch and for the node. It is reserved once the session is connected, because its size depends on
    /// the chroot, which is not known before.
    room: OnceLock<(Option<Reservation>, Reservation)>,
}

impl Session {
    /// Keeps an ephemeral node at `path` for as long as the returned value lives. The node is created again after a deletion,
    /// and in each session that takes the place of an expired one. Curator calls this a `PersistentNode`.
    ///
    /// Missing ancestors are created according to the [options](crate::Options::with_parents). The node has the ACLs of the session's
    /// [lock options](Self::with_lock_options). A node of another client at `path` is left alone, and ours is created when that
    /// is gone. A node of your own last session is treated likewise: until the servers have ended that session, its node
    /// stands for the service. Data that another client writes to the node stays until the node is created again, or until
    /// [`set_data`](KeptNode::set_data).
    ///
    /// The runtime of the session keeps the node. While it is blocked, nothing is created again. After a change or a deletion
    /// the node is looked at once, and at most five times a second: other clients that go on changing or deleting it cost at most
    /// fifteen small requests a second.
    ///
    /// The node goes with its ZooKeeper session: after a [`close`](Self::close) or a [`drain`](Self::drain), with the last clone
    /// of its client.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path, or if `data` is longer than a node's data may be. If the session has
    /// too many nodes or watches, [`created`](KeptNode::created) returns [`Error::SessionFull`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(session: &zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// let member = session.keep_node("/billing/members/host-7", b"10.0.0.7:8080")?;
    /// member.created().await?;
    /// // The service runs.
    /// member.remove().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "PersistentNode")]
    pub fn keep_node(&self, path: &str, data: &[u8]) -> Result<KeptNode> {
        self.keep(path, data, false)
    }

    /// Keeps the node of a member of a group. A node that this very value has not created is another member's.
    ///
    /// A seam for `members`.
    pub(crate) fn keep_member(&self, path: &str, data: &[u8]) -> Result<KeptNode> {
        self.keep(path, data, true)
    }

    fn keep(&self, path: &str, data: &[u8], is_member: bool) -> Result<KeptNode> {
        let options = self.lock_options().clone();
        self.accepts(path, &options)?;
        validate_data("data", data)?;
        let node = Arc::new(Node {
            session: self.clone(),
            path: path.to_owned(),
            options,
            data: watch::Sender::new(Data { number: 0, bytes: data.into() }),
            is_member,
            mine: AtomicI64::new(NONE),
            has_name: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            answered: [AtomicBool::new(false), AtomicBool::new(false)],
            room: OnceLock::new(),
        });
        let (sender, standing) = watch::channel(Standing::Absent);
        let task = self.home().spawn(keep(node.clone(), sender)).abort_handle();
        Ok(KeptNode { node, standing, is_removed: false, task })
    }
}

impl KeptNode {
    /// The path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.node.path
    }

    /// Whether the node is there in the present ZooKeeper session, as far as is known. While there is no connection, it may
    /// be gone with the session, which is noticed later.
    #[must_use]
    pub fn is_created(&self) -> bool {
        self.seen().is_some()
    }

    /// The transaction that created the node, its `czxid`, if it [is there](Self::is_created). It is larger each time that the node
    /// is created again, so a service that compares it knows that its node was away.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.seen().map(|(czxid, _)| czxid.cast_unsigned())
    }

    /// The transaction that created the node in the present ZooKeeper session, and the number of its data, if it is there.
    fn seen(&self) -> Option<(i64, u64)> {
        let session = &self.node.session;
        let seen = match *self.standing.borrow() {
            Standing::There { id, czxid, number, .. } if id == session.id() => (czxid, number),
            _ => return None,
        };
        let is_alive = matches!(session.state(), SessionState::Connected(_) | SessionState::Suspended);
        is_alive.then_some(seen)
    }

    /// Waits until the node is there in the present ZooKeeper session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// The reason why the servers refuse the node, such as [`Error::NoAuth`]. It is tried again every second.
    /// [`Error::Closed`] or [`Error::SessionEnded`] if the session is over.
    pub async fn created(&self) -> Result<()> {
        self.there(0, false).await
    }

    /// As [`created`](Self::created), but another node at the path is an error.
    ///
    /// A seam for `members`.
    pub(crate) async fn created_if_free(&self) -> Result<()> {
        self.there(0, true).await
    }

    /// Changes the data of the node, also for all later ZooKeeper sessions, and waits until the node has it.
    ///
    /// If there is no connection, or another client has a node at the path, it waits as [`created`](Self::created) does.
    /// A change is written at once if the last one was 200 ms ago or longer, and of several changes within 200 ms the last alone
    /// may be written. Earlier calls return when a later change is written.
    ///
    /// # Cancel safety
    ///
    /// From the first poll on the data is remembered. Dropping the future later stops the waiting, and the data is still written.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `data` is longer than a node's data may be; the node keeps the data that it has. Otherwise as
    /// [`created`](Self::created): what the servers refuse is tried again every second, with this data.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(member: zookeeper_recipes::KeptNode) -> Result<(), zookeeper_recipes::Error> {
    /// member.set_data(b"10.0.0.7:8080 draining").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_data(&self, data: &[u8]) -> Result<()> {
        validate_data("data", data)?;
        let mut number = 0;
        self.node.data.send_modify(|last| {
            number = last.number + 1;
            *last = Data { number, bytes: data.into() };
        });
        self.there(number, false).await
    }

    /// Waits until the node is there with the data of this number, or a later one.
    async fn there(&self, number: u64, is_free: bool) -> Result<()> {
        let mut standing = self.standing.clone();
        loop {
            match &*standing.borrow_and_update() {
                Standing::Failed(error) | Standing::Ended(error) => return Err(error.clone()),
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
            // The runtime of the session is gone, and so the session.
            standing.changed().await.map_err(|_| self.node.session.error().unwrap_or(Error::Closed))?;
        }
    }

    /// Deletes the node, if it is there. If the answer to a create was lost, or has not come yet, it looks again a second
    /// later, because servers may apply a lost create late.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future goes on in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no server answered within one session timeout, or a second more after a lost answer. While the session
    /// is being [renewed](SessionState::Renewing), that is until its last one is certainly over. The node is then deleted in the
    /// background, as soon as a server answers. [`Error::Closed`] or [`Error::SessionEnded`] if the session is over: the node goes with
    /// its ZooKeeper session. If the servers refuse to delete it, their reason, such as [`Error::NoAuth`].
    pub async fn remove(mut self) -> Result<()> {
        let removal = self.begin_removal();
        let removed = async {
            match removal.await {
                Ok(removed) => removed,
                // The runtime has ended, and the session with it.
                Err(_) => remove(&self.node, self.standing.clone(), pending()).await.unwrap_or(Ok(())),
            }
        };
        let (session, is_in_doubt) = (&self.node.session, self.node.in_doubt.load(Ordering::Relaxed));
        let second = if is_in_doubt { SECOND_SEARCH } else { Duration::ZERO };
        session.within(session.timeout() + second, removed).await
    }

    /// Deletes the node in a task: the caller may drop the future, or keep it and not poll it. However long
    /// an outage lasts, the session may outlive it.
    fn begin_removal(&mut self) -> oneshot::Receiver<Result<()>> {
        let (mut report, removal) = oneshot::channel();
        self.task.abort();
        // Once only: a second look might find the node of another `KeptNode`.
        self.is_removed = true;
        let (node, standing) = (self.node.clone(), self.standing.clone());
        self.node.session.home().spawn(async move {
            let Some(removed) = remove(&node, standing, report.closed()).await else { return };
            // With the node its name is given back, which the caller may take again.
            let path = node.path.clone();
            drop(node);
            // Reported to the log if nobody waits. A node goes with its session.
            if let Err(Err(error)) = report.send(removed)
                && !is_over(&error)
            {
                warn_left(&path, &error);
            }
        });
        removal
    }
}

impl Drop for KeptNode {
    fn drop(&mut self) {
        if !self.is_removed {
            // If the runtime is gone, so is the session.
            drop(self.begin_removal());
        }
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

fn warn_left(path: &str, error: &Error) {
    guarded(
        || tracing::warn!(path, %error, "cannot delete a node that was kept; it stays until its session ends"),
    );
}

/// Keeps the node until the session is over. The node then goes with its ZooKeeper session.
async fn keep(node: Arc<Node>, standing: watch::Sender<Standing>) {
    let (mut turns, mut written) = (interval(TURN), None);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Err(error) = keep_until_refused(&node, &standing, &mut turns, &mut written).await;
        if is_over(&error) {
            standing.send_replace(Standing::Ended(error));
            return;
        }
        guarded(|| tracing::warn!(path = &*node.path, %error, "cannot keep a node"));
        standing.send_replace(Standing::Failed(error));
        unless_ended(&node.session, sleep(PAUSE)).await;
    }
}

fn is_over(error: &Error) -> bool {
    matches!(error, Error::Closed | Error::SessionEnded { .. })
}

/// `written` is the number of the data that was written last. If the node has other data then, another client has written it.
async fn keep_until_refused(
    node: &Node,
    standing: &watch::Sender<Standing>,
    turns: &mut Interval,
    written: &mut Option<u64>,
) -> Result<Infallible> {
    let path = &*node.path;
    let mut data = node.data.subscribe();
    let mut orphaned = 0;
    loop {
        unless_ended(&node.session, turns.tick()).await;
        let mut looked = node.look().await?;
        node.make_room()?;
        if let Err(ZkError::NoNode) = looked {
            if !node.takes_name() {
                // Its node comes soon, or is about to be deleted.
                standing.send_replace(Standing::Taken(node.session.id(), Arc::default()));
                unless_ended(&node.session, node.name_is_free()).await;
                continue;
            }
            standing.send_replace(Standing::Absent);
            let (number, bytes) = newest(&mut data);
            match node.create(&bytes).await? {
                Ok(()) => (orphaned, *written) = (0, Some(number)),
                Err(ZkError::NodeExists) => orphaned = 0,
                // Another client deletes what we create, or the chroot of the session is gone.
                Err(ZkError::NoNode) if orphaned == MAX_TRIES => {
                    let reason = format!(
                        "there is no parent for {path:?}, however often it is created; does the chroot of the session exist?"
                    );
                    return Err(Error::invalid("path", reason));
                }
                Err(ZkError::NoNode) => {
                    orphaned += 1;
                    continue;
                }
                Err(error) => return Err(Error::refused("create", path, error)),
            }
            looked = node.look().await?;
        }
        let look = match looked {
            Ok(look) => look,
            Err(ZkError::NoNode) => continue,
            Err(error) => return Err(Error::refused("watch", path, error)),
        };
        let mut until_next = FALLBACK_POLL;
        if node.is_ours(&look.stat, look.id) {
            let (number, bytes) = newest(&mut data);
            let mut refused = None;
            if *look.data == *bytes || *written == Some(number) {
                *written = Some(number);
            } else {
                match node.write(&bytes, look.stat.version).await? {
                    Ok(()) => *written = Some(number),
                    // Another client was faster, or it was done by an earlier attempt.
                    Err(ZkError::BadVersion | ZkError::NoNode) => continue,
                    Err(error) => {
                        refused = Some((number, Error::refused("write", path, error)));
                        until_next = PAUSE;
                    }
                }
            }
            let number = written.unwrap_or(0);
            standing.send_replace(Standing::There { id: look.id, czxid: look.stat.czxid, number, refused });
        } else {
            standing.send_replace(Standing::Taken(SessionId(look.stat.ephemeral_owner), look.data.into()));
        }
        tokio::select! {
            _ = timeout(until_next, fired(look.watch)) => {}
            _ = data.changed() => {}
            () = over(&node.session, look.id) => {
                standing.send_replace(Standing::Absent);
            }
        }
    }
}

/// The newest data, with its number. A change from now on wakes the task.
fn newest(data: &mut watch::Receiver<Data>) -> (u64, Arc<[u8]>) {
    let newest = data.borrow_and_update();
    (newest.number, newest.bytes.clone())
}

/// Whether another ZooKeeper session has taken the place of the one with this id, or is to take it.
fn is_replaced(session: &Session, id: SessionId, state: SessionState) -> bool {
    session.id() != id || matches!(state, SessionState::Renewing | SessionState::Refused)
}

/// Waits until the ZooKeeper session with this id is over, or the session is closed.
///
/// A seam for `members`.
pub(crate) async fn over(session: &Session, id: SessionId) {
    use SessionState::{Closing, Ended};
    let is_over = |state| is_replaced(session, id, state) || matches!(state, Closing | Ended);
    session.states().wait_for(is_over).await;
}

/// Waits until the ZooKeeper session with this id is replaced; not at all if there was none. Waits for ever if the
/// session is closed first.
async fn replaced(session: &Session, id: SessionId) {
    let is_over = |state| id.0 == 0 || is_replaced(session, id, state);
    if session.states().wait_for(is_over).await.is_none() {
        pending().await
    }
}

/// Waits for `pause`, or until the session is closed.
async fn unless_ended<T>(session: &Session, pause: impl Future<Output = T>) {
    let mut states = session.states();
    let is_ended = |state| matches!(state, SessionState::Closing | SessionState::Ended);
    tokio::select! {
        biased;
        _ = pause => {}
        _ = states.wait_for(is_ended) => {}
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if *self.has_name.get_mut() {
            self.session.names().send_if_modified(|names| names.remove(&self.path));
        }
    }
}

/// What is at the path.
struct Look {
    /// The session that looked.
    id: SessionId,
    data: Vec<u8>,
    stat: Stat,
    watch: OneshotWatcher,
}

impl Node {
    /// Reads what is at the path, and watches it. This leaves no watch on a node that does not exist, as `exists` would.
    async fn look(&self) -> Result<Result<Look, ZkError>> {
        let path = &*self.path;
        let look = self.session.request(Some(Duration::MAX), |client| async move {
            let (data, stat, watch) = client.get_and_watch_data(path).await?;
            Ok(Look { id: client.session_id(), data, stat, watch })
        });
        look.await
    }

    /// Reserves room in the session, until this is dropped.
    fn make_room(&self) -> Result<()> {
        if self.room.get().is_none() {
            let (core, mut watch) = (self.session.core(), None);
            core.reserve_watch(&mut watch, &self.path, &self.path)?;
            let node = core.reserve_node(&self.path)?;
            // Only the task that keeps the node comes here.
            _ = self.room.set((watch, node));
        }
        Ok(())
    }

    /// Takes the name of the path within this session, unless another member has it. Returns whether this member has it.
    fn takes_name(&self) -> bool {
        if self.is_member && !self.has_name.load(Ordering::Relaxed) {
            let is_taken = self.session.names().send_if_modified(|names| names.insert(self.path.clone()));
            self.has_name.store(is_taken, Ordering::Relaxed);
            return is_taken;
        }
        true
    }

    /// Waits until no member of this session creates nodes at the path.
    async fn name_is_free(&self) {
        // The sender is in the session.
        _ = self.session.names().subscribe().wait_for(|names| !names.contains(&self.path)).await;
    }

    /// Whether this node of a session is ours.
    fn is_ours(&self, stat: &Stat, id: SessionId) -> bool {
        if stat.ephemeral_owner != id.0 || !self.is_member {
            return stat.ephemeral_owner == id.0;
        }
        // It is the first node that is seen since a create was sent, or the same node again.
        let seen = self.mine.compare_exchange(ANY, stat.czxid, Ordering::Relaxed, Ordering::Relaxed);
        seen.is_ok() || seen == Err(stat.czxid)
    }

    /// Writes the data, if the node has this version.
    async fn write(&self, data: &[u8], version: i32) -> Result<Result<(), ZkError>> {
        let path = &*self.path;
        // Beside the node, which has no children.
        let news = &self.is_member.then(|| format!("{path}.{}", Uuid::new_v4().simple()));
        let write = self.session.request(Some(Duration::MAX), |client| async move {
            let Some(news) = news else { return client.set_data(path, data, Some(version)).await.map(drop) };
            // It fires watches on the children of the parent, and no listing shows the child.
            let mut writer = client.new_multi_writer();
            writer.add_set_data(path, data, Some(version))?;
            writer.add_create(news, &[], &CreateMode::Ephemeral.with_acls(self.options.acls()))?;
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

    /// Creates the node, and before it what is missing above it.
    async fn create(&self, data: &[u8]) -> Result<Result<(), ZkError>> {
        let created = self.create_below(&[], data).await?;
        if created != Err(ZkError::NoNode) {
            return Ok(created);
        }
        let path = self.path.as_str();
        let ancestors: Vec<_> = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]).collect();
        for from in self.missing(&ancestors).await? {
            if let Some(ancestor) = ancestors.get(from)
                && self.options.parents() == Parents::MustExist
            {
                let reason =
                    format!("{ancestor:?} does not exist, and the options leave it to you; create it first");
                return Err(Error::invalid("path", reason));
            }
            let created = self.create_below(&ancestors[from..], data).await?;
            if created != Err(ZkError::NoNode) {
                return Ok(created);
            }
        }
        Ok(Err(ZkError::NoNode))
    }

    /// From which of these ancestors on they are missing. There are several guesses if some may not be looked at: newer servers
    /// ask for READ on the parent (ZOOKEEPER-2590). The one that creates the fewest is first.
    async fn missing(&self, ancestors: &[&str]) -> Result<impl Iterator<Item = usize> + use<>> {
        let look = |index: usize| {
            let request = move |client: Client| async move { client.check_stat(ancestors[index]).await };
            self.session.request(Some(Duration::MAX), request)
        };
        let (mut there, mut missing) = (0, ancestors.len());
        for (index, found) in join_all((0..ancestors.len()).map(look)).await.into_iter().enumerate() {
            match found? {
                Ok(Some(_)) => there = index + 1,
                Ok(None) => missing = missing.min(index),
                Err(ZkError::NoAuth) => {}
                Err(error) => return Err(Error::refused("look at", ancestors[index], error)),
            }
        }
        // It has changed meanwhile if one is there below one that is missing.
        Ok((there.min(missing)..=missing).rev())
    }

    /// Creates the node and these ancestors, all or nothing. `NoNode` if an ancestor is missing, or there by now.
    async fn create_below(&self, ancestors: &[&str], data: &[u8]) -> Result<Result<(), ZkError>> {
        let answered = &self.answered[usize::from(!ancestors.is_empty())];
        let mode = match self.options.parents() {
            Parents::Persistent => CreateMode::Persistent,
            Parents::Container | Parents::MustExist => CreateMode::Container,
        };
        let parent = &mode.with_acls(self.options.parent_acls());
        let own = &CreateMode::Ephemeral.with_acls(self.options.acls());
        let path = self.path.as_str();
        // Until it is answered: this may be dropped before.
        let was_in_doubt = self.in_doubt.swap(true, Ordering::Relaxed);
        self.mine.store(ANY, Ordering::Relaxed);
        let sent = &AtomicU32::new(0);
        let created = self.session.request(Some(Duration::MAX), |client| async move {
            if sent.fetch_add(1, Ordering::Relaxed) > MAX_TRIES && !answered.load(Ordering::Relaxed) {
                // It is given up for now, as a refusal.
                return Ok(Err(ZkError::ConnectionLoss));
            }
            if ancestors.is_empty() {
                return client.create(path, data, own).await.map(|_| Ok(()));
            }
            let mut writer = client.new_multi_writer();
            ancestors.iter().try_for_each(|ancestor| writer.add_create(ancestor, &[], parent))?;
            writer.add_create(path, data, own)?;
            match writer.commit().await {
                Ok(_) => Ok(Ok(())),
                Err(MultiWriteError::OperationFailed { index, source: ZkError::NodeExists })
                    if index < ancestors.len() =>
                {
                    Err(ZkError::NoNode)
                }
                Err(
                    MultiWriteError::OperationFailed { source, .. } | MultiWriteError::RequestFailed { source },
                ) => Err(source),
            }
        });
        let created = created.await?;
        if sent.load(Ordering::Relaxed) == 1 && !matches!(created, Err(ZkError::UnexpectedErrorCode(_))) {
            self.in_doubt.store(was_in_doubt, Ordering::Relaxed);
            if created.is_err() && !was_in_doubt {
                self.mine.store(NONE, Ordering::Relaxed);
            }
        }
        let is_lost = matches!(created, Ok(Err(_)));
        answered.fetch_or(!is_lost, Ordering::Relaxed);
        Ok(created.and_then(|created| created))
    }
}

/// Deletes the node, if it is one of this session, once the task that keeps it has come to its end.
///
/// The servers may never answer. So after `nobody_waits` it returns `None` if the session is to be replaced: this task would keep a
/// session that everybody has dropped.
async fn remove(
    node: &Node,
    mut standing: watch::Receiver<Standing>,
    nobody_waits: impl Future<Output = ()>,
) -> Option<Result<()>> {
    // The task may send a create until it has ended.
    while standing.changed().await.is_ok() {}
    if let Standing::Ended(error) = &*standing.borrow() {
        return Some(Err(error.clone()));
    }
    let id = node.session.id();
    let is_given_up = async {
        nobody_waits.await;
        replaced(&node.session, id).await;
    };
    tokio::select! {
        deleted = delete(node, id) => Some(deleted),
        () = is_given_up => None,
    }
}

/// Deletes the node, if it is one of this session. If a create had an unknown outcome, that is done again a second later, as for
/// the nodes of locks.
async fn delete(node: &Node, id: SessionId) -> Result<()> {
    delete_if_ours(node, id).await?;
    if node.in_doubt.load(Ordering::Relaxed) {
        sleep(SECOND_SEARCH).await;
        delete_if_ours(node, id).await?;
    }
    Ok(())
}

/// Deletes the node, if it is one of this ZooKeeper session. Without its session there is no node.
async fn delete_if_ours(node: &Node, id: SessionId) -> Result<()> {
    if id.0 == 0 {
        return Ok(());
    }
    loop {
        let deleted =
            node.session.request(Some(Duration::MAX), |client| async move { delete_in(&client, node, id).await });
        match deleted.await? {
            Ok(()) | Err(ZkError::NoNode) => return Ok(()),
            Err(ZkError::Throttled) => unless_ended(&node.session, sleep(PAUSE)).await,
            Err(error) => return Err(Error::refused("delete", &node.path, error)),
        }
    }
}

/// Deletes the node with this client, if a look behind a barrier shows that it is one of this ZooKeeper session.
async fn delete_in(client: &Client, node: &Node, id: SessionId) -> Result<(), ZkError> {
    let path = &*node.path;
    if client.session_id() != id {
        return Ok(());
    }
    let mut barrier = client.new_multi_writer();
    barrier.add_check_version(path, -1)?;
    // Sent in one poll, the barrier first. A refusal of it is an answer of a quorum, too.
    let (barrier, stat) = join(barrier.commit(), client.check_stat(path)).await;
    match barrier {
        Err(MultiWriteError::RequestFailed { source }) if source != ZkError::NoAuth => return Err(source),
        _ => {}
    }
    match stat? {
        Some(stat) if node.is_ours(&stat, id) => client.delete(path, None).await,
        _ => Ok(()),
    }
}
