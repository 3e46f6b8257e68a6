//! Workers take turns with one lock, in the order in which they queued. Then a holder loses the lock.
//!
//! ```console
//! $ zk-docker/run cargo run --example fair_mutex
//! ```

use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::{Mutex, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let mut workers = Vec::new();
    for number in 1..=5 {
        // One session for each process is enough; here each worker stands for a process.
        let session = Session::connect(&hosts).await?;
        workers.push(tokio::spawn(work(number, session)));
    }
    for worker in workers {
        worker.await??;
    }

    let [one, other] = [Session::connect(&hosts).await?, Session::connect(&hosts).await?];
    let [mutex, same] = [Mutex::new(&one, "/examples/mutex")?, Mutex::new(&other, "/examples/mutex")?];
    let held = mutex.lock().await?;
    let next = same.enqueue().await?;
    same.break_lock(&same.contenders().await?[0]).await?;
    println!("the holder of token {} learns: {}", held.fencing_token(), held.lost().await);
    let guard = next.await?;
    println!("the next has the lock, with token {}", guard.fencing_token());
    drop(guard);
    one.close().await?;
    Ok(other.close().await?)
}

async fn work(number: usize, session: Session) -> Result<()> {
    let mutex = Mutex::new(&session, "/examples/mutex")?;
    for _ in 0..3 {
        let guard = mutex.lock().await?;
        println!("worker {number} has the lock, with token {}", guard.fencing_token());
        // The work; it is dropped at an `await` when the lock is lost.
        guard.run_until_lost(sleep(Duration::from_millis(20))).await?;
        drop(guard);
    }
    Ok(session.close().await?)
}
