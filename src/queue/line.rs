//! Owns [`Line`]: what a recipe queues for, and how its requests end when there is nobody to ask, or no session.

use std::future::Future;
use std::sync::Arc;

use zookeeper_client::Stat;

use crate::cleanup;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::path::LockPath;
use crate::queue::admission::contenders;
use crate::queue::name::Kind;
use crate::session::clock::Moment;
use crate::session::{Failure, Link, LinkOver, Session};

/// What a recipe queues for: where, as what, and how.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) session: Session,
    pub(crate) path: LockPath,
    pub(crate) kind: Kind,
    pub(crate) options: Options,
}

/// Why an attempt in one ZooKeeper session ended without a hold.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// The session is over; there may be another.
    SessionOver,
    Failed(Error),
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<LinkOver> for Interrupt {
    fn from(LinkOver: LinkOver) -> Self {
        Self::SessionOver
    }
}

impl Line {
    /// Makes a line, if its path and options can be used.
    pub(crate) fn new(session: &Session, path: &str, kind: Kind, options: &Options) -> Result<Self> {
        options.validate()?;
        Ok(Self { session: session.clone(), path: LockPath::new(path)?, kind, options: options.clone() })
    }

    /// Ends a request that does not queue within one session timeout.
    pub(crate) async fn within<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.session.timeout();
        tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(self.session.unavailable(limit)))
    }

    /// Makes an attempt in the session of `link`; `None` if that ended under it, and there may be another.
    ///
    /// Dropping the attempt, as the end of the session does, gives up what it has.
    pub(crate) async fn attempt<T>(
        &self,
        link: &Link,
        attempt: impl Future<Output = Result<T, Interrupt>>,
    ) -> Result<Option<T>> {
        let result = tokio::select! {
            biased;
            _ = link.left_open() => Err(Interrupt::SessionOver),
            result = attempt => result,
        };
        match result {
            Ok(done) => Ok(Some(done)),
            Err(Interrupt::Failed(error)) => Err(error),
            Err(Interrupt::SessionOver) => {
                tracing::debug!(session = %link.id(), "session is over; trying again in the next");
                link.found_over();
                link.left_open().await;
                Ok(None)
            }
        }
    }

    /// The names under the path, none if it does not exist.
    pub(crate) async fn list(&self, link: &Arc<Link>) -> Result<Vec<String>, Interrupt> {
        link.connected().await?;
        loop {
            let path = self.path.clone();
            match link.ask(move |requests| requests.list(path.as_str())).await {
                Ok(names) => return Ok(names),
                Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return Ok(Vec::new()),
                Err(Failure::Refused(error)) => {
                    return Err(Error::refused("list", self.path.as_str(), error).into());
                }
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
    }

    /// The data and the stat of the node `name` of the line; `None` if it is gone.
    pub(crate) async fn read(&self, link: &Arc<Link>, name: &str) -> Result<Option<(Vec<u8>, Stat)>, Interrupt> {
        let path = self.path.child(name);
        loop {
            let node = path.clone();
            match link.ask(move |requests| requests.read(&node)).await {
                Ok(found) => return Ok(Some(found)),
                Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return Ok(None),
                Err(Failure::Refused(error)) => return Err(Error::refused("read", &path, error).into()),
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
    }

    /// Takes what is left of places that were given up out of a listing, and deletes it: nobody waits behind a node
    /// that no one owns.
    pub(super) fn clear_strays(&self, link: &Arc<Link>, names: &mut Vec<String>) {
        let guids = contenders(names).filter_map(|name| Some((name.guid()?, name.text)));
        let strays: Vec<_> = link.strays(guids).into_iter().map(str::to_owned).collect();
        self.clear(link, names, &strays);
    }

    /// Takes nodes of ours that nobody wants out of a listing, and deletes them.
    pub(super) fn clear(&self, link: &Arc<Link>, names: &mut Vec<String>, unwanted: &[String]) {
        unwanted.iter().for_each(|name| cleanup::delete_in_background(link, self.path.child(name)));
        names.retain(|name| !unwanted.contains(name));
    }

    /// Whether a hold that began now would be trusted long enough to be kept up.
    pub(super) fn is_trusted(&self, link: &Link) -> bool {
        let needed = Moment::now().plus(link.timeout() / 3);
        link.requests.ledger().until(self.options.trust()) > needed
    }
}
