//! Owns the waiting of a lock that is being acquired: for its turn, and for the loss of what it has already.

use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::error::Error;
use crate::hold::NodeWatches;
use crate::lock::Progress;
use crate::queue::{Place, Position, Room, why_gone};
use crate::session::{Connection, Interrupt, ServerSession};

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
    tokio::time::sleep(zk.times().lasting()).await;
    let gone = NodeWatches::begin(zk, nodes, Arc::new(|_: &[u8]| {})).any_gone().await;
    why_gone(zk, gone).await
}

/// Checks that all nodes are still there, after a wait in which one of several may have been deleted; returns on which
/// connection, if there are several.
pub(super) async fn check_several(
    zk: &ServerSession,
    places: &[Place<'_>],
) -> Result<Option<Connection>, Interrupt> {
    let nodes = nodes(places);
    if nodes.len() < 2 { Ok(None) } else { check_all(zk, &nodes).await.map(Some) }
}

/// Waits until the session is trusted. The nodes must have been seen since the present connection stands, and not long ago:
/// somebody may have deleted them while nobody polled the caller, or while it waited for trust.
pub(super) async fn trusted(
    zk: &ServerSession,
    places: &[Place<'_>],
    seen: Option<Connection>,
) -> Result<(), Interrupt> {
    let mut lately = zk.times().recent();
    let mut seen = seen.or_else(|| places.last().and_then(Place::seen));
    let mut changes = zk.changes();
    loop {
        changes.mark_unchanged();
        if !seen.as_ref().is_some_and(|seen| seen.is_recent(lately)) {
            seen = Some(check_all(zk, &nodes(places)).await?);
            // A quorum that takes long to answer must not make this last for ever.
            lately *= 2;
        } else if zk.is_trusted() {
            return Ok(());
        } else {
            tokio::select! {
                trusted = zk.trusted() => trusted?,
                _ = changes.changed() => {}
                () = tokio::time::sleep(lately) => {}
            }
        }
    }
}

fn nodes(places: &[Place<'_>]) -> Vec<String> {
    places.iter().flat_map(Place::paths).map(|(node, _)| node).collect()
}

/// Asks a quorum whether all nodes are there; returns on which connection.
async fn check_all(zk: &ServerSession, nodes: &[String]) -> Result<Connection, Interrupt> {
    let mut connection = zk.connection();
    let check = || {
        connection = zk.connection();
        zk.check(nodes.to_vec())
    };
    match zk.retry(check).await? {
        Ok(Some(gone)) => Err(Error::Evicted { node: nodes[gone].clone() }.into()),
        Ok(None) => Ok(connection),
        // A server may refuse the whole by itself, which proves nothing of the nodes.
        Err(error) => Err(Error::refused("check", &nodes[0], error).into()),
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
    let until = Instant::now() + place.zk().times().short_wait();
    while position != Position::Granted {
        match tokio::time::timeout_at(until, place.wait(&mut room)).await {
            Ok(woken) => woken?,
            Err(_) => break,
        }
        position = place.look().await?;
    }
    Ok(position)
}
