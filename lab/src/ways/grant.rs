//! The crate's traits for ways that have only some of what they ask for.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use zookeeper_recipes::{DistributedLock, Error, FencingToken, HoldState, LockGuard, Loss};

use crate::Outcome;

/// A way to lock, as its textbook has it: it waits for the lock, and that is all.
#[async_trait]
pub(crate) trait Recipe: Send + Sync {
    /// Waits for the lock. An error means that its connection is to be made again.
    async fn acquire(&self) -> Outcome<Grant>;
}

/// A [`Recipe`] as a lock of the crate.
pub(crate) struct Textbook<R>(pub(crate) R);

#[async_trait]
impl<R: Recipe> DistributedLock for Textbook<R> {
    async fn lock(&self) -> Result<Box<dyn LockGuard>, Error> {
        let grant = self.0.acquire().await.map_err(|error| failed(&*error))?;
        Ok(Box::new(grant))
    }

    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>, Error> {
        let reason = "nobody asks a way of the laboratory for it".to_owned();
        Err(Error::InvalidInput { what: "try_lock", reason })
    }

    /// Drops the future when the limit passes, as a program that gives up does.
    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>, Error> {
        tokio::time::timeout(limit, self.lock()).await.ok().transpose()
    }

    fn path(&self) -> &str {
        "a way of the laboratory"
    }
}

/// A lock that was granted. Dropping it without a release leaves what is on the server.
pub(crate) struct Grant {
    token: Option<i64>,
    held: Box<dyn Fn() -> bool + Send + Sync>,
    unlock: Mutex<BoxFuture<'static, Outcome>>,
}

impl Grant {
    /// A lock that this future releases, and that does not report its loss.
    pub(crate) fn new(unlock: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self { token: None, held: Box::new(|| true), unlock: Mutex::new(unlock.boxed()) }
    }

    /// Releases it.
    pub(crate) async fn unlock(self) -> Outcome {
        self.unlock.into_inner().unwrap_or_else(PoisonError::into_inner).await
    }

    /// With a number that grows from grant to grant.
    pub(crate) fn with_token(mut self, token: i64) -> Self {
        self.token = Some(token);
        self
    }

    /// A lock that is lost when this is false.
    pub(crate) fn held_while(mut self, held: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.held = Box::new(held);
        self
    }
}

impl Debug for Grant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("token", &self.token).finish_non_exhaustive()
    }
}

#[async_trait]
impl LockGuard for Grant {
    /// The trait has no lock without a token: without one it is 1, which the laboratory does not send.
    fn fencing_token(&self) -> FencingToken {
        FencingToken::try_from(self.token.unwrap_or(1)).expect("revisions are positive")
    }

    fn state(&self) -> HoldState {
        if (self.held)() { HoldState::Held } else { HoldState::Lost(Loss::Expired) }
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        pending().boxed()
    }

    fn path(&self) -> &str {
        "a way of the laboratory"
    }

    /// Its textbook knows no end of trust.
    fn valid_for(&self) -> Duration {
        if (self.held)() { Duration::MAX } else { Duration::ZERO }
    }

    async fn release(self: Box<Self>) -> Result<(), Error> {
        self.unlock().await.map_err(|error| failed(&*error))
    }
}

/// An error of another client as one of the crate's: this connection is over.
fn failed(error: &(dyn std::error::Error + Send + Sync)) -> Error {
    Error::SessionEnded { reason: error.to_string() }
}
