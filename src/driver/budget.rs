//! Limits the bytes of a session's node paths and of its watched paths. The constants below have the reasons.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result};

/// The limit of node paths. The servers delete all nodes of a session in one transaction, which may have 1 MiB
/// (`jute.maxbuffer`).
const NODES: Limit = Limit { what: "nodes", most: 900 * 1024 };

/// The limit of watched paths, without this session's own nodes. After a reconnect the client sends one `SetWatches` for each
/// 128 KiB of watched paths. A second `SetWatches` ends the session (docs/upstream.md, `many-watches`).
const WATCHES: Limit = Limit { what: "watches", most: 100 * 1024 };

/// The limit of watches on this session's own nodes, in bytes of paths. Holds and waiters can do without such watches.
const MAX_OWN: usize = 20 * 1024;

#[derive(Clone, Copy)]
struct Limit {
    what: &'static str,
    most: usize,
}

/// The number of reserved bytes, shared with each reservation.
type Taken = Arc<AtomicUsize>;

/// A reservation of bytes for nodes or for a watch. Dropping it frees the bytes.
#[derive(Debug)]
pub(crate) struct Reservation {
    of: Taken,
    bytes: usize,
}

impl Reservation {
    fn new(of: &Taken, bytes: usize) -> Self {
        of.fetch_add(bytes, Ordering::Relaxed);
        Self { of: Arc::clone(of), bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The reserved bytes of a session. Reservations are made under the session's lock, and may be dropped without it.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// The length of the chroot in bytes. The servers count the chroot with every path.
    pub(super) root_bytes: usize,
    nodes: Taken,
    watches: Taken,
    own: Taken,
}

impl Budget {
    /// Reserves room for nodes. Keep the reservation until the nodes are gone.
    pub(super) fn nodes(&self, bytes: usize) -> Result<Reservation> {
        NODES.take(&self.nodes, bytes)
    }

    /// Makes `reservation` large enough for a watch on a path of `bytes` bytes, or returns [`Error::SessionFull`].
    pub(super) fn watch(&self, reservation: &mut Option<Reservation>, bytes: usize) -> Result<()> {
        if reservation.as_ref().is_none_or(|reservation| reservation.bytes < bytes) {
            *reservation = None;
            *reservation = Some(WATCHES.take(&self.watches, bytes)?);
        }
        Ok(())
    }

    /// Reserves room for the watch on a lock path, even beyond the limit: one watch serves all waiters for permits at the path.
    pub(super) fn path_watch(&self, bytes: usize) -> Reservation {
        Reservation::new(&self.watches, self.root_bytes + bytes)
    }

    /// Reserves room for the watch on one of this session's own nodes. Returns `None` if there is no room.
    pub(super) fn own(&self, bytes: usize) -> Option<Reservation> {
        let bytes = self.root_bytes + bytes;
        (self.own.load(Ordering::Relaxed) + bytes <= MAX_OWN).then(|| Reservation::new(&self.own, bytes))
    }
}

impl Limit {
    fn take(self, taken: &Taken, bytes: usize) -> Result<Reservation> {
        let Self { what, most: limit } = self;
        if taken.load(Ordering::Relaxed) + bytes > limit {
            return Err(Error::SessionFull { what, limit });
        }
        Ok(Reservation::new(taken, bytes))
    }
}
