//! Owns [`KeptNode`]: an ephemeral node that is there for as long as the service is, over all its sessions.
//!
//! 1. What is at the path is judged by the owner of the node, and never by the answer to a create: that may be lost.
//! 2. A create is sent by one task only. A removal begins once that task is gone.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriteError, SessionId};

use crate::error::{Error, Result};
use crate::options::{Options, Parents};
use crate::session::{Session, SessionState};

/// How long to wait after a refusal before the node is created again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often creates in a row may lose the connection, or find no parent, before they are taken for the cause.
const MAX_TRIES: u32 = 10;

/// How long after a removal a server may still apply a create whose connection was lost.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// How often to look at the node without an event, which may never come.
const SLOW_LOOK: Duration = Duration::from_secs(30);

/// Whether the node is there.
#[derive(Clone, Debug)]
enum Standing {
    Absent,
    /// Created by this ZooKeeper session.
    There(SessionId),
    /// The servers refuse it, or the session is over.
    Failed(Error),
}

/// An ephemeral node that is created again in every ZooKeeper session, from [`Session::keep_node`].
///
/// Dropping it deletes the node in the background.
#[must_use = "dropping it deletes the node"]
pub struct KeptNode {
    node: Arc<Node>,
    standing: watch::Receiver<Standing>,
    is_removed: bool,
    task: AbortHandle,
    runtime: Handle,
}

/// What the task that keeps the node and the removal share.
struct Node {
    session: Session,
    path: String,
    /// With the data as the identifier.
    options: Options,
    /// Whether a create has, or may yet have, an unknown outcome.
    in_doubt: AtomicBool,
    /// Whether a server has answered a create without and with parents. Then a lost connection has another cause.
    answered: [AtomicBool; 2],
}

impl Session {
    /// Keeps an ephemeral node at `path` for as long as the returned value lives. The node is created again after a deletion,
    /// and in each session that takes the place of an expired one. Curator calls this a `PersistentNode`.
    ///
    /// Missing ancestors are created according to the [options](crate::Options::with_parents). The node has the ACLs of the session's
    /// [lock options](Self::with_lock_options). A node of another client at `path` is left alone, and ours is created when that
    /// is gone. A node of your own last session is treated likewise: until the servers have ended that session, its node
    /// stands for the service.
    ///
    /// The runtime on which this is called keeps the node. While it is blocked, nothing is created again.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if `path` cannot be a lock path, or outside a tokio runtime.
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
    pub fn keep_node(&self, path: &str, data: &[u8]) -> Result<KeptNode> {
        let options = self.lock_options().clone().with_identifier(data);
        self.accepts(path, &options)?;
        let Ok(runtime) = Handle::try_current() else {
            return Err(Error::invalid("runtime", "there is none; keep the node on a tokio runtime"));
        };
        // Panics here, without timers, and not in the background.
        drop(tokio::time::sleep(Duration::ZERO));
        let node = Arc::new(Node {
            session: self.clone(),
            path: path.to_owned(),
            options,
            in_doubt: AtomicBool::new(false),
            answered: [AtomicBool::new(false), AtomicBool::new(false)],
        });
        let (sender, standing) = watch::channel(Standing::Absent);
        let task = runtime.spawn(keep(node.clone(), sender)).abort_handle();
        Ok(KeptNode { node, standing, is_removed: false, task, runtime })
    }
}

impl KeptNode {
    /// Where the node is.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.node.path
    }

    /// Whether the node is there in the present ZooKeeper session, as far as is known. While there is no connection, it may
    /// be gone with the session, which is noticed later.
    #[must_use]
    pub fn is_created(&self) -> bool {
        let session = &self.node.session;
        let is_there = matches!(*self.standing.borrow(), Standing::There(id) if id == session.id());
        is_there && matches!(session.state(), SessionState::Connected(_) | SessionState::Suspended)
    }

    /// Waits until the node is there in the present ZooKeeper session.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Why the servers refuse the node, such as [`Error::NoAuth`]; it is tried again every second. [`Error::Closed`] or
    /// [`Error::SessionEnded`] if the session is over.
    pub async fn created(&self) -> Result<()> {
        let mut standing = self.standing.clone();
        loop {
            if let Standing::Failed(error) = &*standing.borrow_and_update() {
                return Err(error.clone());
            }
            if self.is_created() {
                return Ok(());
            }
            standing.changed().await.map_err(|_| Error::Closed)?;
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
    /// [`Error::Unavailable`] if no server answered within one session timeout, and why the servers refuse to delete it, such
    /// as [`Error::NoAuth`]; the node then goes with the session.
    pub async fn remove(mut self) -> Result<()> {
        self.task.abort();
        let removed = remove(self.node.clone(), self.standing.clone()).await;
        // The drop need not look again: it might find the node of another `KeptNode`.
        self.is_removed = removed.is_ok();
        removed
    }
}

impl Drop for KeptNode {
    fn drop(&mut self) {
        self.task.abort();
        if self.is_removed {
            return;
        }
        let node = self.node.clone();
        let removed = remove(node.clone(), self.standing.clone()).map(move |removed| {
            if let Err(error) = removed {
                let path = &*node.path;
                tracing::warn!(path, %error, "cannot delete a node that was kept; it stays until its session ends");
            }
        });
        self.runtime.spawn(removed);
    }
}

impl fmt::Debug for KeptNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptNode")
            .field("path", &self.node.path)
            .field("standing", &*self.standing.borrow())
            .finish_non_exhaustive()
    }
}

