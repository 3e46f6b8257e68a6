//! Owns [`KeptNode`]: an ephemeral node that is there for as long as the service is, over all its sessions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zookeeper_client::SessionId;

use crate::error::{Error, Result, ZkError};
use crate::options::Parents;
use crate::path::LockPath;
use crate::session::operations::{Draft, leaves_doubt};
use crate::session::request::{Failure, Interrupt};
use crate::session::search::SECOND_LOOK;
use crate::session::server_session::{Phase, ServerSession};
use crate::session::{Session, need_runtime};

/// How long to wait after a refusal before the node is created again.
const PAUSE: Duration = Duration::from_secs(1);

/// How often creates in a row may lose the connection before they are taken for the cause.
const MAX_LOST: u32 = 10;

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
    session: Session,
    path: LockPath,
    standing: watch::Receiver<Standing>,
    /// Whether a create has, or may yet have, an unknown outcome.
    in_doubt: Arc<AtomicBool>,
    is_removed: bool,
    task: JoinHandle<()>,
}

impl Session {
    /// Keeps an ephemeral node at `path` for as long as the returned value lives: it is created again when somebody has deleted
    /// it, and in each session that takes the place of one that has expired. Curator calls this a `PersistentNode`.
    ///
    /// Missing ancestors are created according to the [options](crate::Options::with_parents). The node has the ACLs of the session's
    /// [lock options](Self::with_lock_options). A node of somebody else at `path` is left alone, and ours is created when that
    /// is gone. So it is with one of our own last session: until the servers have ended that, it stands for the service.
    ///
    /// The runtime on which this is called keeps the node; while it is blocked, nothing is created again.
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
        let path = LockPath::new(path)?;
        if !self.has_chroot() {
            path.refuse_the_servers()?;
        }
        need_runtime("keep the node on a tokio runtime")?;
        let options = self.lock_options().clone().with_identifier(data);
        options.validate()?;
        let draft = Arc::new(Draft { path: path.as_str().to_owned(), is_sequential: false, options });
        let (sender, standing) = watch::channel(Standing::Absent);
        let in_doubt = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(keep(self.clone(), path.clone(), draft, sender, in_doubt.clone()));
        Ok(KeptNode { session: self.clone(), path, standing, in_doubt, is_removed: false, task })
    }
}

impl KeptNode {
    /// Where the node is.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Whether the node is there in the present ZooKeeper session, as far as is known. While there is no connection, it may
    /// be gone with the session, which is noticed later.
    #[must_use]
    pub fn is_created(&self) -> bool {
        let open = self.session.present().filter(|zk| zk.phase() == Phase::Open);
        matches!(*self.standing.borrow(), Standing::There(id) if open.is_some_and(|zk| zk.id() == id))
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
        let found = standing.wait_for(|standing| !matches!(standing, Standing::Absent)).await;
        match found.as_deref() {
            Ok(Standing::Failed(error)) => Err(error.clone()),
            Ok(Standing::There(_) | Standing::Absent) => Ok(()),
            Err(_) => Err(Error::Closed),
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
        let session = self.session.clone();
        let removed = session.attempt(|zk| self.removal(zk).boxed());
        let removed = match session.within_timeout(removed).await {
            // Without its session there is no node.
            Err(Error::Closed | Error::SessionEnded { .. }) => Ok(()),
            removed => removed,
        };
        // The drop need not look again: it might find the node of another `KeptNode`.
        self.is_removed = removed.is_ok();
        removed
    }

    fn removal(&self, zk: Arc<ServerSession>) -> impl Future<Output = Result<(), Interrupt>> + Send + use<> {
        remove_if_ours(zk, self.path.clone(), self.standing.clone(), self.in_doubt.clone())
    }
}

impl Drop for KeptNode {
    fn drop(&mut self) {
        self.task.abort();
        if self.is_removed {
            return;
        }
        if let Some(zk) = self.session.present() {
            let path = self.path.clone();
            let removed = self.removal(zk.clone()).map(move |removed| {
                if let Err(Interrupt::Failed(error)) = removed {
                    let path = path.as_str();
                    tracing::warn!(path, %error, "cannot delete a node that was kept; it stays until its session ends");
                }
            });
            zk.background(removed.boxed());
        }
    }
}

impl fmt::Debug for KeptNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptNode")
            .field("path", &self.path)
            .field("standing", &*self.standing.borrow())
            .finish_non_exhaustive()
    }
}

