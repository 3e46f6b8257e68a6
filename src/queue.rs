//! Owns [`Queue`]: one queue of a lock, and its contenders.

pub(crate) mod order;

use std::sync::Arc;

use futures_util::future::join_all;
use zookeeper_client::Stat;

use crate::driver::Core;
use crate::error::Result;
use crate::path::LockPath;
use crate::session::{Interrupt, Zk, found};

pub use crate::machine::ContenderKind;

pub(crate) use self::order::{LEASES, NodeName, TURNS};
pub(crate) use crate::machine::Kind;

/// What we contend for at one path.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) path: LockPath,
    pub(crate) kind: Kind,
    /// How many nodes one contender has here.
    pub(crate) width: usize,
}

impl Queue {
    /// A queue for one node.
    pub(crate) fn new(path: &LockPath, kind: Kind) -> Self {
        Self { path: path.clone(), kind, width: 1 }
    }

    /// The names under the path, without the nodes that this session deletes; none if it does not exist.
    pub(crate) async fn list(&self, core: &Arc<Core>, zk: &Zk) -> Result<Vec<String>, Interrupt> {
        let path = self.path.as_str();
        Ok(core.without_orphans(path, zk.list(path).await?, true))
    }

    /// The number of nodes under the path; none if it does not exist.
    pub(crate) async fn occupancy(&self, zk: &Zk) -> Result<usize, Interrupt> {
        let stat = zk.stat(self.path.as_str()).await?;
        Ok(stat.map_or(0, |stat| stat.num_children.try_into().unwrap_or_default()))
    }

    /// The data and the stat of the node `name`; `None` if it is gone.
    pub(crate) async fn read(&self, zk: &Zk, name: &str) -> Result<Option<(Vec<u8>, Stat)>, Interrupt> {
        let path = &self.path.child(name);
        Ok(found(zk.retry("read", || zk.data(path)).await?, "read", path)?)
    }

    /// The name of the contender that is first, and its czxid if that was needed to find it. At the end of the counter a
    /// name may be given again: clients that lock with one prefix for ever, as ZooKeeper's recipe does, get the same
    /// number, too. So the node that is read next may be another one.
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
                // One that is not there has left since the listing.
                known.extend(stat?.map(|stat| (name, Some(stat.czxid))));
            }
            near_wrap = known;
        }
        contenders.append(&mut near_wrap);
        order::sort(&mut contenders, |(name, czxid)| (name.number, *czxid, name.text));
        Ok(contenders.first().map(|(name, czxid)| (name.text.to_owned(), *czxid)))
    }
}
