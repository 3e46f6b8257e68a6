//! Owns [`Queue`]: the contenders under one path, and our position among them.

mod order;
mod parents;
mod place;
mod recovery;
mod watch;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use uuid::fmt::Hyphenated;
use zookeeper_client::Stat;

use crate::error::{Error, Result, ZkError};
use crate::path::LockPath;
use crate::queue::order::{contenders, first};
use crate::session::{Interrupt, Names, ServerSession, delete_abandoned};

pub use self::order::ContenderKind;

pub(crate) use self::order::{Czxids, Kind, Name, Position, Ranked, update_czxid};
pub(crate) use self::parents::MAX_REQUEST_BYTES;
pub(crate) use self::place::Place;
pub(crate) use self::recovery::why_gone;
pub(crate) use self::watch::Room;

/// How much longer than ours the name of a node may be that we watch, in bytes. All clients that are known make names of about
/// that length. A stranger may make one that uses up the room for all watches of the session: it is looked for now and then.
const LONGER_NAME: usize = 128;

/// The names under the path of a semaphore: of the queue of turns, and of the permits.
pub(crate) const TURNS: &str = "locks";
pub(crate) const LEASES: &str = "leases";

/// What we contend for at one path.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) path: LockPath,
    pub(crate) admission: Admission,
    /// Whether this is the queue of turns of a semaphore, and not at the path of a lock.
    pub(crate) is_turn: bool,
    /// The parents to delete on release where they are empty, if the options ask for it.
    pub(crate) removes: Arc<[LockPath]>,
}

/// When a contender is granted what it queues for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// When nobody is ahead of it that excludes it.
    InOrder(Kind),
    /// When all nodes, of which it has `count`, are no more than the permits.
    Room { count: u32, permits: u32 },
}

impl Queue {
    /// The only queue of a lock.
    pub(crate) fn new(path: &LockPath, kind: Kind) -> Self {
        let (admission, removes) = (Admission::InOrder(kind), Arc::new([path.clone()]));
        Self { path: path.clone(), admission, is_turn: false, removes }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.admission {
            Admission::InOrder(kind) => kind,
            Admission::Room { .. } => Kind::Lease,
        }
    }

    /// How many nodes one contender has here.
    pub(crate) fn width(&self) -> usize {
        match self.admission {
            Admission::InOrder(_) => 1,
            Admission::Room { count, .. } => count as usize,
        }
    }

    /// The bytes of the path that a waiter watches here, as long as names are like its own.
    pub(crate) fn watch_bytes(&self) -> usize {
        let name = match self.admission {
            Admission::InOrder(kind) => {
                "/_c_".len() + Hyphenated::LENGTH + kind.separator().len() + "0123456789".len()
            }
            Admission::Room { .. } => 0,
        };
        self.path.as_str().len() + name
    }

    /// Whether the path of a node here is short enough to be watched.
    pub(crate) fn may_watch(&self, path_bytes: usize) -> bool {
        path_bytes <= self.watch_bytes() + LONGER_NAME
    }

    /// Whether a contender that came now would have to wait.
    pub(crate) fn is_blocked(&self, names: &Names) -> bool {
        match self.admission {
            Admission::InOrder(kind) => contenders(names.as_slice()).any(|other| kind.waits_for(other.kind)),
            Admission::Room { permits, .. } => names.as_slice().len() + self.width() > permits as usize,
        }
    }

    /// How many nodes there are more than permits.
    fn excess(&self, count: usize) -> usize {
        match self.admission {
            Admission::InOrder(_) => 0,
            Admission::Room { permits, .. } => count.saturating_sub(permits as usize),
        }
    }

    /// The names under the path; none if it does not exist.
    pub(crate) async fn list(&self, zk: &Arc<ServerSession>) -> Result<Arc<Names>, Interrupt> {
        match zk.retry(|| zk.list(&self.path)).await? {
            Ok(names) => {
                delete_abandoned(zk, &self.path, &names);
                Ok(names)
            }
            Err(ZkError::NoNode) => Ok(Arc::default()),
            Err(error) => Err(Error::refused("list", self.path.as_str(), error).into()),
        }
    }

    /// The number of nodes under the path; none if it does not exist.
    pub(crate) async fn occupancy(&self, zk: &ServerSession) -> Result<usize, Interrupt> {
        let path = self.path.as_str();
        let stat = zk.retry(|| zk.stat(path)).await?.map_err(|error| Error::refused("look at", path, error))?;
        Ok(stat.map_or(0, |stat| stat.num_children.try_into().unwrap_or_default()))
    }