/// Keeps the node until the session is over.
async fn keep(
    session: Session,
    path: LockPath,
    draft: Arc<Draft>,
    standing: watch::Sender<Standing>,
    in_doubt: Arc<AtomicBool>,
) {
    loop {
        let kept = session.attempt(|zk| keep_in(zk, &path, &draft, &standing, &in_doubt).boxed()).await;
        let Err(error) = kept;
        let is_over = matches!(error, Error::Closed | Error::SessionEnded { .. });
        tracing::warn!(path = path.as_str(), %error, "cannot keep a node");
        standing.send_replace(Standing::Failed(error));
        if is_over {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reports the node as absent as soon as it is kept no more in a ZooKeeper session.
struct Report<'a>(&'a watch::Sender<Standing>);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        self.0.send_replace(Standing::Absent);
    }
}

/// Keeps the node in one ZooKeeper session.
async fn keep_in(
    zk: Arc<ServerSession>,
    path: &LockPath,
    draft: &Arc<Draft>,
    standing: &watch::Sender<Standing>,
    in_doubt: &AtomicBool,
) -> Result<std::convert::Infallible, Interrupt> {
    standing.send_replace(Standing::Absent);
    let standing = Report(standing);
    let mut room = None;
    zk.reserve_watch(&mut room, path.as_str().len())?;
    let (mut guesses, mut lost, mut orphaned) = (vec![Vec::new()], 0, 0);
    loop {
        zk.connected().await?;
        // Until it is answered: this may be dropped before.
        let was_in_doubt = in_doubt.swap(true, Ordering::Relaxed);
        let created = zk.create(guesses.clone(), vec![draft.clone()]).await;
        if !leaves_doubt(&created) {
            in_doubt.store(was_in_doubt, Ordering::Relaxed);
        }
        let with_parents = guesses.iter().any(|missing| !missing.is_empty());
        if matches!(created, Ok(_) | Err(Failure::Refused(_))) {
            zk.has_answered_create(with_parents);
        }
        let refusal = match created {
            Ok(Ok(_)) => None,
            // The first that had a parent is the one that created what is missing, and no more.
            Ok(Err(refusals)) => {
                let found_parent = refusals.iter().find(|refusal| refusal.error != ZkError::NoNode);
                Some(found_parent.map_or(ZkError::NoNode, |refusal| refusal.error.clone()))
            }
            Err(Failure::Refused(error)) => Some(error),
            Err(Failure::Unknown) if lost < MAX_LOST || zk.knows_create(with_parents) => {
                lost += 1;
                zk.reconnected(lost).await?;
                continue;
            }
            Err(Failure::Unknown) => Some(ZkError::ConnectionLoss),
            Err(Failure::SessionOver) => return Err(Interrupt::SessionOver),
        };
        lost = 0;
        match refusal {
            None | Some(ZkError::NodeExists) => orphaned = 0,
            // Somebody deletes what we create, or the chroot of the session is gone.
            Some(ZkError::NoNode) if orphaned == MAX_LOST => {
                let reason = format!(
                    "there is no parent for {:?}, however often it is created; does the chroot of the session exist?",
                    path.as_str()
                );
                return Err(Error::invalid("path", reason).into());
            }
            Some(ZkError::NoNode) => {
                orphaned += 1;
                guesses = missing_ancestors(&zk, path).await?;
                let missing = guesses.iter().find_map(|missing| missing.first());
                if let Some(ancestor) = missing.filter(|_| draft.options.parents() == Parents::MustExist) {
                    let reason =
                        format!("{ancestor:?} does not exist, and the options leave it to you; create it first");
                    return Err(Error::invalid("path", reason).into());
                }
                continue;
            }
            Some(error) => return Err(Error::refused("create", path.as_str(), error).into()),
        }
        guesses = vec![Vec::new()];
        match zk.retry(|| zk.watch_data(path.as_str())).await? {
            Ok((_, stat, watch)) => {
                let is_ours = stat.ephemeral_owner == zk.id().0;
                standing.0.send_replace(if is_ours { Standing::There(zk.id()) } else { Standing::Absent });
                tokio::select! {
                    fired = watch.fired() => drop(fired?),
                    // An event may never come.
                    () = zk.slow_look() => {}
                }
            }
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(Error::refused("watch", path.as_str(), error).into()),
        }
    }
}

