//! Owns [`look`]: how many nodes the locks of some shards have, in one request for each 500.

use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError, MultiReadResult};
use zookeeper_recipes::{Error, Result, Session};

/// How many shards are read in one request.
const BURST: usize = 500;

/// A shard, and the path of its lock.
pub(crate) type Path = (u32, String);

/// Reads how many nodes these locks have: holder and waiters. It is what the connected server knows.
pub(crate) async fn look(session: Session, paths: Vec<Path>) -> Result<Vec<(u32, usize)>> {
    let mut found = Vec::with_capacity(paths.len());
    for burst in paths.chunks(BURST) {
        let read = session.request(None, |client| read(client, burst)).await?;
        let refused = |source| Error::Client { action: "read", path: burst[0].1.clone(), source };
        for ((shard, path), answer) in burst.iter().zip(read.map_err(refused)?) {
            let nodes = match answer {
                MultiReadResult::Data { stat, .. } => usize::try_from(stat.num_children).unwrap_or_default(),
                MultiReadResult::Error { err: ZkError::NoNode } => 0,
                MultiReadResult::Error { err: ZkError::NoAuth } => {
                    return Err(Error::NoAuth { path: path.clone() });
                }
                MultiReadResult::Error { err: source } => {
                    return Err(Error::Client { action: "read", path: path.clone(), source });
                }
                _ => continue,
            };
            found.push((*shard, nodes));
        }
    }
    Ok(found)
}

async fn read(client: Client, paths: &[Path]) -> Result<Vec<MultiReadResult>, ZkError> {
    let mut reader = client.new_multi_reader();
    paths.iter().try_for_each(|(_, path)| reader.add_get_data(path))?;
    reader.commit().await
}
