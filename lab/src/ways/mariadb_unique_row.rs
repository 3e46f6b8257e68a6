//! A row with a unique key: `INSERT` to lock, `DELETE` to unlock, again and again in a loop. An owner column lets the
//! owner lock again, and a job removes rows that are old.
//!
//! Source: the first form of nearly every article on locks in a database. It promises exclusion while the server keeps
//! its data and no row is removed under a live owner. A row has no expiry, so without the job a crash blocks for ever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::task::AbortHandle;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{LEASE, Pause, Place, poll, unique};
use crate::Outcome;
use crate::servers::mariadb::options;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS locks (name VARCHAR(99) PRIMARY KEY, owner CHAR(32) NOT NULL, \
                     count INT NOT NULL, taken DATETIME(3) NOT NULL)";
const DUPLICATE: u16 = 1062;

/// The age at which a row counts as left over: three times what the other ways call a lease.
pub const TOO_OLD: Duration = Duration::from_secs(3 * LEASE.as_secs());

struct UniqueRow {
    kept: Kept,
    name: String,
    owner: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let kept = Kept::to(&place)?;
        let mut connection = kept.take().await?;
        connection.query_drop(TABLE).await?;
        kept.put(connection);
        Ok(Arc::new(Textbook(UniqueRow { kept, name: place.lock, owner: unique() })) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

/// A connection that is kept from lock to lock. One that is taken and not put back, as its future was dropped, is closed.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    options: Opts,
    connection: Arc<Mutex<Option<Conn>>>,
}

impl Kept {
    pub(super) fn to(place: &Place) -> Outcome<Self> {
        Ok(Self { options: options(place.address()?), connection: Arc::default() })
    }

    pub(super) async fn take(&self) -> Outcome<Conn> {
        let kept = locked(&self.connection).take();
        match kept {
            Some(connection) => Ok(connection),
            None => Ok(Conn::new(self.options.clone()).await?),
        }
    }

    pub(super) fn put(&self, connection: Conn) {
        *locked(&self.connection) = Some(connection);
    }
}

fn locked(connection: &Mutex<Option<Conn>>) -> MutexGuard<'_, Option<Conn>> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the job that removes old rows.
pub fn cleaner(place: Place) -> AbortHandle {
    let clean = async move |connection: &mut Conn| -> Outcome {
        let age = TOO_OLD.as_secs();
        connection.query_drop(TABLE).await?;
        let remove = "DELETE FROM locks WHERE taken < NOW(3) - INTERVAL ? SECOND";
        Ok(connection.exec_drop(remove, (age,)).await?)
    };
    let job = async move {
        let mut connection = None;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let Ok(address) = place.address() else { return };
            if connection.is_none() {
                connection = Conn::new(options(address)).await.ok();
            }
            let Some(open) = connection.as_mut() else { continue };
            if clean(open).await.is_err() {
                connection = None;
            }
        }
    };
    tokio::spawn(job).abort_handle()
}

#[async_trait]
impl Recipe for UniqueRow {
    async fn acquire(&self) -> Outcome<Grant> {
        let mut connection = self.kept.take().await?;
        let insert = "INSERT INTO locks VALUES (?, ?, 1, NOW(3))";
        loop {
            match connection.exec_drop(insert, (&self.name, &self.owner)).await {
                Ok(()) => break,
                Err(mysql_async::Error::Server(error)) if error.code == DUPLICATE => {}
                Err(error) => return Err(error.into()),
            }
            let again = "UPDATE locks SET count = count + 1 WHERE name = ? AND owner = ?";
            connection.exec_drop(again, (&self.name, &self.owner)).await?;
            if connection.affected_rows() == 1 {
                break;
            }
            poll().await;
        }
        self.kept.put(connection);
        let (kept, name, owner) = (self.kept.clone(), self.name.clone(), self.owner.clone());
        Ok(Grant::new(async move {
            let mut connection = kept.take().await?;
            let delete = "DELETE FROM locks WHERE name = ? AND owner = ?";
            connection.exec_drop(delete, (name, owner)).await?;
            let was_held = connection.affected_rows() == 1;
            kept.put(connection);
            if was_held { Ok(()) } else { Err("the row is gone".into()) }
        }))
    }
}
