//! Owns the plan node: how a member reads it and learns of its changes.
//!
//! 1. A member has one watch, on `<path>/plan`, whether the node is there or not. An event only triggers a look. So without the node a
//!    member sends one request when it starts, and one for each ZooKeeper session.
//! 2. No wait rests on an event alone. The look at other members' shards reads the node in the same request, and another
//!    transaction number than the one read last triggers a look as well.

use std::future::pending;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_recipes::zookeeper_client::{Error as ZkError, OneshotWatcher};
use zookeeper_recipes::{Error, Result, Session};

use crate::rules::Rules;

/// The name of the node below the path of the group.
pub(crate) const NAME: &str = "plan";

/// An operator changes several rules in a row: they are read together.
const PAUSE: Duration = Duration::from_millis(200);

/// The pause before the node is read again that could not be read.
const REFUSED: Duration = Duration::from_secs(10);

/// The number of the transaction that has last changed the node; `None` without a node.
pub(crate) type Zxid = Option<i64>;

/// What was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) zxid: Zxid,
    data: Vec<u8>,
    watch: OneshotWatcher,
}

impl Read {
    /// The rules, for a group with this many shards.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] for rubbish.
    pub(crate) fn rules(&self, count: u32) -> Result<Rules> {
        let rules = Rules::parse(&self.data)?;
        rules.check(count)?;
        Ok(rules)
    }
}

/// Reads the node, and sets the watch.
pub(crate) async fn read(session: Session, path: String) -> Result<Read> {
    let read = session.request(None, |client| {
        let path = path.clone();
        async move {
            let (stat, watch) = client.check_and_watch_stat(&path).await?;
            if stat.is_none() {
                return Ok(Read { zxid: None, data: Vec::new(), watch });
            }
            match client.get_data(&path).await {
                Ok((data, stat)) => Ok(Read { zxid: Some(stat.mzxid), data, watch }),
                Err(ZkError::NoNode) => Ok(Read { zxid: None, data: Vec::new(), watch }),
                Err(error) => Err(error),
            }
        }
    });
    read.await?.map_err(|source| match source {
        ZkError::NoAuth => Error::NoAuth { path: path.clone() },
        source => Error::Client { action: "read", path: path.clone(), source },
    })
}

/// Waits until the node may be another than the one that was read, and reads it. After a failure it waits for a pause.
pub(crate) async fn read_next(session: Session, path: String, last: Option<Read>) -> Result<Read> {
    match last {
        Some(last) => {
            // The watcher panics if the session's runtime is gone. Then the session is over.
            let mut event = JoinSet::new();
            event.spawn(last.watch.changed());
            if event.join_next().await.is_none_or(|fired| fired.is_err()) {
                pending::<()>().await;
            }
            sleep(PAUSE).await;
        }
        None => sleep(REFUSED).await,
    }
    read(session, path).await
}
