//! The limit of a semaphore changes while callers wait. Services in other processes follow the same number.
//!
//! ```console
//! $ zk-docker/run cargo run --example limit
//! $ zklock count /examples/limit/count 5    # an operator does the same
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_groups::SharedCount;
use zookeeper_recipes::{Options, Semaphore, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let session = Session::connect(&hosts).await?;
    // 1 until somebody sets another number.
    let count = SharedCount::follow(&session, "/examples/limit/count", 1).await?;
    let api = Semaphore::following(&session, "/examples/limit/api", count.watch(), Options::new())?;
    let mut calls = JoinSet::new();
    for call in 1..=6 {
        calls.spawn(run(api.clone(), call));
    }
    sleep(Duration::from_millis(500)).await;
    println!("an operator allows 3 calls at a time");
    count.set(3).await?;
    calls.join_all().await.into_iter().collect::<Result<()>>()?;
    if let Some(set) = SharedCount::read_at(&session, "/examples/limit/count").await? {
        println!("{} set by {} at {:?}", set.count, String::from_utf8_lossy(&set.by), set.at);
    }
    count.set(1).await?;
    Ok(session.close().await?)
}

async fn run(api: Semaphore, call: u32) -> Result<()> {
    let permit = api.acquire().await?;
    println!("call {call} runs, one of at most {}", api.permits());
    sleep(Duration::from_millis(300)).await;
    Ok(permit.release().await?)
}
