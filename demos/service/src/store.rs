//! Owns [`Store`]: orders and shipments in SQLite, which refuses a fencing token older than the newest that it has seen.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::task::spawn_blocking;
use zookeeper_recipes::FencingToken;

use crate::failure::Failure;

// `shipments` has no unique key on purpose: it stands for systems that know neither transactions nor tokens. In a table
// of your own, have one.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, token INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS shipments (id TEXT NOT NULL, token INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS report (id INTEGER PRIMARY KEY, token INTEGER NOT NULL, shipped INTEGER NOT NULL);";

#[derive(Clone)]
pub(crate) struct Store(Arc<Mutex<Connection>>);

impl Store {
    pub(crate) fn open(file: &Path) -> Result<Self, rusqlite::Error> {
        let connection = Connection::open(file)?;
        // How long a transaction waits for those of other processes.
        connection.busy_timeout(Duration::from_secs(1))?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Adds an order, unless it is there.
    pub(crate) async fn place(&self, id: String) -> Result<(), Failure> {
        let statement = "INSERT OR IGNORE INTO orders (id) VALUES (?1)";
        self.transaction(move |orders| Ok(orders.execute(statement, [id]).map(drop)?)).await
    }

    /// Whether the order was shipped before. From now on older tokens are refused: a read that did not record its
    /// token would let an older holder write between it and the write that follows.
    pub(crate) async fn is_shipped(&self, id: String, token: FencingToken) -> Result<bool, Failure> {
        self.transaction(move |orders| check(orders, &id, token)).await
    }

    /// Records that the order is shipped.
    pub(crate) async fn ship(&self, id: String, token: FencingToken) -> Result<(), Failure> {
        self.transaction(move |orders| {
            check(orders, &id, token)?;
            orders.execute("INSERT INTO shipments VALUES (?1, ?2)", params![id, token.get()])?;
            Ok(())
        })
        .await
    }

    /// Writes the leader's report: how many orders were shipped.
    pub(crate) async fn report(&self, token: FencingToken) -> Result<(), Failure> {
        self.transaction(move |orders| {
            let written = orders.execute(
                "INSERT INTO report VALUES (1, ?1, (SELECT COUNT(*) FROM shipments)) ON CONFLICT (id)
                 DO UPDATE SET token = excluded.token, shipped = excluded.shipped WHERE token <= excluded.token",
                [token.get()],
            )?;
            if written == 1 { Ok(()) } else { Err(Failure::Outdated) }
        })
        .await
    }

    /// Dropping the future does not take the work back. That is one more reason to check tokens.
    pub(crate) async fn transaction<T, F>(&self, work: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    {
        let connection = self.0.clone();
        // SQLite blocks its thread, which the session of ZooKeeper needs.
        spawn_blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })
        .await
        .unwrap_or(Err(Failure::NotNow("the store has stopped")))
    }
}

/// Refuses an old token; returns whether the order was shipped.
fn check(orders: &Transaction<'_>, id: &str, token: FencingToken) -> Result<bool, Failure> {
    let accepted = "UPDATE orders SET token = ?2 WHERE id = ?1 AND token <= ?2
                    RETURNING EXISTS (SELECT 1 FROM shipments WHERE shipments.id = ?1)";
    let shipped = orders.query_row(accepted, params![id, token.get()], |row| row.get(0)).optional()?;
    match shipped {
        Some(shipped) => Ok(shipped),
        None if orders.prepare("SELECT 1 FROM orders WHERE id = ?1")?.exists([id])? => Err(Failure::Outdated),
        None => Err(Failure::NotFound),
    }
}
