//! A migration runs once, although every pod starts it. The other pods wait for it, and a pod that starts later
//! needs one read.
//!
//! ```console
//! $ zk-docker/run cargo run --example migrations
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use zookeeper_recipes::job::{JobOutcome, JobRecord};
use zookeeper_recipes::{Error, FencingToken, Job, Session};

/// The last migration that this program needs. A number, and no text: as text "1.10" comes before "1.9".
const VERSION: u64 = 7;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let mut pods = JoinSet::new();
    for pod in 1..=3 {
        pods.spawn(start(hosts.clone(), pod, VERSION));
    }
    pods.join_all().await.into_iter().collect::<Result<(), _>>()?;
    // After a rollback.
    start(hosts, 4, VERSION - 1).await
}

/// What a pod does before it serves.
async fn start(hosts: String, pod: u32, version: u64) -> Result<(), Error> {
    let session = Session::connect(hosts).await?;
    // Recorded after the work, so a migration that was cut short is run again. Its steps must bear that.
    let job = Job::new(&session, "/examples/migrations")?.with_record(JobRecord::After);
    let job = job.with_wait_limit(Duration::from_secs(600));
    match job.run(version, |run| migrate(pod, version, run.fencing_token())).await? {
        JobOutcome::Ran(()) => println!("pod {pod}: has migrated to {version}"),
        JobOutcome::RanAlready { .. } => println!("pod {pod}: the schema has version {version}"),
        // It is newer only because versions are numbers here.
        JobOutcome::Superseded { last, .. } => println!("pod {pod}: the schema is newer: {last}"),
        other => println!("pod {pod}: does not serve: {other:?}"),
    }
    session.close().await
}

/// The database refuses older tokens, so a pod that was stopped within the migration changes nothing later.
async fn migrate(pod: u32, version: u64, token: FencingToken) -> Result<(), Error> {
    println!("pod {pod}: migrates to {version} with token {token}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(())
}
