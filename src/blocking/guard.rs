//! Owns [`Guard`], a held lock of any blocking recipe.

use std::ops::Deref;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use crate::blocking::Runtime;
use crate::error::{Error, Result};
use crate::hold::Hold;

/// A held lock, of the recipe whose async guard is `G`. Dropping the guard releases the lock in the background. A guard may
/// be dropped on any thread, even where [tokio runs a task](crate::blocking#inside-a-tokio-runtime).
///
/// A guard dereferences to a [`Hold`], with its token, state and path. To wait for its end, await a future of the hold, or
/// of its [monitor](Hold::monitor), with [`Session::block_on`](crate::blocking::Session::block_on).
///
/// A thread is not interrupted when its lock is lost. Look at [`state`](crate::HoldMonitor::state) between the steps of the
/// work: it compares times and costs no request. Hand the [fencing token](crate::HoldMonitor::fencing_token) to the store.
///
/// # Examples
///
/// ```no_run
/// # fn steps() -> [fn(zookeeper_recipes::FencingToken); 0] { [] }
/// # fn example(guard: zookeeper_recipes::blocking::MutexGuard) -> Result<(), zookeeper_recipes::Error> {
/// use zookeeper_recipes::HoldState;
///
/// for step in steps() {
///     if let HoldState::Lost(loss) = guard.state() {
///         return Err(loss.into());
///     }
///     if guard.is_revoke_requested() {
///         break;
///     }
///     step(guard.fencing_token());
/// }
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct Guard<G> {
    guard: G,
    // Dropped after `guard`, whose drop deletes the lock's nodes on this runtime.
    runtime: Runtime,
}

impl<G> Guard<G> {
    pub(super) fn new(guard: G, runtime: &Runtime) -> Self {
        Self { guard, runtime: runtime.clone() }
    }
}

impl<G: Deref<Target = Hold>> Guard<G> {
    /// Returns whether the holder was asked to release: by a call of `revoke`, by Curator's `Revoker`, or because the
    /// session is [drained](crate::blocking::Session::drain). The holder decides whether to release. Once the lock is lost,
    /// returns `false`.
    ///
    /// The call does not wait. The first call sends a read of the lock's node, which sets a watch. From then on the request
    /// of another process is noticed at once.
    #[must_use]
    pub fn is_revoke_requested(&self) -> bool {
        self.guard.revoke_requested().now_or_never().is_some()
    }
}

impl<G> Deref for Guard<G>
where
    G: Deref<Target = Hold>,
{
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.guard
    }
}

/// Defines the calls that consume a guard.
macro_rules! release {
    ($($guard:ident: $release:ident, $within:ident;)*) => {$(
        impl Guard<crate::$guard> {
            /// Releases the lock and waits until the servers have confirmed the release, for one session timeout at
            /// most.
            ///
            /// When the work is done, it is enough to drop the guard, which does not wait. Use this call if you must
            /// know that the lock is released, or that the hold was not lost before.
            ///
            /// # Errors
            ///
            #[doc = concat!(
                "As [`", stringify!($release), "`](crate::", stringify!($guard), "::", stringify!($release), ") of the async guard:"
            )]
            /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before.
            ///
            /// # Panics
            ///
            /// Where [tokio runs a task](crate::blocking#inside-a-tokio-runtime). The lock is then released in the
            /// background.
            pub fn $release(self) -> Result<()> {
                let Self { guard, runtime } = self;
                runtime.block_on(guard.$release())
            }

            /// Releases the lock and waits for the confirmation for `limit` at most.
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($release), "`](Self::", stringify!($release), ").")]
            /// [`Error::Unavailable`](crate::Error::Unavailable) if there is no confirmation within `limit`: the lock
            /// is then released in the background.
            pub fn $within(self, limit: Duration) -> Result<()> {
                let Self { guard, runtime } = self;
                let session = guard.session().clone();
                runtime.block_on(async {
                    timeout(limit, guard.$release()).await.unwrap_or_else(|_| Err(session.unavailable(limit)))
                })
            }
        }
    )*};
}

release!(
    MutexGuard: release, release_within;
    ReentrantMutexGuard: release, release_within;
    RwLockReadGuard: release, release_within;
    RwLockWriteGuard: release, release_within;
    SemaphorePermit: release, release_within;
    Leadership: resign, resign_within;
);

impl Guard<crate::rwlock::RwLockWriteGuard> {
    /// Turns the writer into a reader, without a gap for another writer. See
    /// [`downgrade`](crate::RwLockWriteGuard::downgrade) of the async guard.
    ///
    /// # Errors
    ///
    /// The error, with this guard. The lock is still held for writing, unless the guard's
    /// [`state`](crate::HoldMonitor::state) shows a loss.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(writing: zookeeper_recipes::blocking::RwLockWriteGuard) -> Result<(), zookeeper_recipes::Error> {
    /// match writing.downgrade() {
    ///     Ok(reading) => println!("other sessions may read now, token {}", reading.fencing_token()),
    ///     Err((writing, error)) => println!("{error}; still held for writing: {writing:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::result_large_err, reason = "the error is the guard, which a caller goes on with")]
    pub fn downgrade(self) -> Result<Guard<crate::rwlock::RwLockReadGuard>, (Self, Error)> {
        let Self { guard, runtime } = self;
        match runtime.block_on(guard.downgrade()) {
            Ok(guard) => Ok(Guard { guard, runtime }),
            Err(failed) => Err((Self { guard: failed.guard, runtime }, failed.source)),
        }
    }
}

impl Guard<crate::semaphore::SemaphorePermit> {
    /// Returns the number of permits that this guard holds.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.guard.count()
    }
}

impl Guard<crate::election::Leadership> {
    /// Shows observers `data` instead of the identifier. See [`proclaim`](crate::HoldMonitor::proclaim) of the async
    /// leadership.
    ///
    /// # Errors
    ///
    /// As the async `proclaim`.
    pub fn proclaim(&self, data: impl Into<Vec<u8>>) -> Result<()> {
        self.runtime.block_on(self.guard.proclaim(data))
    }
}
