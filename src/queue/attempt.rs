//! Owns how an attempt in one ZooKeeper session ends when there is nobody to ask, or no session any more.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::error::{Error, Result};
use crate::session::{Link, LinkOver, Session};

/// Why an attempt in one ZooKeeper session came to nothing.
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

/// Ends a request that does not queue within one session timeout.
pub(crate) async fn within<T>(session: &Session, request: impl Future<Output = Result<T>>) -> Result<T> {
    let limit = session.timeout();
    tokio::time::timeout(limit, request).await.unwrap_or_else(|_| Err(session.unavailable(limit)))
}

/// Makes an attempt, in one ZooKeeper session after the other, until one does not end with its session.
pub(crate) async fn attempt<'a, T>(
    session: &Session,
    make: impl Fn(Arc<Link>) -> BoxFuture<'a, Result<T, Interrupt>> + Send,
) -> Result<T> {
    loop {
        let link = session.link().await?;
        let result = tokio::select! {
            biased;
            // Dropping the attempt gives up what it has.
            _ = link.left_open() => Err(Interrupt::SessionOver),
            result = make(link.clone()) => result,
        };
        match result {
            Ok(done) => return Ok(done),
            Err(Interrupt::Failed(error)) => return Err(error),
            Err(Interrupt::SessionOver) => {
                tracing::debug!(session = %link.id(), "session is over; trying again in the next");
                link.found_over();
                link.left_open().await;
            }
        }
    }
}
