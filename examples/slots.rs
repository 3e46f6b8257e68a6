//! Workers make ids that have the number of the worker in them. No two have one number at a time, and a number that was
//! lost is used no longer.
//!
//! ```console
//! $ zk-docker/run cargo run --example slots
//! ```

use tokio::task::JoinSet;
use zookeeper_recipes::{Session, Slots};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    // Three numbers for five workers: two of them wait until a number is free.
    let mut workers = JoinSet::new();
    for name in 'a'..='e' {
        let session = Session::connect(hosts.as_str()).await?;
        workers.spawn(work(name, session));
    }
    workers.join_all().await.into_iter().collect()
}

async fn work(name: char, session: Session) -> Result<()> {
    let slots = Slots::new(&session, "/examples/slots", 3)?;
    let slot = slots.claim().await?;
    println!("worker {name} has number {} with token {}", slot.number(), slot.fencing_token());
    // It is dropped if the number is lost, as it is when the session ends.
    slot.run_until_lost(async {
        for count in 0..3_u64 {
            println!("id {}", count << 10 | u64::from(slot.number()));
            tokio::task::yield_now().await;
        }
    })
    .await?;
    // Its next claim would rather have the same one.
    let last = slot.number();
    slot.release().await?;
    if let Some(slot) = slots.prefer(last).try_claim().await? {
        println!("worker {name} has number {} again, or another", slot.number());
    }
    Ok(session.close().await?)
}
