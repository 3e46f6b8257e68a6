//! Owns [`look`]: reads how many nodes the locks of some shards have, and how often they have changed, in one request per
//! 500 shards.

use zookeeper_recipes::{Result, Session};

use crate::request::read_all;

/// The most shards in one request.
const BURST: usize = 500;

/// What a read has found of a shard's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// The number of the lock's nodes: of its holder and its waiters.
    pub(crate) nodes: usize,
    /// How often a node of the lock was created or deleted. `None` if the lock's path does not exist.
    pub(crate) changes: Option<i32>,
}

/// Reads the locks of these shards. The connected server answers, which may be behind the others. A lock that cannot be read is
/// left out, so that the others are still returned.
pub(crate) async fn look(session: Session, shards: Vec<u32>, paths: Vec<String>) -> Result<Vec<(u32, Sighting)>> {
    let mut locks = Vec::with_capacity(shards.len());
    for (shard, found) in shards.into_iter().zip(read_all(&session, None, BURST, &paths).await?) {
        match found {
            Ok(Some((_, stat))) => {
                let nodes = usize::try_from(stat.num_children).unwrap_or_default();
                locks.push((shard, Sighting { nodes, changes: Some(stat.cversion) }));
            }
            Ok(None) => locks.push((shard, Sighting { nodes: 0, changes: None })),
            Err(error) => tracing::debug!(shard, %error, "cannot see whether a shard has an owner"),
        }
    }
    Ok(locks)
}
