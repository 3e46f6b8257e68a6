//! Owns the acquisition: which recipe stands for which option, and that a path is either a lock or a semaphore.

use std::time::Duration;

use zookeeper_recipes::{Error, HoldMonitor, LockGuard, Mutex, RwLock, Semaphore, Session};

use crate::cli::Wanted;
use crate::exit::{Failure, MIXED};
use crate::messages::count;

/// What is held.
///
/// The nodes of the first three exclude each other in one queue, except readers among themselves. Curator's mutex sees only
/// the first, and its read-write lock the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Writer,
    Reader,
    /// One of the slots of a semaphore.
    Slot(u32),
}

impl Kind {
    pub(crate) fn of(wanted: &Wanted) -> Self {
        match wanted.slots {
            Some(slots) => Self::Slot(slots),
            None if wanted.shared => Self::Reader,
            None if wanted.exclusive => Self::Writer,
            None => Self::Mutex,
        }
    }

    /// Of a semaphore, how many slots it has.
    pub(crate) fn slots(self) -> Option<u32> {
        match self {
            Self::Slot(slots) => Some(slots),
            _ => None,
        }
    }
}

/// A lock that is held, of whichever kind.
pub(crate) struct Held {
    pub(crate) guard: Box<dyn LockGuard>,
    pub(crate) monitor: HoldMonitor,
}

/// How long a call waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Endless,
    None,
    For(Duration),
}

/// Waits for the lock; `None` if it is busy.
pub(crate) async fn acquire(
    session: &Session,
    path: &str,
    kind: Kind,
    patience: Patience,
) -> Result<Option<Held>, Error> {
    /// Calls the method for the patience.
    macro_rules! call {
        ($lock:expr, $wait:ident, $try:ident, $try_for:ident) => {{
            let lock = $lock;
            let guard = match patience {
                Patience::Endless => Some(lock.$wait().await?),
                Patience::None => lock.$try().await?,
                Patience::For(limit) => lock.$try_for(limit).await?,
            };
            Ok(guard.map(|guard| Held { monitor: guard.monitor(), guard: Box::new(guard) }))
        }};
    }
    match kind {
        Kind::Mutex => call!(Mutex::new(session, path)?, lock, try_lock, try_lock_for),
        Kind::Reader => call!(RwLock::new(session, path)?, read, try_read, try_read_for),
        Kind::Writer => call!(RwLock::new(session, path)?, write, try_write, try_write_for),
        Kind::Slot(slots) => {
            call!(Semaphore::new(session, path, slots)?, acquire, try_acquire, try_acquire_for)
        }
    }
}

/// Refuses a path that others use in another way: a semaphore has its nodes below the path, and so neither excludes the other.
///
/// It looks once the lock is held: of two that are granted at once, each has its node before it looks, so one at least
/// sees the other.
pub(crate) async fn refuse_mixture(session: &Session, path: &str, kind: Kind) -> Result<(), Failure> {
    let (others, used, wanted) = match kind {
        Kind::Slot(_) => (Mutex::new(session, path)?.contenders().await?, "as a lock", "as a semaphore, with -N"),
        _ => {
            let others = Semaphore::new(session, path, u32::MAX)?.contenders().await?;
            (others, "as a semaphore", "as a lock, without -N")
        }
    };
    if others.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{path} is in use {used} ({}), and would be used {wanted}: they do not exclude each other; choose another path, or \
         the same options",
        count(others.len(), "contender", "contenders")
    );
    Err(Failure::new(MIXED, message))
}
