//! `SELECT … FOR UPDATE` in a transaction: the row's lock is the lock, and `COMMIT` releases it. In a table without an index
//! the server reads every row to find the one, and locks every row that it reads.
//!
//! Source: MariaDB's documentation of locking reads. It promises exclusion while the transaction is open, and that the
//! end of the connection ends it. The server learns of a silent client late, and the client of a lost transaction only
//! at its next statement.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::mariadb_unique_row::Kept;
use super::{Pause, Place};
use crate::Outcome;

struct ForUpdate {
    kept: Kept,
    table: &'static str,
    name: String,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    connect_to(place, "rows_to_lock", "name VARCHAR(99) PRIMARY KEY").boxed()
}

/// Connects a contender to a table that has no index.
pub fn connect_without_index(
    place: Place,
    _pause: Pause,
) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    connect_to(place, "rows_without_index", "name VARCHAR(99) NOT NULL").boxed()
}

async fn connect_to(place: Place, table: &'static str, columns: &str) -> Outcome<Arc<dyn DistributedLock>> {
    let kept = Kept::to(&place)?;
    let mut connection = kept.take().await?;
    connection.query_drop(format!("CREATE TABLE IF NOT EXISTS {table} ({columns})")).await?;
    // A holder of the row would block an insert.
    let select = format!("SELECT name FROM {table} WHERE name = ?");
    let row: Option<String> = connection.exec_first(select, (&place.lock,)).await?;
    if row.is_none() {
        connection.exec_drop(format!("INSERT IGNORE INTO {table} VALUES (?)"), (&place.lock,)).await?;
    }
    kept.put(connection);
    Ok(Arc::new(Textbook(ForUpdate { kept, table, name: place.lock })))
}

#[async_trait]
impl Recipe for ForUpdate {
    async fn acquire(&self) -> Outcome<Grant> {
        let mut connection = self.kept.take().await?;
        connection.query_drop("START TRANSACTION").await?;
        let select = format!("SELECT name FROM {} WHERE name = ? FOR UPDATE", self.table);
        let row: Option<String> = connection.exec_first(select, (&self.name,)).await?;
        row.ok_or("there is no such row")?;
        let kept = self.kept.clone();
        Ok(Grant::new(async move {
            connection.query_drop("COMMIT").await?;
            kept.put(connection);
            Ok(())
        }))
    }
}
