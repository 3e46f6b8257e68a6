//! A whole fleet makes at most four calls at a time to an API; a batch counts as three. No caller is overtaken, so small
//! calls cannot starve a batch.
//!
//! ```console
//! $ zk-docker/run cargo run --example rate_limit
//! ```

mod common;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_recipes::Semaphore;

use common::{Result, ensure};

const LIMIT: u32 = 4;
const SERVICES: [&str; 3] = ["orders", "parcels", "returns"];
/// The calls of each service, with their weights: single addresses, and a batch.
const CALLS: [u32; 5] = [1, 3, 1, 1, 1];
const CALL: Duration = Duration::from_millis(50);

/// The API. It counts its running calls.
#[derive(Default)]
struct Api {
    running: AtomicU32,
    most: AtomicU32,
}

impl Api {
    async fn call(&self, weight: u32) {
        let running = weight + self.running.fetch_add(weight, Ordering::SeqCst);
        self.most.fetch_max(running, Ordering::SeqCst);
        sleep(CALL).await;
        self.running.fetch_sub(weight, Ordering::SeqCst);
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let api = Arc::new(Api::default());
    let path = common::path();
    let (mut sessions, mut calls) = (Vec::new(), JoinSet::new());
    println!("{} calls, of which the API allows {LIMIT} at a time\n", SERVICES.len() * CALLS.len());
    println!("service   permits    waited");
    for service in SERVICES {
        let session = common::session(service).await?;
        let permits = Semaphore::new(&session, &path, LIMIT)?;
        sessions.push(session);
        for weight in CALLS {
            calls.spawn(call(service, weight, permits.clone(), api.clone()));
        }
    }
    while let Some(called) = calls.join_next().await {
        called??;
    }

    let most = api.most.load(Ordering::SeqCst);
    println!("\nthe API never ran more than {most} at a time");
    ensure(most <= LIMIT, "the API was overloaded")?;
    let session = &sessions[0];
    let free = Semaphore::new(session, &path, LIMIT)?.available_permits().await?;
    ensure(free == LIMIT, "not all permits were released")?;
    common::close(&sessions).await
}

async fn call(service: &str, weight: u32, permits: Semaphore, api: Arc<Api>) -> Result<()> {
    let joined = Instant::now();
    let permit = permits.acquire_many(weight).await?;
    let waited = joined.elapsed();
    println!("{service:<8}  {weight:7}  {:5} ms", waited.as_millis());
    // Once the permit is lost, another service may call instead.
    permit.run_until_lost(api.call(weight)).await?;
    Ok(permit.release().await?)
}