    /// Deletes the abandoned nodes in a listing of ours. Fails if it shows that the path of a lock is in use as a semaphore.
    async fn inspect(&self, zk: &Arc<ServerSession>, names: &Names) -> Result<(), Interrupt> {
        delete_abandoned(zk, &self.path, names);
        if self.may_be_semaphore(names) {
            // Rare, so not every waiter keeps the room for it.
            Box::pin(self.refuse_semaphore(zk)).await?;
        }
        Ok(())
    }

    /// Whether a listing of the path of a lock has what a semaphore keeps there. It may be left of one that is not in use, or
    /// be folders of these names.
    pub(crate) fn may_be_semaphore(&self, names: &Names) -> bool {
        let has = |wanted: &str| names.as_slice().iter().any(|name| name == wanted);
        matches!(self.admission, Admission::InOrder(_)) && !self.is_turn && has(TURNS) && has(LEASES)
    }

    /// Fails if permits of a semaphore at this path are in use. A semaphore has its nodes below its path, which it does not
    /// list, so it excludes no other recipe there, and is excluded by none.
    pub(crate) async fn refuse_semaphore(&self, zk: &Arc<ServerSession>) -> Result<(), Interrupt> {
        let leases = LockPath::new(&self.path.child(LEASES))?;
        match zk.retry(|| zk.list(&leases)).await? {
            Ok(names) if contenders(names.as_slice()).any(|name| name.kind == Kind::Lease) => {
                let (path, recipe) = (self.path.as_str(), self.kind().recipe());
                let reason = format!(
                    "{path} is in use as a Semaphore, and {recipe} there would not exclude its permits: use one recipe \
                     in all clients, or another path"
                );
                Err(Error::invalid("recipe", reason).into())
            }
            // Permits that may not be listed count as none.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The data and the stat of the node `name`; `None` if it is gone.
    pub(crate) async fn read(&self, zk: &ServerSession, name: &str) -> Result<Option<(Vec<u8>, Stat)>, Interrupt> {
        let path = self.path.child(name);
        match zk.retry(|| zk.read(&path)).await? {
            Ok(found) => Ok(Some(found)),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(Error::refused("read", &path, error).into()),
        }
    }

    /// The stat of the node `name`; `None` if it is gone.
    async fn stat(&self, zk: &ServerSession, name: &str) -> Result<Option<Stat>, Interrupt> {
        let path = self.path.child(name);
        let found = zk.retry(|| zk.stat(&path)).await?;
        found.map_err(|error| Error::refused("look at", &path, error).into())
    }

    /// The name of the contender that is first. What has to be known for it at the end of the counter is kept in `czxids`.
    pub(crate) async fn first(
        &self,
        zk: &Arc<ServerSession>,
        czxids: &mut Czxids,
    ) -> Result<Option<String>, Interrupt> {
        let listing = self.list(zk).await?;
        let mut names = Cow::Borrowed(listing.as_slice());
        if !czxids.is_empty() {
            let listed: HashSet<_> = names.iter().collect();
            czxids.retain(|name, _| listed.contains(name));
        }
        loop {
            match first(&names, czxids) {
                Ok(first) => return Ok(first.map(|name| name.text.to_owned())),
                Err(unknown) => {
                    let gone = self.read_czxids(zk, unknown, czxids).await?;
                    leave_out(&mut names, &gone);
                }
            }
        }
    }

    /// Reads the czxids of `names` all at once; returns the names of nodes that are gone.
    async fn read_czxids(
        &self,
        zk: &ServerSession,
        names: Vec<String>,
        czxids: &mut Czxids,
    ) -> Result<Vec<String>, Interrupt> {
        let nodes = join_all(names.iter().map(|name| self.stat(zk, name))).await;
        let mut gone = Vec::new();
        for (name, node) in names.into_iter().zip(nodes) {
            match node? {
                Some(stat) => drop(czxids.insert(name, stat.czxid)),
                None => gone.push(name),
            }
        }
        Ok(gone)
    }
}

/// Takes names out of a listing; others that share it keep theirs as it is.
fn leave_out(names: &mut Cow<'_, [String]>, unwanted: &[String]) {
    if !unwanted.is_empty() {
        names.to_mut().retain(|name| !unwanted.contains(name));
    }
}
