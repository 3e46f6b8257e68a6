//! A worker hangs in a read. Its process lives, but its work does not move, so it loses the lock, and the next does the work.
//!
//! ```console
//! $ zk-docker/run cargo run --example stall_limit
//! ```

use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::{Mutex, Options, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let (first, second) = (copy("first", Session::connect(&hosts).await?, 3), Session::connect(&hosts).await?);
    let first = tokio::spawn(first);
    sleep(Duration::from_millis(200)).await;
    let done = copy("second", second, usize::MAX).await;
    println!("the first worker ended: {}", first.await?.expect_err("it hangs"));
    done
}

/// Copies ten files under the lock. A read of file `hangs_at` never returns.
async fn copy(name: &str, session: Session, hangs_at: usize) -> Result<()> {
    let options =
        Options::new().with_stall_limit(Duration::from_secs(1)).with_start_limit(Duration::from_secs(10));
    let guard = Mutex::with_options(&session, "/examples/stall", options)?.lock().await?;
    let copied = guard.run_until_lost(async {
        for file in 0..10 {
            if file == hangs_at {
                pending::<()>().await;
            }
            sleep(Duration::from_millis(300)).await;
            println!("{name}: file {file}, with token {}", guard.fencing_token());
            guard.progress();
        }
    });
    copied.await?;
    Ok(guard.release().await?)
}
