//! Ships orders from any number of processes with one database. Each order belongs to a shard, and each shard to one process at a time.
//! This is the program to copy for shards: settings, a store that refuses former owners, and the end at SIGTERM.
//!
//! ```console
//! $ zk-docker/run bash
//! $ cargo run -p demos --bin orders -- --name orders-0 --database /tmp/orders.db --place 1000
//! $ cargo run -p demos --bin orders -- --name orders-1 --database /tmp/orders.db    # in another terminal, with the same ZK_HOSTS
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_groups::Shards;
use zookeeper_groups::shards::Shard;
use zookeeper_recipes::{Config, FencingToken, Session};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The same in all processes, for as long as the group exists.
const GROUP: &str = "/shards/orders";
const SHARDS: u32 = 16;

/// The servers of ZooKeeper come from the variables `ZK_*`, as those of all services.
#[derive(Parser)]
struct Settings {
    /// The name of this process in the group: the same after a restart, and no other process's
    #[arg(long, env = "HOSTNAME")]
    name: String,
    /// The database that all processes share
    #[arg(long, env)]
    database: PathBuf,
    /// Seconds for which the shards of a process that has gone wait for it: longer than a restart takes
    #[arg(long, env, default_value = "20")]
    grace: u64,
    /// Places this many orders first, as a shop would
    #[arg(long, default_value = "0")]
    place: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().init();
    let settings = Settings::parse();
    // Before all that SIGTERM would kill otherwise.
    let mut terminate = signal(SignalKind::terminate())?;
    let store = Store::open(&settings.database)?;
    store.place(settings.place)?;

    let session = Session::connect(&Config::from_env("ZK")?).await?;
    let grace = Duration::from_secs(settings.grace);
    let shards = Shards::builder(GROUP, SHARDS).name(&settings.name).grace(grace).build(&session)?;
    let mut running = tokio::spawn(shards.run(move |shard| serve(shard, store.clone())));
    let ended = tokio::select! {
        ended = &mut running => ended,
        _ = terminate.recv() => {
            // For a restart: the shards wait for this process. `leave` would hand them over.
            shards.stop();
            running.await
        }
    };
    // The exit code does not depend on it: a session that cannot be closed now ends by itself.
    match session.drain(Duration::from_secs(10)).await {
        Ok(_) => tracing::info!("drained"),
        Err(error) => tracing::warn!(%error, "locks may stay until the session expires"),
    }
    Ok(ended??)
}

/// Ships the orders of a shard until it is to be released. When the shard is lost, this future is dropped at its next `await`.
async fn serve(shard: Shard, store: Store) {
    let (number, token) = (shard.number(), shard.fencing_token());
    match store.begin(number, token).await {
        Ok(true) => tracing::info!(number, %token, "owned"),
        Ok(false) => return tracing::warn!(number, %token, "the store has seen a newer token"),
        // The shard is served again after a pause.
        Err(error) => return tracing::warn!(number, %error, "cannot begin"),
    }
    let mut turns = interval(Duration::from_millis(100));
    // No orders make up for a pause of the process.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = std::pin::pin!(shard.revoke_requested());
    loop {
        tokio::select! {
            () = &mut asked => return tracing::info!(number, "released"),
            _ = turns.tick() => {}
        }
        match store.ship_next(number, token).await {
            Ok(Some(order)) => tracing::info!(number, order, "shipped"),
            Ok(None) => {}
            Err(error) => tracing::warn!(number, %error, "cannot ship"),
        }
    }
}

/// Orders in SQLite. The table `shards` is the fence: the largest token of each shard.
#[derive(Clone)]
struct Store(Arc<Mutex<Connection>>);

impl Store {
    fn open(file: &Path) -> Result<Self> {
        let connection = Connection::open(file)?;
        // How long a statement waits for those of other processes.
        connection.busy_timeout(Duration::from_secs(2))?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS shards (shard INTEGER PRIMARY KEY, token BIGINT NOT NULL);
             CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, shard INTEGER NOT NULL, token BIGINT);
             CREATE INDEX IF NOT EXISTS waiting ON orders (shard, id) WHERE token IS NULL;",
        )?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    fn place(&self, count: u32) -> Result<()> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = connection.transaction()?;
        for order in 0..count {
            orders.execute("INSERT INTO orders (shard) VALUES (?1)", [order % SHARDS])?;
        }
        Ok(orders.commit()?)
    }

    /// Records the token of a new owner: nothing of former owners is accepted any more. Returns whether it is the newest.
    async fn begin(&self, shard: u32, token: FencingToken) -> Result<bool> {
        let statement = "INSERT INTO shards VALUES (?1, ?2)
                         ON CONFLICT (shard) DO UPDATE SET token = excluded.token WHERE token <= excluded.token";
        self.run(move |store| Ok(store.execute(statement, params![shard, token.get()])? == 1)).await
    }

    /// Ships the first order that waits, and checks the token in the same statement. `None` if no order waits, or the token is old.
    async fn ship_next(&self, shard: u32, token: FencingToken) -> Result<Option<i64>> {
        // In PostgreSQL the inner select of `shards` needs FOR SHARE.
        let statement = "UPDATE orders SET token = ?2
                         WHERE id = (SELECT MIN(id) FROM orders WHERE shard = ?1 AND token IS NULL)
                         AND EXISTS (SELECT 1 FROM shards WHERE shard = ?1 AND token = ?2) RETURNING id";
        self.run(move |store| store.query_row(statement, params![shard, token.get()], |row| row.get(0)).optional())
            .await
    }

    /// Dropping the future does not take the statement back. That is one more reason to check tokens.
    async fn run<T, F>(&self, statement: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let connection = self.0.clone();
        // SQLite blocks its thread, which the session of ZooKeeper needs.
        let run = move || statement(&connection.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(tokio::task::spawn_blocking(run).await??)
    }
}

#[cfg(test)]
mod tests {
    use zookeeper_recipes::FencingToken;

    use super::{Result, SHARDS, Store};

    #[tokio::test]
    async fn former_owner_ships_nothing() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&folder.path().join("orders"))?;
        store.place(2 * SHARDS)?;
        let (older, newer) = (FencingToken::try_from(7_i64)?, FencingToken::try_from(8_i64)?);
        assert!(store.begin(3, older).await?);
        assert!(store.ship_next(3, older).await?.is_some());
        assert!(store.begin(3, newer).await?);
        assert_eq!(store.ship_next(3, older).await?, None);
        assert!(!store.begin(3, older).await?);
        assert!(store.ship_next(3, newer).await?.is_some());
        assert_eq!(store.ship_next(3, newer).await?, None, "the shard had two orders");
        Ok(())
    }
}
