//! A worker has a share of the permits of a fleet, and its tasks use them without a request each. A worker that dies in
//! the semaphore's queue stops nobody that has its share.
//!
//! ```console
//! $ zk-docker/run cargo run --example share
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

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
    let (began, at_work) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut orders = JoinSet::new();
    for order in 0..100 {
        orders.spawn(handle(order, share.clone(), at_work.clone()));
    }
    orders.join_all().await.into_iter().collect::<Result<()>>()?;
    println!("100 orders in {:.0?}", began.elapsed());
    Ok(session.close().await?)
}

async fn handle(order: u32, share: SemaphoreShare, at_work: Arc<AtomicUsize>) -> Result<()> {
    // The first four acquire permits; the others wait for one that is returned.
    let permit = share.acquire().await?;
    // The work. It is dropped if the permit is lost, as it is when the session ends.
    let work = async {
        let others = at_work.fetch_add(1, Ordering::SeqCst);
        println!("order {order}, with the permit of token {}, beside {others} others", permit.fencing_token());
        tokio::time::sleep(Duration::from_millis(20)).await;
        at_work.fetch_sub(1, Ordering::SeqCst);
    };
    permit.run_until_lost(work).await?;
    Ok(())
}
