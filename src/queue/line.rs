//! Owns [`Line`]: what a recipe queues for, and how its requests end when there is nobody to ask, or no session.

use std::future::Future;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::path::LockPath;
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

    /// Whether a hold that began now would be trusted long enough to be kept up.
    pub(super) fn is_trusted(&self, link: &Link) -> bool {
        let needed = Moment::now().plus(link.timeout() / 3);
        link.requests.ledger().until(self.options.trust()) > needed
    }
}
