//! Visitors of a room see their position in the queue. An operator sees all of them, and asks the holder to leave.
//!
//! ```console
//! $ zk-docker/run cargo run --example waiting_room
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_recipes::{Mutex, MutexGuard, Options, Session, Waiting};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let session = Session::connect(&hosts).await?;
    let mut visitors = JoinSet::new();
    for name in ["anna", "ben", "carla"] {
        let options = Options::new().with_identifier(name);
        let place = Mutex::with_options(&session, "/examples/room", options)?.enqueue().await?;
        visitors.spawn(visit(name, place));
    }
    let room = Mutex::new(&session, "/examples/room")?;
    let queue = room.contenders().await?;
    queue.iter().for_each(|visitor| println!("the operator sees: {visitor}"));
    room.revoke(&queue[0]).await?;
    visitors.join_all().await.into_iter().collect::<Result<()>>()?;
    Ok(session.close().await?)
}

/// Waits, enters, and stays until its time is up or the operator asks it to leave.
async fn visit(name: &str, mut place: Waiting<MutexGuard>) -> Result<()> {
    let guard = loop {
        println!("{name} waits, with at most {} ahead", place.position());
        // Dropping `place` would give it up; polling it again goes on.
        if let Ok(guard) = timeout(Duration::from_millis(200), &mut place).await {
            break guard?;
        }
    };
    println!("{name} enters");
    match timeout(Duration::from_millis(500), guard.revoke_requested()).await {
        Ok(()) => println!("{name} is asked to leave, and leaves"),
        Err(_) => println!("{name} leaves"),
    }
    Ok(())
}
