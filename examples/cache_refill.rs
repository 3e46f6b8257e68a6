//! The first server to find a cache stale fills it, and goes on reading without a gap. No server fills it twice.
//!
//! ```console
//! $ zk-docker/run cargo run --example cache_refill
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::JoinSet;
use zookeeper_recipes::{RwLock, RwLockReadGuard, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let cache = Arc::new(AtomicU32::new(0)); // The day of its prices. All servers share it.
    for today in 1..=3 {
        let mut servers = JoinSet::new();
        for server in 1..=4 {
            servers.spawn(serve(server, Session::connect(&hosts).await?, cache.clone(), today));
        }
        servers.join_all().await.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

async fn serve(server: u32, session: Session, cache: Arc<AtomicU32>, today: u32) -> Result<()> {
    let lock = RwLock::new(&session, "/examples/prices")?;
    let reading = read_prices_of(today, server, &lock, &cache).await?;
    println!("day {today}: server {server} reads, with token {}", reading.fencing_token());
    drop(reading);
    Ok(session.close().await?)
}

async fn read_prices_of(today: u32, server: u32, lock: &RwLock, cache: &AtomicU32) -> Result<RwLockReadGuard> {
    let reading = lock.read().await?;
    if cache.load(Ordering::SeqCst) == today {
        return Ok(reading);
    }
    // A reader cannot become a writer: two readers that tried would wait for each other.
    drop(reading);
    let writing = lock.write().await?;
    // Another server may have filled it meanwhile.
    if cache.swap(today, Ordering::SeqCst) != today {
        println!("day {today}: server {server} fills the cache");
    }
    Ok(writing.downgrade().await?)
}
