//! Owns [`OwnedChanges`]: a subscription to the shards that this member owns.

use std::collections::BTreeMap;

use tokio::sync::watch;
use zookeeper_recipes::HoldMonitor;

/// The shards that are served, with monitors of their holds.
pub(crate) type Owned = BTreeMap<u32, HoldMonitor>;

/// The shards whose locks are held at this moment, by the clock. Takes a copy of the set: reading the state of a hold may report
/// its loss to the user's code, and the set must not be locked then.
pub(crate) fn held(owned: Owned) -> Vec<u32> {
    owned.iter().filter(|(_, hold)| !hold.state().has_ended()).map(|(shard, _)| *shard).collect()
}

/// A subscription to the shards that this member owns, from [`Shards::changes`](crate::Shards::changes).
///
/// Nothing is queued: after several changes between two calls, the next call returns the latest set.
#[derive(Clone, Debug)]
pub struct OwnedChanges {
    owned: watch::Receiver<Owned>,
    /// The set returned last.
    last: Option<Vec<u32>>,
}

impl OwnedChanges {
    pub(crate) fn new(owned: watch::Receiver<Owned>) -> Self {
        Self { owned, last: None }
    }

    /// Waits for a set that differs from the one returned last, and returns it in the order of the numbers. The first call
    /// returns the present set at once. `None` once the handle, its clones and [`run`](crate::Shards::run) are gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn changed(&mut self) -> Option<Vec<u32>> {
        let last = self.last.clone();
        self.wait_for(|shards| last.as_deref() != Some(shards)).await
    }

    /// Waits for a set for which `wanted` is true, and returns it: at once if it is the present one. `None` as
    /// [`changed`](Self::changed).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&[u32]) -> bool) -> Option<Vec<u32>> {
        self.owned.mark_changed();
        loop {
            self.owned.changed().await.ok()?;
            let owned = self.owned.borrow_and_update().clone();
            let shards = held(owned);
            if wanted(&shards) {
                self.last = Some(shards.clone());
                return Some(shards);
            }
        }
    }
}
