//! A worker has a share of the permits of a fleet, and its tasks use them without a request each. A worker that dies in
//! the semaphore's queue stops nobody that has its share.
//!
//! ```console
//! $ zk-docker/run cargo run --example share
//! ```

use std::time::Instant;

use tokio::task::JoinSet;
use zookeeper_recipes::{Semaphore, SemaphoreShare, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let session = Session::connect(hosts).await?;
    // At most 8 orders at a time in the whole fleet, of which each of two workers has 4.
    let semaphore = Semaphore::new(&session, "/examples/share", 8)?;
    let share = SemaphoreShare::new(&semaphore, 4)?;
    let began = Instant::now();
    let mut orders = JoinSet::new();
    for order in 0..100 {
        orders.spawn(handle(order, share.clone()));
    }
    orders.join_all().await.into_iter().collect::<Result<()>>()?;
    println!("100 orders in {:.0?}, 4 at a time", began.elapsed());
    Ok(session.close().await?)
}

async fn handle(order: u32, share: SemaphoreShare) -> Result<()> {
    // The first four acquire permits; the others wait for one that is returned.
    let permit = share.acquire().await?;
    // The work. It is dropped if the permit is lost, as it is when the session ends.
    permit
        .run_until_lost(async { println!("order {order}, with the permit of token {}", permit.fencing_token()) })
        .await?;
    Ok(())
}
