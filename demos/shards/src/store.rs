//! Owns [`Store`]: pairs of a key and a value in SQLite. It refuses a write whose fencing token is older than the newest of its shard.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use demos::Result;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tokio::task::spawn_blocking;

// The log is not for the service: the demonstration judges it at the end.
const SCHEMA: &str = "
    CREATE TABLE shards (shard INTEGER PRIMARY KEY, token INTEGER NOT NULL);
    CREATE TABLE pairs (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
    CREATE TABLE log (number INTEGER PRIMARY KEY, shard INTEGER, token INTEGER, owner TEXT, key TEXT, value INTEGER);";

#[derive(Clone)]
pub(crate) struct Store(Arc<Mutex<Connection>>);

/// A write, with the shard of its key and the token of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) shard: u32,
    pub(crate) token: i64,
    pub(crate) owner: String,
    pub(crate) key: String,
    pub(crate) value: u64,
}

impl Store {
    pub(crate) fn create(folder: &Path) -> Result<()> {
        let connection = connect(folder)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        Ok(connection.execute_batch(SCHEMA)?)
    }

    pub(crate) fn open(folder: &Path) -> Result<Self> {
        Ok(Self(Arc::new(Mutex::new(connect(folder)?))))
    }

    /// Records the token of a new owner, so that nothing of earlier owners is accepted any more. Returns whether it is the newest.
    pub(crate) async fn begin(&self, shard: u32, token: i64) -> Result<bool> {
        self.transaction(|| {}, move |transaction| is_newest(transaction, shard, token)).await
    }

    /// Writes, after `first`. Returns whether the token was accepted.
    ///
    /// Dropping the future does not take the write back. That is one more reason to check tokens.
    pub(crate) async fn write(&self, write: Write, first: impl FnOnce() + Send + 'static) -> Result<bool> {
        let written = move |transaction: &Transaction<'_>| {
            let Write { shard, token, owner, key, value } = write;
            if !is_newest(transaction, shard, token)? {
                return Ok(false);
            }
            transaction.execute("INSERT OR REPLACE INTO pairs VALUES (?1, ?2)", params![key, value])?;
            let log = "INSERT INTO log (shard, token, owner, key, value) VALUES (?1, ?2, ?3, ?4, ?5)";
            transaction.execute(log, params![shard, token, owner, key, value])?;
            Ok(true)
        };
        self.transaction(first, written).await
    }

    /// All writes that were accepted, in their order.
    pub(crate) fn log(&self) -> Result<Vec<Write>> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement =
            connection.prepare("SELECT shard, token, owner, key, value FROM log ORDER BY number")?;
        let writes = statement.query_map([], |row| {
            let (shard, token, owner) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Write { shard, token, owner, key: row.get(3)?, value: row.get(4)? })
        });
        Ok(writes?.collect::<rusqlite::Result<_>>()?)
    }

    /// The value of each key.
    pub(crate) fn pairs(&self) -> Result<Vec<(String, u64)>> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = connection.prepare("SELECT key, value FROM pairs")?;
        let pairs = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(pairs?.collect::<rusqlite::Result<_>>()?)
    }

    async fn transaction<F>(&self, first: impl FnOnce() + Send + 'static, work: F) -> Result<bool>
    where
        F: FnOnce(&Transaction<'_>) -> rusqlite::Result<bool> + Send + 'static,
    {
        let connection = self.0.clone();
        // SQLite blocks its thread, which the session of ZooKeeper needs.
        let done = spawn_blocking(move || -> rusqlite::Result<bool> {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            // No transaction of this process is open now: a process that is stopped within one stops all others.
            first();
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let is_accepted = work(&transaction)?;
            transaction.commit()?;
            Ok(is_accepted)
        });
        Ok(done.await??)
    }
}

fn connect(folder: &Path) -> Result<Connection> {
    let connection = Connection::open(folder.join("pairs"))?;
    // How long a transaction waits for those of other processes.
    connection.busy_timeout(Duration::from_secs(2))?;
    // No machine loses its power in this demonstration.
    connection.pragma_update(None, "synchronous", "OFF")?;
    Ok(connection)
}

/// Whether no newer token was recorded. Then this one is.
fn is_newest(transaction: &Transaction<'_>, shard: u32, token: i64) -> rusqlite::Result<bool> {
    let statement = "INSERT INTO shards VALUES (?1, ?2)
                     ON CONFLICT (shard) DO UPDATE SET token = excluded.token WHERE token <= excluded.token";
    Ok(transaction.execute(statement, params![shard, token])? == 1)
}
