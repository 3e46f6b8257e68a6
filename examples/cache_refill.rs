//! Servers share a cache under a read-write lock. The first server to find it stale becomes the writer, fills it, and
//! continues as a reader without a gap. No server fills it twice.
//!
//! ```console
//! $ zk-docker/run cargo run --example cache_refill
//! ```

mod common;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_recipes::{FencingToken, RwLock, RwLockReadGuard, Session};

use common::{Result, ensure};

const SERVERS: usize = 5;
const DAYS: u32 = 3;
const LOADING: Duration = Duration::from_millis(100);

/// The cache of all servers. It refuses tokens older than the newest that it has seen.
#[derive(Default)]
struct Cache(Mutex<Prices>);

#[derive(Clone, Default)]
struct Prices {
    day: u32,
    refills: u32,
    newest: Option<FencingToken>,
}

impl Cache {
    fn prices(&self) -> Prices {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fill(&self, day: u32, token: FencingToken) -> Result<()> {
        let mut prices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(prices.newest <= Some(token), "a writer came late")?;
        *prices = Prices { day, refills: prices.refills + 1, newest: Some(token) };
        Ok(())
    }
}

#[derive(Clone)]
struct Server {
    name: String,
    session: Session,
    lock: RwLock,
    cache: Arc<Cache>,
    /// Opens when all servers have reached it.
    all: Arc<Barrier>,
}

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let (cache, all) = (Arc::new(Cache::default()), Arc::new(Barrier::new(SERVERS)));
    let mut serving = JoinSet::new();
    for number in 1..=SERVERS {
        let name = format!("server {number}");
        let session = common::session(&name).await?;
        let lock = RwLock::new(&session, &common::path())?;
        let server = Server { name, session, lock, cache: cache.clone(), all: all.clone() };
        serving.spawn(server.serve());
    }
    while let Some(served) = serving.join_next().await {
        served??;
    }
    let refills = cache.prices().refills;
    println!("\n{refills} refills in {DAYS} days by {SERVERS} servers");
    ensure(refills == DAYS, "the cache was not filled once a day")
}

impl Server {
    async fn serve(self) -> Result<()> {
        for today in 1..=DAYS {
            let reading = self.read_prices_of(today).await?;
            ensure(self.cache.prices().day == today, "the prices are old")?;
            reading.release().await?;
            self.all.wait().await;

            let reading = self.lock.read().await?;
            // It opens when every server holds a guard.
            if self.all.wait().await.is_leader() {
                println!("day {today}  all {SERVERS} servers read the prices at the same time");
            }
            reading.release().await?;
        }
        Ok(self.session.close().await?)
    }

    /// Returns a reader's guard once the prices are today's; loads them if they are not.
    async fn read_prices_of(&self, today: u32) -> Result<RwLockReadGuard> {
        let reading = self.lock.read().await?;
        if self.cache.prices().day == today {
            return Ok(reading);
        }
        // A reader cannot become a writer: two readers that tried would wait for each other.
        reading.release().await?;
        let writing = self.lock.write().await?;
        // Another server may have loaded the prices meanwhile.
        if self.cache.prices().day == today {
            println!("day {today}  {} finds the prices loaded when its turn comes", self.name);
        } else {
            println!("day {today}  {} finds the prices old, and loads them", self.name);
            writing.run_until_lost(sleep(LOADING)).await?;
            self.cache.fill(today, writing.fencing_token())?;
        }
        Ok(writing.downgrade().await?)
    }
}
