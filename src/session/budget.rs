//! Owns the count of what a session keeps on the server, and the limits past which the session would be in danger.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::{Error, Result};

/// A count of bytes with a limit.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    what: &'static str,
    limit: usize,
    /// How far beyond the limit those may go who have room already.
    slack: usize,
    warn_at: usize,
    used: Arc<Counter>,
}

/// What is in use now.
#[derive(Debug, Default)]
struct Counter {
    used: Mutex<Used>,
    emptied: Notify,
}

/// How many bytes are in use.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    reserved: usize,
    /// What is never released.
    kept: usize,
}

impl Used {
    fn sum(self) -> usize {
        self.reserved + self.kept
    }
}

/// Bytes that are in use until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    bytes: usize,
    used: Arc<Counter>,
}

impl Budget {
    /// The paths of a session's nodes: when it ends, one transaction lists them all, and one of more than a megabyte
    /// keeps a server from starting (ZOOKEEPER-4306).
    pub(crate) fn of_nodes() -> Self {
        Self::new("nodes", 900 * 1024, 0, 512 * 1024)
    }

    /// The paths of a session's watches: after a reconnect the client sets them again in one request per 128 KiB, all
    /// under one number, and the second of them ends the session.
    pub(crate) fn of_watches() -> Self {
        Self::new("watches", 100 * 1024, 8 * 1024, 80 * 1024)
    }

    fn new(what: &'static str, limit: usize, slack: usize, warn_at: usize) -> Self {
        Self { what, limit, slack, warn_at, used: Arc::default() }
    }

    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reserved> {
        self.take(bytes, self.limit)?;
        Ok(Reserved { bytes, used: self.used.clone() })
    }

    /// Makes what is reserved at least `bytes`. A caller that has room is not turned away for the little more that another name
    /// takes.
    pub(crate) fn widen(&self, reserved: &mut Reserved, bytes: usize) -> Result<()> {
        let more = bytes.saturating_sub(reserved.bytes);
        if more > 0 {
            self.take(more, self.limit + self.slack)?;
            reserved.bytes += more;
        }
        Ok(())
    }

    fn take(&self, bytes: usize, limit: usize) -> Result<()> {
        let before = {
            let mut used = self.used.lock();
            let before = used.sum();
            if before + bytes <= limit {
                used.reserved += bytes;
            }
            before
        };
        if before + bytes > limit {
            return Err(Error::SessionFull { what: self.what, limit: self.limit });
        }
        if before < self.warn_at && before + bytes >= self.warn_at {
            tracing::warn!(what = self.what, bytes = before + bytes, limit = self.limit, "session is filling up");
        }
        Ok(())
    }

    /// Reserves from the first half only, for callers that can do without.
    pub(crate) fn reserve_spare(&self, bytes: usize) -> Option<Reserved> {
        let roomy = self.used.lock().sum() + bytes <= self.limit / 2;
        roomy.then(|| self.reserve(bytes).ok()).flatten()
    }

    /// Waits until nothing is in use that can be released.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.used.emptied.notified();
            if self.used.lock().reserved == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Reserved {
    /// Keeps the bytes in use for ever.
    pub(super) fn keep(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.used.release(bytes, bytes);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.used.release(self.bytes, 0);
    }
}

impl Counter {
    /// Ends a reservation, of which some bytes stay in use for ever.
    fn release(&self, bytes: usize, kept: usize) {
        let mut used = self.lock();
        used.reserved -= bytes;
        used.kept += kept;
        if used.reserved == 0 {
            self.emptied.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn dropping_frees_the_bytes() {
        let budget = Budget::new("nodes", 100, 0, 50);
        let first = budget.reserve(60).expect("room");
        assert!(matches!(budget.reserve(41), Err(Error::SessionFull { what: "nodes", limit: 100 })));
        let second = budget.reserve(40).expect("room");
        drop(first);
        let _third = budget.reserve(60).expect("room again");
        drop(second);
    }

    #[test]
    fn bytes_that_are_kept_are_never_freed() {
        let budget = Budget::new("nodes", 100, 0, 50);
        budget.reserve(60).expect("room").keep();
        assert!(budget.reserve(41).is_err());
        let rest = budget.reserve(40).expect("room");
        assert!(budget.emptied().now_or_never().is_none(), "the rest is in use");
        drop(rest);
        assert!(budget.emptied().now_or_never().is_some(), "there is nothing to wait for");
    }

    #[test]
    fn reservation_can_be_widened_a_little_beyond_the_limit() {
        let budget = Budget::new("watches", 100, 10, 80);
        let mut first = budget.reserve(60).expect("room");
        let mut second = budget.reserve(40).expect("room");
        budget.widen(&mut first, 65).expect("a little more");
        budget.widen(&mut first, 50).expect("no less");
        assert!(matches!(budget.widen(&mut second, 46), Err(Error::SessionFull { what: "watches", limit: 100 })));
        budget.widen(&mut second, 45).expect("a little more");
        assert!(budget.reserve(1).is_err());
        drop((first, second));
        let _all = budget.reserve(100).expect("all of it");
    }

    #[test]
    fn spare_reservations_leave_half_to_the_others() {
        let budget = Budget::new("watches", 100, 0, 80);
        let spare = budget.reserve_spare(50).expect("room");
        assert!(budget.reserve_spare(1).is_none());
        let _needed = budget.reserve(50).expect("room");
        drop(spare);
        assert!(budget.reserve_spare(1).is_none());
    }
}
