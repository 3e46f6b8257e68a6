//! Candidates elect a leader that serves, and an observer learns its address. Each term ends after a while, and another
//! candidate leads. In the end all candidates stop, leaders and followers alike.
//!
//! ```console
//! $ zk-docker/run cargo run --example leader
//! ```

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_recipes::{Election, Options, Session};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let (stop, stopped) = watch::channel(false);
    let mut candidates = JoinSet::new();
    for address in ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"] {
        candidates.spawn(campaign(Session::connect(&hosts).await?, address, stopped.clone()));
    }
    let session = Session::connect(&hosts).await?;
    let mut observer = Election::new(&session, "/examples/leader")?.observe();
    for _ in 0..6 {
        match observer.changed().await? {
            Some(leader) => println!("{} leads, with token {}", leader.identifier_lossy(), leader.token()),
            None => println!("nobody leads"),
        }
    }
    stop.send_replace(true);
    candidates.join_all().await.into_iter().collect::<Result<()>>()?;
    Ok(session.close().await?)
}

async fn campaign(session: Session, address: &'static str, mut stopped: watch::Receiver<bool>) -> Result<()> {
    let election = Election::with_options(&session, "/examples/leader", Options::new().with_identifier(address))?;
    // As a service does on SIGTERM: a leader finishes its term and resigns, and a follower withdraws.
    let stop = async { drop(stopped.wait_for(|stopped| *stopped).await) };
    let leads = election.run_until(stop, |term| async move {
        println!("{address} serves, with token {}", term.fencing_token());
        // The next term begins when the tasks of this one have ended.
        term.spawn(async { tokio::time::sleep(Duration::from_millis(200)).await });
    });
    leads.await?;
    Ok(session.close().await?)
}
