//! Ships one order, under a lock of its own.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use zookeeper_recipes::{Error, FencingToken, Mutex, Session, path};

use crate::failure::Failure;
use crate::store::Store;

/// A client would rather retry than wait longer.
const PATIENCE: Duration = Duration::from_millis(300);

/// How long the carrier takes to book a parcel.
const CARRIER: Duration = Duration::from_millis(20);

/// Returns whether it was this request that shipped the order.
pub(crate) async fn ship(session: &Session, store: &Store, id: &str) -> Result<bool, Failure> {
    let lock = Mutex::new(session, &format!("/orders/{}", path::segment(id)))?;
    // Dropped at any point, as when the client hangs up, this leaves no node.
    let guard = lock.try_lock_for(PATIENCE).await?.ok_or(Failure::Contended)?;
    let shipped = guard.run_until_lost(ship_locked(store, id, guard.fencing_token())).await;
    // Awaited, so that the client that has our answer finds the lock free; but not for long, since it goes on without us.
    // What it returns does not change the answer: if the store has accepted our token, the order is shipped, even if the
    // lock was lost since.
    match timeout(PATIENCE, guard.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(Error::Lost(loss))) => tracing::info!(id, %loss, "lock was lost before its release"),
        Ok(Err(error)) => tracing::warn!(id, %error, "lock may stay until the session ends"),
        Err(_) => tracing::warn!(id, "lock is being released"),
    }
    shipped?
}

async fn ship_locked(store: &Store, id: &str, token: FencingToken) -> Result<bool, Failure> {
    if store.is_shipped(id.to_owned(), token).await? {
        return Ok(false);
    }
    // What needs the lock: a carrier takes part in no transaction of ours, and must not come twice. Should we die before
    // the store knows of it, the next attempt books again: give a real carrier the order's id as its idempotency key.
    sleep(CARRIER).await;
    store.ship(id.to_owned(), token).await?;
    Ok(true)
}
