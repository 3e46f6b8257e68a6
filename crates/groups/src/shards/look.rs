//! Owns [`look`]: reads how many nodes the locks of some shards have, and how often they have changed, in one request per
//! 500 shards.

use zookeeper_recipes::zookeeper_client::{Error as ZkError, MultiReadResult};
use zookeeper_recipes::{Result, Session};

use crate::request::{read_all, refused};

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

/// Reads these locks. The connected server answers, which may be behind the others. A lock that cannot be read is left out, so it
/// hides no other.
pub(crate) async fn look(session: Session, paths: Vec<Path>) -> Result<Vec<(u32, Sighting)>> {
    let mut locks = Vec::with_capacity(paths.len());
    for burst in paths.chunks(BURST) {
        let all = || burst.iter().map(|(_, path)| path);
        let read = session.request(None, |client| read_all(client, all())).await?;
        let answers = read.map_err(|error| refused("read", &burst[0].1, error))?;
        for ((shard, path), answer) in burst.iter().zip(answers) {
            match answer {
                MultiReadResult::Data { stat, .. } => {
                    let nodes = usize::try_from(stat.num_children).unwrap_or_default();
                    locks.push((*shard, Sighting { nodes, changes: Some(stat.cversion) }));
                }
                MultiReadResult::Error { err: ZkError::NoNode } => {
                    locks.push((*shard, Sighting { nodes: 0, changes: None }));
                }
                MultiReadResult::Error { err } => {
                    let error = refused("read", path, err);
                    tracing::debug!(shard, %error, "cannot see whether a shard has an owner");
                }
                _ => {}
            }
        }
    }
    Ok(locks)
}
