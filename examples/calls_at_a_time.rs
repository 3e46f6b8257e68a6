//! A whole fleet makes at most four calls at a time to an API; a batch counts as three. No caller is overtaken, so small
//! calls cannot starve a batch.
//!
//! ```console
//! $ zk-docker/run cargo run --example calls_at_a_time
//! ```

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use zookeeper_recipes::{Semaphore, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let mut services = JoinSet::new();
    for service in ["orders", "parcels", "returns"] {
        services.spawn(serve(service, Session::connect(&hosts).await?));
    }
    services.join_all().await.into_iter().collect()
}

async fn serve(service: &'static str, session: Session) -> Result<()> {
    // All services must agree on the number of permits.
    let permits = Semaphore::new(&session, "/examples/calls-at-a-time", 4)?;
    let mut calls = JoinSet::new();
    for weight in [1, 3, 1, 1] {
        calls.spawn(call(service, weight, permits.clone()));
    }
    calls.join_all().await.into_iter().collect::<Result<()>>()?;
    Ok(session.close().await?)
}

async fn call(service: &str, weight: u32, permits: Semaphore) -> Result<()> {
    let queued = Instant::now();
    let permit = permits.acquire_many(weight).await?;
    println!("{service} calls, with {weight} of 4 permits, after {:.0?}", queued.elapsed());
    // The call. Once the permit is lost, another service may call instead.
    permit.run_until_lost(tokio::time::sleep(Duration::from_millis(50))).await?;
    Ok(())
}
