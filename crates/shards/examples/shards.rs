//! A member of a group that divides 16 shards. Start it in several terminals under different names, and stop it with Ctrl-C.
//!
//! ```console
//! $ cargo run -p zookeeper-shards --example shards -- orders-0
//! ```

use std::time::Duration;

use tokio::time::MissedTickBehavior;
use zookeeper_recipes::Session;
use zookeeper_shards::{Shard, Shards};

/// Serves a shard until it is to be released. Each write carries the token; the store refuses older ones. No writes make up for a pause.
async fn serve(shard: Shard) {
    println!("+ {} with token {}", shard.number(), shard.fencing_token());
    let mut turns = tokio::time::interval(Duration::from_millis(100));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = std::pin::pin!(shard.revoke_requested());
    let mut writes = 0;
    loop {
        tokio::select! {
            () = &mut asked => break,
            _ = turns.tick() => writes += 1,
        }
    }
    println!("- {} after {writes} writes", shard.number());
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let name = std::env::args().nth(1).unwrap_or_else(|| "orders-0".to_owned());
    let session = Session::connect(hosts.as_str()).await?;
    let shards =
        Shards::builder("/examples/shards", 16).name(&name).grace(Duration::from_secs(5)).build(&session)?;
    let mut running = tokio::spawn(shards.run(serve));

    let mut changes = shards.changes();
    loop {
        tokio::select! {
            Some(owned) = changes.changed() => println!("{name} owns {owned:?}"),
            ended = &mut running => return Ok(ended??),
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    // For a restart. `leave` hands the shards over to the other members first.
    shards.stop();
    running.await??;
    Ok(session.close().await?)
}
