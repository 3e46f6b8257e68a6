//! A job runs once in a fleet, although the clock of every machine starts it. One machine runs it. The others wait, and
//! then find it recorded, or take over if the runner has died. A fire in an outage waits for the servers.
//!
//! ```console
//! $ zk-docker/run bash -c 'for machine in 1 2 3; do cargo run --example cron -- 02:00 & done; wait'
//! ```

use std::time::Duration;

use zookeeper_recipes::job::{JobOutcome, JobRecord};
use zookeeper_recipes::{Error, Job, Session};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let due = std::env::args().nth(1).unwrap_or_else(|| "02:00".to_owned());
    let machine = format!("machine {}", std::process::id());
    let session = Session::connect(&hosts).await?;

    // Recorded after the work, so that a run which was cut short is repeated; the wait is for that, too.
    let job = Job::new(&session, "/cron/report")?.with_record(JobRecord::After).with_wait_limit(Duration::MAX);
    let report = |_run| async {
        println!("{machine}: runs {due}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok::<_, Error>(())
    };
    match job.run(due.as_str(), report).await? {
        JobOutcome::Ran(()) => println!("{machine}: has run {due}"),
        JobOutcome::RanAlready { .. } => println!("{machine}: {due} is done already"),
        JobOutcome::Superseded { last, .. } => println!("{machine}: {last} came before {due}"),
        other => println!("{machine}: {other:?}"),
    }
    session.close().await
}
