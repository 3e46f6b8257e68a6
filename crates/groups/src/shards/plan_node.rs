//! Owns the plan node: how a member reads it and learns of its changes.
//!
//! 1. A member has one watch on `<path>/plan`, whether the node exists or not. [`Looks`] read the node after an event, and every
//!    20 to 30 s without one.
//! 2. A look at shards reads the node in the same request. If its transaction number differs from the one read last, the node is
//!    read again.

use zookeeper_recipes::session::Looks;
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError, OneshotWatcher};
use zookeeper_recipes::{Result, Session};

use crate::request::refused;
use crate::tools::Rules;

/// The name of the node below the path of the group.
pub(crate) const NAME: &str = "plan";

/// The number of the transaction that last changed the node; `None` without a node.
pub(crate) type Zxid = Option<i64>;

/// The result of a read of the node.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) zxid: Zxid,
    data: Vec<u8>,
}

impl Read {
    /// The rules, for a group with this many shards.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`](zookeeper_recipes::Error::InvalidInput) if the data is not valid.
    pub(crate) fn rules(&self, count: u32) -> Result<Rules> {
        let rules = Rules::parse(&self.data)?;
        rules.check(count)?;
        Ok(rules)
    }
}

/// Reads the node, now and whenever it may have changed.
#[derive(Debug)]
pub(crate) struct Reader {
    looks: Looks,
    path: String,
}

impl Reader {
    pub(crate) fn new(session: &Session, path: String) -> Result<Self> {
        Ok(Self { looks: session.looks([path.as_str()])?, path })
    }

    pub(crate) async fn next(mut self) -> (Self, Result<Read>) {
        self.looks.due().await;
        let path = &self.path;
        let read = self.looks.look(|client| read(client, path)).await;
        let read = read.and_then(|read| read.map_err(|error| refused("read", path, error)));
        (self, read)
    }
}

/// Reads the node, and sets the watch.
async fn read(client: Client, path: &str) -> Result<(Read, Vec<OneshotWatcher>), ZkError> {
    let (stat, watch) = client.check_and_watch_stat(path).await?;
    let found = match stat {
        Some(_) => client.get_data(path).await,
        None => Err(ZkError::NoNode),
    };
    match found {
        Ok((data, stat)) => Ok((Read { zxid: Some(stat.mzxid), data }, vec![watch])),
        Err(ZkError::NoNode) => Ok((Read::default(), vec![watch])),
        Err(error) => Err(error),
    }
}
