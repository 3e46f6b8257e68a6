//! Curator's mutex with a listener, on a real server.

use lab::Outcome;
use lab::servers::zookeeper::ZooKeeper;
use lab::servers::{Server as _, Setup};
use lab::ways::{LEASE, Place, find};
use testbed::Wire;
use zookeeper_recipes::{HoldState, LockGuard};

async fn hold(way: &str) -> Outcome<(ZooKeeper, Wire, Box<dyn LockGuard>)> {
    let server = ZooKeeper::start(&Setup::default()).await?;
    let wire = Wire::to(server.address()).await?;
    let mut place = Place::default();
    place.addresses = vec![wire.address()];
    place.lock = "a-lock".to_owned();
    place.java = lab::java::driver()?;
    let lock = (find(way)?.connect)(place, Default::default()).await?;
    Ok((server, wire, lock.lock().await?))
}

/// Asks until the hold is in this state, for three leases.
async fn becomes(guard: &dyn LockGuard, held: bool) -> bool {
    let deadline = tokio::time::Instant::now() + LEASE * 3;
    while tokio::time::Instant::now() < deadline {
        if matches!(guard.state(), HoldState::Held) == held {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_not_held_while_the_connection_is_suspended() -> Outcome {
    let (_server, wire, guard) = hold("zookeeper-curator-listener").await?;
    assert!(becomes(&*guard, true).await);
    wire.cut();
    assert!(becomes(&*guard, false).await, "the connection is suspended");
    wire.heal();
    assert!(becomes(&*guard, true).await, "the session is still there");
    wire.hold();
    assert!(becomes(&*guard, false).await, "nothing answers");
    Ok(())
}
