//! Five builds share three licences of a compiler, each of which has a number. No two builds use one at a time, and a
//! licence that was lost is used no longer.
//!
//! ```console
//! $ zk-docker/run cargo run --example slots
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use zookeeper_groups::Slots;
use zookeeper_recipes::Session;

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
    let licences = Slots::new(&session, "/examples/slots", 3)?;
    // Two of the five wait here until one is released.
    let licence = licences.claim().await?;
    println!("build {name} has licence {} with token {}", licence.number(), licence.fencing_token());
    // It is dropped if the licence is lost, as it is when the session ends.
    licence.run_until_lost(tokio::time::sleep(Duration::from_millis(500))).await?;
    let last = licence.number();
    licence.release().await?;
    // Its second part rather uses the same one, and does without if there is none.
    match licences.with_preferred(last).try_claim().await? {
        Some(licence) => println!("build {name} goes on with licence {}", licence.number()),
        None => println!("build {name} goes on without a licence"),
    }
    Ok(session.close().await?)
}
