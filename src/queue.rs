//! Owns [`Queue`]: one queue of a lock, and its contenders.

pub(crate) mod order;

use std::sync::Arc;

use futures_util::future::join_all;
use zookeeper_client::Stat;

use crate::driver::Core;
use crate::error::Result;
use crate::path::LockPath;
use crate::session::{Interrupt, Zk, found};

pub(crate) use self::order::{LEASES, NodeName, TURNS};
pub(crate) use crate::machine::Kind;

/// The queue at one path of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) path: LockPath,
    pub(crate) kind: Kind,
    /// The number of nodes that one contender has in this queue.
    pub(crate) width: usize,
}

impl Queue {
    /// Creates a queue in which a contender has one node.
    pub(crate) fn new(path: &LockPath, kind: Kind) -> Self {
        Self { path: path.clone(), kind, width: 1 }
    }

    /// Lists the names under the path, without nodes that this session is deleting, and without orphans. An orphan is a node of
    /// this session that belongs to no call, for example because the answer to its create was lost. Deletes the orphans.
    pub(crate) async fn list(&self, core: &Arc<Core>, zk: &Zk) -> Result<Vec<String>, Interrupt> {
        let path = self.path.as_str();
        Ok(core.without_orphans(path, zk.list(path).await?, true))
    }

    /// Counts the nodes under the path; 0 if the path is missing.
    pub(crate) async fn occupancy(&self, zk: &Zk) -> Result<usize, Interrupt> {
        let stat = zk.stat(self.path.as_str()).await?;
        Ok(stat.map_or(0, |stat| stat.num_children.try_into().unwrap_or_default()))
    }

    /// Reads the data and the stat of the node `name`; `None` if it is gone.
    pub(crate) async fn read(&self, zk: &Zk, name: &str) -> Result<Option<(Vec<u8>, Stat)>, Interrupt> {
        let path = &self.path.child(name);
        Ok(found(zk.retry("read", || zk.data(path)).await?, "read", path)?)
    }

    /// Returns the name of the first contender, and the node's czxid if it was read to find the order. Near the wrap of the
    /// sequence counter, a client that always uses the same prefix, as ZooKeeper's recipe does, can get the same name
    /// again. So the caller must compare czxids when it reads the node.
    pub(crate) async fn first(
        &self,
        core: &Arc<Core>,
        zk: &Zk,
    ) -> Result<Option<(String, Option<i64>)>, Interrupt> {
        let names = self.list(core, zk).await?;
        let (mut near_wrap, mut contenders): (Vec<_>, Vec<_>) = names
            .iter()
            .filter_map(|text| Some((NodeName::parse(text)?, None)))
            .partition(|(name, _)| name.is_near_wrap());
        if near_wrap.len() > 1 {
            let stats = near_wrap.iter().map(async |(name, _)| zk.stat(&self.path.child(name.text)).await);
            let stats = join_all(stats).await;
            let mut known = Vec::new();
            for ((name, _), stat) in near_wrap.into_iter().zip(stats) {
                // A missing node was deleted after the listing.
                known.extend(stat?.map(|stat| (name, Some(stat.czxid))));
            }
            near_wrap = known;
        }
        contenders.append(&mut near_wrap);
        order::sort(&mut contenders, |(name, _)| (name.number, name.text), |(_, czxid)| *czxid);
        Ok(contenders.first().map(|(name, czxid)| (name.text.to_owned(), *czxid)))
    }
}
