//! Owns what a holder keeps on record beside its lock: data in the same ZooKeeper, written only while the lock is held.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Loss, Result, ZkError};
use crate::hold::Hold;
use crate::options::Options;
use crate::session::{Refusal, SessionOver};

impl Hold {
    /// The data of a node, and when it was written, by the servers' clocks; `None` if there is no such node. What an earlier
    /// holder wrote is there.
    pub(crate) async fn read(&self, path: &str) -> Result<Option<(Vec<u8>, SystemTime)>> {
        let zk = &self.core.zk;
        self.while_held(async {
            match zk.retry(|| zk.read(path)).await {
                Ok(Ok((data, stat))) => Ok(Some((data, time(stat.mtime)))),
                Ok(Err(ZkError::NoNode)) => Ok(None),
                Ok(Err(error)) => Err(Error::refused("read", path, error)),
                Err(SessionOver) => Err(Loss::Expired.into()),
            }
        })
        .await
    }

    /// Writes the data of a node, which it creates if it is missing. Returns when, by the servers' clocks.
    ///
    /// It may be written twice, but never after the lock is gone: each request checks the lock.
    pub(crate) async fn write(&self, path: &str, data: &[u8], options: &Options) -> Result<SystemTime> {
        let zk = &self.core.zk;
        self.while_held(async {
            let mut new = None;
            loop {
                let write = || zk.write_while_held(&self.nodes, path, data, new);
                let refusal = match zk.retry(write).await {
                    Ok(Ok(Ok(stat))) => return Ok(time(stat.mtime)),
                    Ok(Ok(Err(refusal))) => refusal,
                    Ok(Err(error)) => return Err(Error::refused("write", path, error)),
                    Err(SessionOver) => return Err(Loss::Expired.into()),
                };
                match refusal {
                    Refusal { index, error: ZkError::NoNode } if index < self.nodes.len() => {
                        return Err(Loss::Deleted.into());
                    }
                    Refusal { error: ZkError::NoNode, .. } if new.is_none() => new = Some(options),
                    // By a request of ours whose answer was lost.
                    Refusal { error: ZkError::NodeExists, .. } => new = None,
                    Refusal { error, .. } => return Err(Error::refused("write", path, error)),
                }
            }
        })
        .await
    }

    async fn while_held<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        self.run_until_lost(request).await?
    }
}

/// A time, from the milliseconds that the servers give.
pub(crate) fn time(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.try_into().unwrap_or_default())
}
