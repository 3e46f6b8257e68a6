//! A router knows the workers of a group: who is there, at which address, and who drains. A worker that is renewed, or
//! restarts within the grace, is no change.
//!
//! ```console
//! $ zk-docker/run cargo run --example members
//! ```

use std::time::Duration;

use zookeeper_groups::{Members, members::Member};
use zookeeper_recipes::Session;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let workers = Session::connect(hosts.as_str()).await?;
    let members = Members::new(&workers, "/examples/members")?;
    let first = members.join("worker-0", b"10.0.0.7:8080").await?;
    let _second = members.join("worker-1", b"10.0.0.8:8080").await?;

    // Another process would have a session of its own.
    let router = Session::connect(hosts.as_str()).await?;
    let seen = Members::new(&router, "/examples/members")?.with_grace(Duration::from_secs(2));
    let mut changes = seen.changes();
    show(&changes.wait_for(|members| members.len() == 2).await?);
    first.set(b"10.0.0.7:8080 draining").await?;
    show(&changes.changed().await?);

    // A name has one owner.
    if let Err(taken) = seen.join("worker-0", b"10.0.0.9:8080").await {
        println!("{taken}");
    }
    first.leave().await?;
    let again = seen.join("worker-0", b"10.0.0.9:8080").await?;
    // It was away for less than the grace. Only its address is another one.
    show(&changes.changed().await?);
    drop(again);
    show(&changes.changed().await?);
    router.close().await?;
    Ok(workers.close().await?)
}

fn show(members: &[Member]) {
    let members = members
        .iter()
        .map(|member| format!("{} at {:?}", member.name(), member.data().escape_ascii().to_string()));
    println!("{}", members.collect::<Vec<_>>().join(", "));
}
