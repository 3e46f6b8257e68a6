//! Locking a mutex that a panic may have poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it all the same: a panic under it leaves a state that is as good as the one it found.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
