//! PostgreSQL's advisory lock, which a session holds.
//!
//! Source: PostgreSQL's manual, "Advisory Locks". It promises exclusion among the sessions of one server, the order of
//! arrival, and that the end of a session ends its locks. The server learns late that a client is silent. A statement
//! whose caller has given up goes on, so the session may get a lock that nobody knows of.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_postgres::{Client, Statement};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{Pause, Place};
use crate::Outcome;
use crate::servers::postgresql;

struct Advisory {
    client: Arc<Client>,
    key: i64,
    lock: Statement,
    unlock: Statement,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let client = Arc::new(postgresql::connect(place.address()?).await?);
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        let lock = Advisory { client, key: place.number(), lock, unlock };
        Ok(Arc::new(Textbook(lock)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for Advisory {
    async fn acquire(&self) -> Outcome<Grant> {
        self.client.query_one(&self.lock, &[&self.key]).await?;
        let (client, key, unlock) = (self.client.clone(), self.key, self.unlock.clone());
        let connection = client.clone();
        let grant = Grant::new(async move {
            let was_held: bool = client.query_one(&unlock, &[&key]).await?.get(0);
            if was_held { Ok(()) } else { Err("the session does not hold it".into()) }
        });
        // The client library notices a connection that was closed.
        Ok(grant.held_while(move || !connection.is_closed()))
    }
}
