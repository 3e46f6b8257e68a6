//! A version column: read the value with its version, and write it if the version is still the same. No lock: where
//! others wait, this one does its work again.
//!
//! Source: "optimistic locking" in every manual of object-relational mappers. It promises that no update of *its own*
//! row is lost, and nothing about anything else that is done in between.
//!
//! The seam: its lock grants at once, and its counter is this row instead of the laboratory's store.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, params};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{Pause, Place};
use crate::Outcome;
use crate::servers::mariadb::options;
use crate::store::Counter;

struct NoLock;

/// Connects to nothing.
pub fn connect(_place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async { Ok(Arc::new(Textbook(NoLock)) as Arc<dyn DistributedLock>) }.boxed()
}

#[async_trait]
impl Recipe for NoLock {
    async fn acquire(&self) -> Outcome<Grant> {
        Ok(Grant::new(async { Ok(()) }))
    }
}

/// The row.
#[derive(Debug)]
pub struct Versioned {
    connection: Conn,
    name: String,
    /// What the row had when it was last read.
    version: i64,
}

impl Versioned {
    /// Connects to the row, and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub async fn connect(place: &Place) -> Outcome<Self> {
        let mut connection = Conn::new(options(place.address()?)).await?;
        let table = "CREATE TABLE IF NOT EXISTS counters \
                     (name VARCHAR(99) PRIMARY KEY, value BIGINT NOT NULL, version BIGINT NOT NULL)";
        connection.query_drop(table).await?;
        connection.exec_drop("INSERT IGNORE INTO counters VALUES (?, 0, 0)", (&place.lock,)).await?;
        Ok(Self { connection, name: place.lock.clone(), version: 0 })
    }
}

#[async_trait]
impl Counter for Versioned {
    async fn read(&mut self, _token: Option<i64>) -> Outcome<Option<i64>> {
        let select = "SELECT value, version FROM counters WHERE name = ?";
        let row: Option<(i64, i64)> = self.connection.exec_first(select, (&self.name,)).await?;
        let (value, version) = row.ok_or("the row is gone")?;
        self.version = version;
        Ok(Some(value))
    }

    async fn write(&mut self, value: i64, _token: Option<i64>) -> Outcome<bool> {
        let update = "UPDATE counters SET value = :value, version = version + 1 \
                      WHERE name = :name AND version = :version";
        let values = params! { "value" => value, "name" => &self.name, "version" => self.version };
        self.connection.exec_drop(update, values).await?;
        Ok(self.connection.affected_rows() == 1)
    }
}
