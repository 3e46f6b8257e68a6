//! Owns the plan node: how a member reads it and learns of its changes.
//!
//! A member has one watch on `<path>/plan`, whether the node exists or not. [`Looks`] read the node after an event, and every 20 to
//! 30 s without one.

use zookeeper_recipes::session::Looks;
use zookeeper_recipes::{Result, Session};

use crate::request::{read_and_watch, refused};
use crate::tools::Rules;

/// Reads the rules, now and whenever they may have changed.
#[derive(Debug)]
pub(crate) struct Reader {
    looks: Looks,
    path: String,
    count: u32,
}

impl Reader {
    /// A reader of the rules of a group with this many shards.
    pub(crate) fn new(session: &Session, path: String, count: u32) -> Result<Self> {
        Ok(Self { looks: session.looks([path.as_str()])?, path, count })
    }

    /// Waits until the rules may have changed, and reads them. Fails with
    /// [`Error::InvalidInput`](zookeeper_recipes::Error::InvalidInput) if the node has mistakes.
    pub(crate) async fn next(mut self) -> (Self, Result<Rules>) {
        self.looks.due().await;
        let rules = self.read().await;
        (self, rules)
    }

    async fn read(&mut self) -> Result<Rules> {
        let path = &self.path;
        let found = self.looks.look(|client| read_and_watch(client, path)).await?;
        let found = found.map_err(|error| refused("read", path, error))?;
        let rules = Rules::parse(&found.map(|(data, _)| data).unwrap_or_default())?;
        rules.check(self.count)?;
        Ok(rules)
    }
}
