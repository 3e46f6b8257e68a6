//! A job runs once in a fleet, although the clock of every machine starts it. One machine runs it. The others wait, and
//! then find it recorded, or take over if the runner has died.
//!
//! ```console
//! $ zk-docker/run bash -c 'for machine in 1 2 3; do cargo run --example cron -- 02:00 & done; wait'
//! ```

use std::time::Duration;

use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Mutex, Session};

/// The last completed run. Runs are compared as text.
const RECORD: &str = "/cron/last-report";
/// One lock for all runs, so that an earlier run never overwrites the record of a later one.
const LOCK: &str = "/cron/lock";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let due = std::env::args().nth(1).unwrap_or_else(|| "02:00".to_owned());
    let machine = format!("machine {}", std::process::id());
    let session = Session::connect(&hosts).await?;
    let client = session.client().ok_or("the session was closed")?;
    client.mkdir(RECORD, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;

    // Not `try_lock`: if the runner dies, another machine must be waiting.
    let guard = Mutex::new(&session, LOCK)?.lock().await?;
    let (last, _) = client.get_data(RECORD).await?;
    if *last >= *due.as_bytes() {
        println!("{machine}: {due} is done already");
    } else {
        println!("{machine}: runs {due}");
        guard.run_until_lost(tokio::time::sleep(Duration::from_secs(2))).await?;
        // Fails if the lock was lost, so only the holder records a run. If the runner dies after the work and before
        // this write, another machine runs the job again.
        let mut writer = guard.check_writer()?;
        writer.add_set_data(RECORD, due.as_bytes(), None)?;
        writer.commit().await?;
        println!("{machine}: has run {due}");
    }
    guard.release().await?;
    drop(client);
    Ok(session.close().await?)
}
