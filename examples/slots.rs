//! Five builds share three licences of a compiler, each of which has a number. No two builds use one at a time, and a
//! licence that was lost is used no longer.
//!
//! ```console
//! $ zk-docker/run cargo run --example slots
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use zookeeper_groups::Slots;
use zookeeper_recipes::{Error, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let mut builds = JoinSet::new();
    for name in 'a'..='e' {
        // Each build would be a process of its own.
        let session = Session::connect(hosts.as_str()).await?;
        builds.spawn(build(name, session));
    }
    builds.join_all().await.into_iter().collect()
}

async fn build(name: char, session: Session) -> Result<()> {
    let mut kept = Slots::new(&session, "/examples/slots", 3)?.keep();
    loop {
        // Two of the five wait here until one is released.
        match kept.changed().await {
            Ok(Some((number, hold))) => {
                println!("build {name} has licence {number} with token {}", hold.fencing_token());
                // The work is dropped if the licence is lost, as when the session ends. Then another licence follows.
                if hold.run_until_lost(tokio::time::sleep(Duration::from_millis(500))).await.is_ok() {
                    break;
                }
            }
            Ok(None) => println!("build {name} has lost its licence"),
            Err(error @ (Error::Closed | Error::SessionEnded { .. })) => return Err(error.into()),
            Err(error) => eprintln!("build {name} tries again: {error}"),
        }
    }
    drop(kept);
    Ok(session.close().await?)
}
