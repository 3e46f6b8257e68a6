//! Owns what a session may have of nodes and watches. A server that is given more closes the connection, again and again: on the
//! list of ephemeral nodes, and when watches are set again after a reconnect.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::reports::Reports;
use crate::error::{Error, Result};
use crate::machine::{Name, Path};

/// A server's `jute.maxbuffer` is 1 MiB.
const MAX_NODES: usize = 900 * 1024;
const WARN_NODES: usize = 512 * 1024;

/// A client sets its watches again in one request of at most 128 KiB.
const MAX_WATCHES: usize = 100 * 1024;
const WARN_WATCHES: usize = 80 * 1024;
/// How far a caller that has room already may go beyond the limit.
const SLACK_WATCHES: usize = 8 * 1024;

/// The bytes of the paths of nodes or watches that have room.
type Taken = Arc<AtomicUsize>;

/// Room for nodes or for a watch, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    of: Taken,
    pub(super) bytes: usize,
}

impl Room {
    fn new(of: &Taken, bytes: usize) -> Self {
        of.fetch_add(bytes, Ordering::Relaxed);
        Self { of: Arc::clone(of), bytes }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The bytes of the paths of nodes and watches. It is used under the lock of the session; only room is freed without it.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    nodes: Taken,
    watches: Taken,
    standing: HashMap<(Path, Name), Room>,
}

impl Budget {
    /// Room for the nodes of a call, until they are created.
    pub(super) fn reserve_nodes(&self, bytes: usize, reports: &Reports) -> Result<Room> {
        take("nodes", &self.nodes, bytes, WARN_NODES, MAX_NODES, reports)
    }

    /// The same for a call that begins again in the next session, and is not refused any more.
    pub(super) fn reserve_nodes_again(&self, bytes: usize) -> Room {
        Room::new(&self.nodes, bytes)
    }

    pub(super) fn created(&mut self, path: Path, name: Name, bytes: usize) {
        self.standing.entry((path, name)).or_insert_with(|| Room::new(&self.nodes, bytes));
    }

    pub(super) fn deleted(&mut self, path: Path, name: Name) {
        self.standing.remove(&(path, name));
    }

    /// Makes the room for the one watch of a waiter at least this large. A waiter that has room keeps it.
    pub(super) fn reserve_watch(&self, room: &mut Option<Room>, bytes: usize, reports: &Reports) -> Result<()> {
        let Some(room) = room.as_mut().filter(|room| Arc::ptr_eq(&room.of, &self.watches)) else {
            *room = Some(take("watches", &self.watches, bytes, WARN_WATCHES, MAX_WATCHES, reports)?);
            return Ok(());
        };
        let more = bytes.saturating_sub(room.bytes);
        if more > 0 && self.watches.load(Ordering::Relaxed) + more > MAX_WATCHES + SLACK_WATCHES {
            return Err(Error::SessionFull { what: "watches", limit: MAX_WATCHES });
        }
        self.watches.fetch_add(more, Ordering::Relaxed);
        room.bytes += more;
        Ok(())
    }

    pub(super) fn has_room_for_watch(&self, bytes: usize) -> bool {
        self.watches.load(Ordering::Relaxed) + bytes <= MAX_WATCHES
    }

    /// For the own node of a hold or a waiter, which can do without. Half is left to watches that cannot.
    pub(super) fn reserve_spare_watch(&self, bytes: usize) -> Option<Room> {
        self.has_room_for_watch(MAX_WATCHES / 2 + bytes).then(|| self.add_watch(bytes))
    }

    /// For a path, whose watch serves all that wait for room there.
    pub(super) fn add_watch(&self, bytes: usize) -> Room {
        Room::new(&self.watches, bytes)
    }

    /// The nodes and watches of a session that is over are gone.
    pub(super) fn session_over(&mut self) {
        self.standing.clear();
        self.watches = Taken::default();
    }
}

fn take(
    what: &'static str,
    taken: &Taken,
    bytes: usize,
    warn_at: usize,
    limit: usize,
    reports: &Reports,
) -> Result<Room> {
    let before = taken.load(Ordering::Relaxed);
    if before + bytes > limit {
        return Err(Error::SessionFull { what, limit });
    }
    if before < warn_at && before + bytes >= warn_at {
        let bytes = before + bytes;
        reports.push(move || tracing::warn!(what, bytes, limit, "session is filling up"));
    }
    Ok(Room::new(taken, bytes))
}
