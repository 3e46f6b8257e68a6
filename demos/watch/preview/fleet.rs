//! What the dashboard shows besides locks: a group of three members with 24 shards, one of which leaves for a while, and a job.
//! `preview/run` starts it with the address for Prometheus.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use zookeeper_groups::Shards;
use zookeeper_recipes::{Config, Error, Job, Session};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Between two runs of the job.
const PERIOD: Duration = Duration::from_secs(4);
/// How long the third member stays, and how long it is away.
const STAY: Duration = Duration::from_secs(25);

async fn member(session: Session, name: &str) -> Result<()> {
    let group = Shards::builder("/shards/orders", 24).name(name).grace(Duration::ZERO);
    let shards = group.settling_time(Duration::from_secs(1)).build(&session)?;
    Ok(shards.run(|shard| async move { shard.revoke_requested().await }).await?)
}

async fn job(session: Session) -> Result<()> {
    let job = Job::new(&session, "/cron/report")?;
    for run in 1_u64.. {
        drop(job.run(run, |_run| async { Ok::<_, Error>(()) }).await?);
        sleep(PERIOD).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let recorder = PrometheusBuilder::new().install_recorder()?;
    let address = std::env::args().nth(1).ok_or("usage: fleet ADDRESS")?;
    let config = Config::from_env("ZK")?;
    let (first, second) = (Session::connect(&config).await?, Session::connect(&config).await?);
    tokio::spawn(job(first.clone()));
    tokio::spawn(member(first, "orders-0"));
    tokio::spawn(member(second, "orders-1"));
    tokio::spawn(async move {
        while let Ok(session) = Session::connect(&config).await {
            // The drop of its future releases the shards.
            let _ = timeout(STAY, member(session, "orders-2")).await;
            sleep(STAY).await;
        }
    });
    let numbers = Router::new().route("/metrics", get(move || std::future::ready(recorder.render())));
    Ok(axum::serve(TcpListener::bind(address).await?, numbers).await?)
}
