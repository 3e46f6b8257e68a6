//! Limits the bytes of the paths of a session's nodes and watches. With more, a server closes the connection again and again: when
//! ephemeral nodes are listed, or when watches are set again after a reconnect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::reports::Reports;
use crate::error::{Error, Result};

/// A server's `jute.maxbuffer` is 1 MiB.
const NODES: Limit = Limit { what: "nodes", warn: 512 * 1024, most: 900 * 1024 };

/// A client sets its watches again in one request of at most 128 KiB.
const WATCHES: Limit = Limit { what: "watches", warn: 80 * 1024, most: 100 * 1024 };

/// How far a waiter that has room may go beyond that for a longer name.
const SLACK: usize = 8 * 1024;

/// For watches on the nodes of this session's own holds and waiters, which can do without them.
const MAX_OWN: usize = 20 * 1024;

#[derive(Clone, Copy)]
struct Limit {
    what: &'static str,
    warn: usize,
    most: usize,
}

/// The bytes of the paths of nodes or watches that have room.
type Taken = Arc<AtomicUsize>;

/// A reservation for nodes or for a watch, which is free again when this is dropped.
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

/// The bytes of the paths of nodes and watches. It is used under the lock of the session; only room is freed without it.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    nodes: Taken,
    watches: Taken,
    own: Taken,
}

impl Budget {
    /// Reserves room for the nodes of a call, until it is over and they are gone.
    pub(super) fn nodes(&self, bytes: usize, reports: &Reports) -> Result<Reservation> {
        NODES.take(&self.nodes, bytes, reports)
    }

    /// Makes the room for the one watch of a waiter at least this large. A waiter that has room keeps it.
    pub(super) fn watch(&self, room: &mut Option<Reservation>, bytes: usize, reports: &Reports) -> Result<()> {
        *room = Some(match room {
            Some(room) if room.bytes >= bytes => return Ok(()),
            Some(room) => {
                let others = self.watches.load(Ordering::Relaxed).saturating_sub(room.bytes);
                if others + bytes > WATCHES.most + SLACK {
                    return Err(Error::SessionFull { what: WATCHES.what, limit: WATCHES.most });
                }
                Reservation::new(&self.watches, bytes)
            }
            None => WATCHES.take(&self.watches, bytes, reports)?,
        });
        Ok(())
    }

    /// Reserves room for the watch on a path, which serves all that wait for permits there.
    pub(super) fn path_watch(&self, bytes: usize) -> Reservation {
        Reservation::new(&self.watches, bytes)
    }

    /// Reserves room for the watch on an own node, if there is any.
    pub(super) fn own(&self, bytes: usize) -> Option<Reservation> {
        (self.own.load(Ordering::Relaxed) + bytes <= MAX_OWN).then(|| Reservation::new(&self.own, bytes))
    }
}

impl Limit {
    fn take(self, taken: &Taken, bytes: usize, reports: &Reports) -> Result<Reservation> {
        let (Self { what, warn, most: limit }, before) = (self, taken.load(Ordering::Relaxed));
        if before + bytes > limit {
            return Err(Error::SessionFull { what, limit });
        }
        if before < warn && before + bytes >= warn {
            let bytes = before + bytes;
            reports.push(move || tracing::warn!(what, bytes, limit, "session is filling up"));
        }
        Ok(Reservation::new(taken, bytes))
    }
}
