//! Owns the waiting of a lock that is being acquired: for its turn, and for the loss of what it has already.

use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::error::Error;
use crate::hold::NodeWatches;
use crate::lock::Progress;
use crate::queue::{Place, Position, Room, why_gone};
use crate::session::{Interrupt, ServerSession};

/// Waits until one of several nodes is gone. A waiter with one node learns of its loss when it is woken.
pub(super) async fn lost(zk: &Arc<ServerSession>, nodes: &[(String, i64)]) -> Interrupt {
    match nodes.len() {
        0 | 1 => pending().await,
        // Most waiters have one node, and need not keep this.
        _ => any_lost(zk, nodes).boxed().await,
    }
}

async fn any_lost(zk: &Arc<ServerSession>, nodes: &[(String, i64)]) -> Interrupt {
    // A short wait sets no watches.
    tokio::time::sleep(zk.timeout() / 8).await;
    let gone = NodeWatches::begin(zk, nodes, Arc::new(|_: &[u8]| {})).any_gone().await;
    why_gone(zk, gone).await
}

/// Checks that all nodes are still there, after a wait in which one of several may have been deleted.
pub(super) async fn check_all(zk: &ServerSession, places: &[Place<'_>]) -> Result<(), Interrupt> {
    let nodes: Vec<_> = places.iter().flat_map(Place::paths).map(|(node, _)| node).collect();
    if nodes.len() < 2 {
        return Ok(());
    }
    match zk.retry(|| zk.check(nodes.clone())).await? {
        Ok(Some(gone)) => Err(Error::Evicted { node: nodes[gone].clone() }.into()),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Waits until a place is granted.
pub(super) async fn wait(
    place: &mut Place<'_>,
    room: &mut Room,
    progress: Option<&Progress>,
) -> Result<(), Interrupt> {
    loop {
        if let Some(progress) = progress {
            progress.ahead(place.ahead());
        }
        tracing::debug!(ahead = place.ahead(), "waiting");
        place.wait(room).await?;
        if place.look().await? == Position::Granted {
            return Ok(());
        }
    }
}

/// Waits for a turn behind others that are about to hold, but not long: one may have died there.
pub(super) async fn wait_shortly(
    place: &mut Place<'_>,
    mut position: Position,
    mut room: Room,
) -> Result<Position, Interrupt> {
    let until = Instant::now() + place.zk().timeout() / 8;
    while position != Position::Granted {
        match tokio::time::timeout_at(until, place.wait(&mut room)).await {
            Ok(woken) => woken?,
            Err(_) => break,
        }
        position = place.look().await?;
    }
    Ok(position)
}
