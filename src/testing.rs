//! Owns [`LocalSession`]: locks within the process, for the tests of services that are written against the traits.

mod hold;
mod recipes;
mod servers;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::distributed_lock::{
    DistributedElection, DistributedLock, DistributedReentrantLock, DistributedRwLock, DistributedSemaphore,
    LockProvider,
};
use crate::election::CurrentTerm;
use crate::error::{Error, Loss, Result};
use crate::owner::Owner;
use crate::path::LockPath;
use crate::queue::Kind;
use crate::testing::hold::LocalHold;
use crate::testing::recipes::{LocalElection, LocalLock, LocalReentrantLock, LocalRwLock, LocalSemaphore};
use crate::testing::servers::{Servers, Want, lock_path};

/// A session with servers of its own within the process: a [`LockProvider`] for tests, with
/// a double of every recipe that has a trait: mutex, re-entrant mutex, read-write lock, semaphore, multi-lock and election.
/// [`Job`](crate::Job) and `KeptNode` have none.
///
/// Locks of one path compete, also those of [other sessions](Self::another) with the same servers. They are granted as
/// the real ones are: in order, with growing tokens. What can go wrong with the real ones can be made to go wrong here. Clones
/// are handles of one session.
///
/// Calls with a time limit need a tokio timer. A disconnected session expires only by [`expire`](Self::expire). Until
/// then, or until [`reconnect`](Self::reconnect), the release of its locks waits.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::sync::Arc;
///
/// use zookeeper_recipes::testing::LocalSession;
/// use zookeeper_recipes::{HoldState, LockProvider, Loss};
///
/// let session = LocalSession::new();
/// let locks: Arc<dyn LockProvider> = Arc::new(session.clone()); // for the service under test
/// let guard = locks.lock_at("/orders/17")?.lock().await?;
///
/// let other_process = session.another();
/// assert!(other_process.lock_at("/orders/17")?.try_lock().await?.is_none());
///
/// session.lose("/orders/17", Loss::Deleted);
/// assert_eq!(guard.state(), HoldState::Lost(Loss::Deleted));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LocalSession {
    local: Arc<Local>,
    identifier: Arc<[u8]>,
}

struct Local {
    servers: Arc<Servers>,
    id: i64,
    /// The holds of re-entrant locks, by owner and path. The lock is for the owner's calls, one after the other.
    owned: Mutex<HashMap<(usize, LockPath), Arc<OwnedHold>>>,
}

type OwnedHold = tokio::sync::Mutex<Weak<LocalHold>>;

impl LocalSession {
    /// Makes a session that is connected to servers of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Arc::default())
    }

    /// Makes another session with the same servers, as another process would have.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::with(self.local.servers.clone())
    }

    /// Sets what contenders that are made from this value call themselves, as
    /// [`Options::with_identifier`](crate::Options::with_identifier) does. The default is `local-1`, `local-2` and so on.
    #[must_use]
    pub fn with_identifier(mut self, identifier: impl AsRef<[u8]>) -> Self {
        self.identifier = Arc::from(identifier.as_ref());
        self
    }

    /// Cuts the connection. Holds of this session are [`Suspended`](crate::HoldState::Suspended). Calls that wait go on
    /// waiting. The others return [`Error::Unavailable`]: `try_lock` at once, and calls with a limit after the limit.
    pub fn disconnect(&self) {
        self.local.servers.set_connected(self.local.id, false);
    }

    /// Connects again: the same session, with its holds and places in queues.
    pub fn reconnect(&self) {
        self.local.servers.set_connected(self.local.id, true);
    }

    /// Ends the ZooKeeper session, and renews it: all holds are lost with [`Loss::Expired`], and waiters queue again at the
    /// tail.
    pub fn expire(&self) {
        self.local.servers.end(Loss::Expired, |node| node.session == self.local.id);
    }

    /// Takes the lock, the permits or the leadership at `path` from its holders in all sessions, for this reason.
    pub fn lose(&self, path: &str, loss: Loss) {
        self.local.servers.end(loss, |node| node.is_held() && node.is_at(path));
    }

    /// Closes the session: all holds are lost with [`Loss::Closed`], and calls return [`Error::Closed`].
    pub fn close(&self) {
        self.local.servers.close(self.local.id);
        self.local.servers.end(Loss::Closed, |node| node.session == self.local.id);
    }

    fn with(servers: Arc<Servers>) -> Self {
        let id = servers.open();
        let identifier = format!("local-{id}").into_bytes().into();
        Self { local: Arc::new(Local { servers, id, owned: Mutex::default() }), identifier }
    }

    fn lock_of(&self, wants: Vec<Want>) -> LocalLock {
        LocalLock { session: self.clone(), wants }
    }

    fn owned(&self, owner: &Owner, path: &LockPath) -> Arc<OwnedHold> {
        let mut owned = self.local.owned.lock().unwrap_or_else(PoisonError::into_inner);
        owned.entry((owner.id(), path.clone())).or_default().clone()
    }
}

impl Default for LocalSession {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSession").field("id", &self.local.id).finish_non_exhaustive()
    }
}

impl LockProvider for LocalSession {
    fn lock_at(&self, path: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(Arc::new(self.lock_of(vec![Want::one(path, Kind::Lock)?])))
    }

    fn rw_lock_at(&self, path: &str) -> Result<Arc<dyn DistributedRwLock>> {
        let [read, write] = [Kind::Read, Kind::Write].map(|kind| Want::one(path, kind));
        Ok(Arc::new(LocalRwLock { read: self.lock_of(vec![read?]), write: self.lock_of(vec![write?]) }))
    }

    fn semaphore_at(&self, path: &str, permits: u32) -> Result<Arc<dyn DistributedSemaphore>> {
        if permits == 0 {
            return Err(Error::invalid("permits", "with none, nobody could ever acquire one; give at least one"));
        }
        Ok(Arc::new(LocalSemaphore { session: self.clone(), path: lock_path(path)?, permits }))
    }

    fn reentrant_lock_at(&self, path: &str) -> Result<Arc<dyn DistributedReentrantLock>> {
        Ok(Arc::new(LocalReentrantLock(self.lock_of(vec![Want::one(path, Kind::Lock)?]))))
    }

    fn multi_lock_of(&self, paths: &[&str]) -> Result<Arc<dyn DistributedLock>> {
        if paths.is_empty() {
            return Err(Error::invalid("paths", "there are none; name at least one"));
        }
        let wants = paths.iter().map(|path| Want::one(path, Kind::Lock)).collect::<Result<Vec<_>>>()?;
        if let Some(twice) = (1..wants.len()).find(|&i| wants[..i].contains(&wants[i])) {
            return Err(Error::invalid("paths", format!("{} is named twice; name it once", paths[twice])));
        }
        Ok(Arc::new(self.lock_of(wants)))
    }

    fn election_at(&self, path: &str) -> Result<Arc<dyn DistributedElection>> {
        let lock = self.lock_of(vec![Want::one(path, Kind::Latch)?]);
        Ok(Arc::new(LocalElection { lock, current: CurrentTerm::default() }))
    }
}