/// Keeps the node until the session is over.
async fn keep(node: Arc<Node>, standing: watch::Sender<Standing>) {
    loop {
        let Err(error) = keep_until_refused(&node, &standing).await;
        let is_over = matches!(error, Error::Closed | Error::SessionEnded { .. });
        tracing::warn!(path = &*node.path, %error, "cannot keep a node");
        standing.send_replace(Standing::Failed(error));
        if is_over {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn keep_until_refused(node: &Node, standing: &watch::Sender<Standing>) -> Result<Infallible> {
    let path = &*node.path;
    standing.send_replace(Standing::Absent);
    let mut orphaned = 0;
    loop {
        match node.create().await? {
            Ok(()) | Err(ZkError::NodeExists) => orphaned = 0,
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
        let watched = node.session.request(Some(Duration::MAX), |client| async move {
            // It leaves no watch on a node that does not exist, as `exists` would.
            let (_, stat, watch) = client.get_and_watch_data(path).await?;
            Ok((client.session_id(), stat.ephemeral_owner, watch))
        });
        match watched.await? {
            Ok((id, owner, watch)) => {
                standing.send_replace(if owner == id.0 { Standing::There(id) } else { Standing::Absent });
                tokio::select! {
                    _ = tokio::time::timeout(SLOW_LOOK, watch.changed()) => {}
                    () = over(&node.session, id) => {
                        standing.send_replace(Standing::Absent);
                    }
                }
            }
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(Error::refused("watch", path, error)),
        }
    }
}

/// Waits until the ZooKeeper session with this id is over.
async fn over(session: &Session, id: SessionId) {
    use SessionState::{Ended, Refused, Renewing};
    let is_over = |state| session.id() != id || matches!(state, Renewing | Refused | Ended);
    session.states().wait_for(is_over).await;
}

impl Node {
    /// Creates the node, and before it what is missing above it.
    async fn create(&self) -> Result<Result<(), ZkError>> {
        let created = self.create_below(&[]).await?;
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
            let created = self.create_below(&ancestors[from..]).await?;
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
    async fn create_below(&self, ancestors: &[&str]) -> Result<Result<(), ZkError>> {
        let answered = &self.answered[usize::from(!ancestors.is_empty())];
        let mode = match self.options.parents() {
            Parents::Persistent => CreateMode::Persistent,
            Parents::Container | Parents::MustExist => CreateMode::Container,
        };
        let parent = &mode.with_acls(self.options.parent_acls());
        let own = &CreateMode::Ephemeral.with_acls(self.options.acls());
        let (path, data) = (self.path.as_str(), self.options.identifier());
        // Until it is answered: this may be dropped before.
        let was_in_doubt = self.in_doubt.swap(true, Ordering::Relaxed);
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
        }
        let is_lost = matches!(created, Ok(Err(_)));
        answered.fetch_or(!is_lost, Ordering::Relaxed);
        Ok(created.and_then(|created| created))
    }
}

/// Deletes the node, if it is one of this session, once the task that keeps it has come to its end. If a create had an unknown
/// outcome, that is done again a second later, as for the nodes of locks.
async fn remove(node: Arc<Node>, mut standing: watch::Receiver<Standing>) -> Result<()> {
    // Until it is polled no more, it may send a create.
    while standing.changed().await.is_ok() {}
    let id = node.session.id();
    delete_if_ours(&node, id).await?;
    if node.in_doubt.load(Ordering::Relaxed) {
        tokio::time::sleep(SECOND_LOOK).await;
        delete_if_ours(&node, id).await?;
    }
    Ok(())
}

/// Deletes the node, if a look behind a barrier shows that it is one of this ZooKeeper session. Without its session there is no node.
async fn delete_if_ours(node: &Node, id: SessionId) -> Result<()> {
    let path = &*node.path;
    let deleted = node.session.request(None, |client| async move {
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
            Some(stat) if stat.ephemeral_owner == id.0 => client.delete(path, None).await,
            _ => Ok(()),
        }
    });
    match deleted.await {
        Ok(Ok(()) | Err(ZkError::NoNode)) | Err(Error::Closed | Error::SessionEnded { .. }) => Ok(()),
        Ok(Err(error)) => Err(Error::refused("delete", path, error)),
        Err(error) => Err(error),
    }
}
