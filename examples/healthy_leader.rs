//! Two candidates. The first leads until its health check fails, and stands for election again when it is well.
//!
//! ```console
//! $ zk-docker/run cargo run --example healthy_leader
//! ```

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use zookeeper_recipes::{Election, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let (healthy, is_healthy) = watch::channel(true);
    let (_always, is_always) = watch::channel(true);
    let first = tokio::spawn(stand("first", Session::connect(&hosts).await?, is_healthy));
    sleep(Duration::from_millis(500)).await;
    let second = tokio::spawn(stand("second", Session::connect(&hosts).await?, is_always));
    for health in [false, true] {
        sleep(Duration::from_secs(2)).await;
        println!("the health check of the first says {health}");
        healthy.send_replace(health);
    }
    sleep(Duration::from_secs(2)).await;
    first.abort();
    second.abort();
    Ok(())
}

async fn stand(name: &'static str, session: Session, healthy: watch::Receiver<bool>) -> Result<()> {
    let election = Election::new(&session, "/examples/healthy")?.eligible(healthy);
    let leading = election.run(move |term| async move {
        println!("{name} leads, with token {}", term.fencing_token());
        // The work, until the term is to end.
        term.revoke_requested().await;
        println!("{name} resigns");
    });
    Ok(leading.await?)
}