/// The ancestors of a path that do not exist, each from the top. There are several guesses if some may not be looked at: newer
/// servers ask for READ on the parent (ZOOKEEPER-2590).
async fn missing_ancestors(zk: &ServerSession, path: &LockPath) -> Result<Vec<Vec<String>>, Interrupt> {
    let ancestors: Vec<_> =
        path.lineage().filter(|ancestor| *ancestor != path.as_str()).map(str::to_owned).collect();
    let found = join_all(ancestors.iter().map(|ancestor| zk.retry(|| zk.stat(ancestor)))).await;
    let (mut there, mut missing) = (0, ancestors.len());
    for (index, found) in found.into_iter().enumerate() {
        match found? {
            Ok(Some(_)) => there = index + 1,
            Ok(None) => missing = missing.min(index),
            Err(ZkError::NoAuth) => {}
            Err(error) => return Err(Error::refused("look at", &ancestors[index], error).into()),
        }
    }
    // It has changed meanwhile if one is there below one that is missing.
    Ok((there.min(missing)..=missing).rev().map(|from| ancestors[from..].to_vec()).collect())
}

/// Deletes the node, if it is one of this session, once the task that keeps it has come to its end. If a create had an unknown
/// outcome, that is done again a second later, as for the nodes of locks; see `search`.
async fn remove_if_ours(
    zk: Arc<ServerSession>,
    path: LockPath,
    mut standing: watch::Receiver<Standing>,
    in_doubt: Arc<AtomicBool>,
) -> Result<(), Interrupt> {
    // Until it is polled no more, it may send a create.
    while standing.changed().await.is_ok() {}
    delete_if_ours(&zk, path.as_str()).await?;
    if in_doubt.load(Ordering::Relaxed) {
        tokio::time::sleep(SECOND_LOOK).await;
        delete_if_ours(&zk, path.as_str()).await?;
    }
    Ok(())
}

/// Deletes the node, if a look behind a barrier shows that it is one of this session.
async fn delete_if_ours(zk: &ServerSession, path: &str) -> Result<(), Interrupt> {
    loop {
        let looked = zk.retry(|| {
            // Sent in one poll, the barrier first.
            join(zk.check(vec![path.to_owned()]), zk.stat(path)).map(|(barrier, stat)| match barrier {
                Ok(_) | Err(Failure::Refused(_)) => stat,
                Err(failure) => Err(failure),
            })
        });
        match looked.await? {
            Ok(Some(stat)) if stat.ephemeral_owner == zk.id().0 => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Error::refused("look at", path, error).into()),
        }
        match zk.delete(path, None).await {
            Err(Failure::Unknown) => {}
            Ok(()) | Err(Failure::Refused(ZkError::NoNode)) => return Ok(()),
            Err(Failure::SessionOver) => return Err(Interrupt::SessionOver),
            Err(Failure::Refused(error)) => return Err(Error::refused("delete", path, error).into()),
        }
    }
}
