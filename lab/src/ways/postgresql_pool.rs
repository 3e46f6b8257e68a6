//! PostgreSQL's advisory lock, with the statements sent through a pool of connections: each takes the next of two.
//!
//! Source: questions of users of pools, and of PgBouncer in its mode `transaction`. The lock belongs to the session that
//! took it. A pool hands out another one for the unlock, which then does nothing but warn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_postgres::Client;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{Pause, Place};
use crate::Outcome;
use crate::servers::postgresql;

/// The connections, of which each statement takes the next.
struct Pool {
    clients: Vec<Client>,
    next: AtomicUsize,
}

impl Pool {
    fn next(&self) -> &Client {
        &self.clients[self.next.fetch_add(1, Ordering::Relaxed) % self.clients.len()]
    }
}

struct Pooled {
    pool: Arc<Pool>,
    key: i64,
}

/// Connects a contender, which has a pool of its own.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let address = place.address()?;
        let clients = vec![postgresql::connect(address).await?, postgresql::connect(address).await?];
        let pool = Arc::new(Pool { clients, next: AtomicUsize::new(0) });
        Ok(Arc::new(Textbook(Pooled { pool, key: place.number() })) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

#[async_trait]
impl Recipe for Pooled {
    async fn acquire(&self) -> Outcome<Grant> {
        self.pool.next().query_one("SELECT pg_advisory_lock($1)", &[&self.key]).await?;
        let (pool, key) = (self.pool.clone(), self.key);
        Ok(Grant::new(async move {
            let was_held: bool = pool.next().query_one("SELECT pg_advisory_unlock($1)", &[&key]).await?.get(0);
            if was_held { Ok(()) } else { Err("this connection does not hold it".into()) }
        }))
    }
}
