//! PostgreSQL's advisory lock as a [`DistributedLock`]. Each hold has a connection of its own, with which it ends.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio_postgres::{Client, Config, NoTls};
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::{DistributedLock, Error, FencingToken, HoldState, LockGuard, Loss};

pub(crate) struct AdvisoryLock {
    pub(crate) server: Config,
    pub(crate) key: i64,
}

#[derive(Debug)]
struct Held {
    token: FencingToken,
    client: Client,
    /// Resolves when the connection is closed.
    closed: Shared<BoxFuture<'static, ()>>,
}

impl AdvisoryLock {
    /// Runs the statement that acquires the lock; `None` if it was not acquired.
    async fn acquire(
        &self,
        statement: &str,
        limit: Duration,
    ) -> Result<Option<Box<dyn LockGuard>>, tokio_postgres::Error> {
        let (client, connection) = self.server.connect(NoTls).await?;
        let closed = tokio::spawn(connection).map(drop).boxed().shared();
        // A caller that has gone is noticed within a second.
        let settings =
            format!("SET client_connection_check_interval = 1000; SET lock_timeout = {}", limit.as_millis());
        client.batch_execute(&settings).await?;
        match client.query_one(statement, &[&self.key]).await {
            Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE) => {
                return Ok(None);
            }
            Ok(row) if row.try_get(0).is_ok_and(|acquired: bool| !acquired) => return Ok(None),
            acquired => acquired?,
        };
        // Numbers of transactions grow.
        let token: i64 = client.query_one("SELECT txid_current()", &[]).await?.get(0);
        let token = FencingToken::try_from(token).expect("it is positive");
        Ok(Some(Box::new(Held { token, client, closed })))
    }
}

fn unavailable(error: tokio_postgres::Error) -> Error {
    let (hosts, after, why) = (format!("PostgreSQL ({error})"), Duration::ZERO, Unanswered::Servers);
    Error::Unavailable { hosts, after, why, failures: Vec::new() }
}

#[async_trait]
impl DistributedLock for AdvisoryLock {
    async fn lock(&self) -> Result<Box<dyn LockGuard>, Error> {
        let held = self.acquire("SELECT pg_advisory_lock($1)", Duration::ZERO).await.map_err(unavailable)?;
        held.ok_or(Error::Lost(Loss::Expired))
    }

    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>, Error> {
        self.acquire("SELECT pg_try_advisory_lock($1)", Duration::ZERO).await.map_err(unavailable)
    }

    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>, Error> {
        // 0 is no limit.
        let limit = limit.max(Duration::from_millis(1));
        self.acquire("SELECT pg_advisory_lock($1)", limit).await.map_err(unavailable)
    }

    fn path(&self) -> &str {
        "an advisory lock"
    }
}

#[async_trait]
impl LockGuard for Held {
    fn fencing_token(&self) -> FencingToken {
        self.token
    }

    fn state(&self) -> HoldState {
        if self.client.is_closed() { HoldState::Lost(Loss::Expired) } else { HoldState::Held }
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        self.closed.clone().map(|()| Loss::Expired).boxed()
    }

    async fn release(self: Box<Self>) -> Result<(), Error> {
        // The server unlocks when it has seen the end of the connection, so wait for the answer of an unlock.
        let unlocked = self.client.batch_execute("SELECT pg_advisory_unlock_all()").await;
        unlocked.map_err(|_| Error::Lost(Loss::Expired))
    }

    fn path(&self) -> &str {
        "an advisory lock"
    }

    fn valid_for(&self) -> Duration {
        // The server notices a connection that was cut only by its keep-alives.
        if self.client.is_closed() { Duration::ZERO } else { Duration::MAX }
    }
}
