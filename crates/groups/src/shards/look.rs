//! Owns [`look`]: reads how many nodes the locks of some shards have, and how often they have changed, in one request per
//! 500 shards. The first request also reads the plan node.

use zookeeper_recipes::zookeeper_client::{Error as ZkError, MultiReadResult};
use zookeeper_recipes::{Error, Result, Session};

use crate::request::{read_all, refused};
use crate::shards::plan_node::Zxid;

/// The most shards in one request.
const BURST: usize = 500;

/// A shard, and the path of its lock.
pub(crate) type Path = (u32, String);

/// The lock of a shard, as a look found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// The number of the lock's nodes: of its holder and its waiters.
    pub(crate) nodes: usize,
    /// How often a node was created or deleted. `None` if the path does not exist.
    pub(crate) changes: Option<i32>,
}

/// The result of a look.
pub(crate) struct Looked {
    pub(crate) locks: Vec<(u32, Sighting)>,
    /// Shards whose locks cannot be read, each with the error.
    pub(crate) refused: Vec<(u32, Error)>,
    /// The last change of the plan node; `None` if the node cannot be read.
    pub(crate) plan: Option<Zxid>,
}

/// Reads these locks, and the plan node. The connected server answers, which may be behind the others.
pub(crate) async fn look(session: Session, paths: Vec<Path>, plan: String) -> Result<Looked> {
    let mut found = Looked { locks: Vec::with_capacity(paths.len()), refused: Vec::new(), plan: None };
    for (number, burst) in paths.chunks(BURST).enumerate() {
        let also = (number == 0).then_some(plan.as_str());
        let all = || burst.iter().map(|(_, path)| path.as_str()).chain(also);
        let read = session.request(None, |client| read_all(client, all())).await?;
        let mut answers = read.map_err(|error| refused("read", &burst[0].1, error))?.into_iter();
        for ((shard, path), answer) in burst.iter().zip(&mut answers) {
            let lock = match answer {
                MultiReadResult::Data { stat, .. } => Sighting {
                    nodes: usize::try_from(stat.num_children).unwrap_or_default(),
                    changes: Some(stat.cversion),
                },
                MultiReadResult::Error { err: ZkError::NoNode } => Sighting { nodes: 0, changes: None },
                MultiReadResult::Error { err } => {
                    found.refused.push((*shard, refused("read", path, err)));
                    continue;
                }
                _ => continue,
            };
            found.locks.push((*shard, lock));
        }
        match answers.next() {
            Some(MultiReadResult::Data { stat, .. }) => found.plan = Some(Some(stat.mzxid)),
            Some(MultiReadResult::Error { err: ZkError::NoNode }) => found.plan = Some(None),
            _ => {}
        }
    }
    Ok(found)
}
