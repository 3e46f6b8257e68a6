//! A session for as long as a service lives: it starts before its servers, reports what becomes of it, and keeps a node.

use std::time::Duration;

use zookeeper_groups::KeptNode;
use zookeeper_recipes::{Mutex, Servers, Session};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    // Asked again at every new session, so passwords may be rotated and servers may move.
    let session = Session::lazy(Servers::from_fn(move || {
        let hosts = hosts.clone();
        async move { Ok(Servers::new(&hosts).with_session_timeout(Duration::from_secs(6))) }
    }))?;

    let mut states = session.states();
    let reporter = tokio::spawn(async move {
        while let Some(state) = states.changed().await {
            println!("ZooKeeper: {state}");
        }
    });

    // There for as long as the service is, over all its sessions.
    let member = KeptNode::keep(&session, "/example/members/host-7", b"10.0.0.7:8080")?;
    member.created().await?;
    println!("a member at {}", member.path());

    // For a readiness probe: it asks nobody.
    println!("ready: {}", session.state().is_connected());

    let guard = Mutex::new(&session, "/example/long-lived")?.lock().await?;
    drop(guard);

    // On SIGTERM: holders have this long to finish.
    let cut_off = session.drain(Duration::from_secs(10)).await?;
    println!("drained, and {cut_off} locks were released under their holders");
    reporter.await?;
    Ok(())
}
