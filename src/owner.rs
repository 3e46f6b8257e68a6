//! Owns [`Owner`]. For each lock, an owner has at most one hold, and only one of its calls acquires at a time.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use crate::driver::Progress;
use crate::hold::Hold;
use crate::lock::Lock;
use crate::locked::locked;
use crate::path::LockPath;

/// The owner of a held [`ReentrantMutex`](crate::ReentrantMutex). Clones are the same owner.
///
/// Ownership is per session: with handles from two sessions, an owner waits for itself.
///
/// # Examples
///
/// ```
/// use zookeeper_recipes::Owner;
///
/// let owner = Owner::new();
/// // The same owner, for another task.
/// let same = owner.clone();
/// ```
#[derive(Clone, Default)]
pub struct Owner(Arc<Mutex<Register>>);

/// The state of each lock of an owner, by session and path.
type Register = HashMap<(usize, LockPath), Arc<Owned>>;

/// What an owner shares among its calls for one lock.
#[derive(Default)]
pub(crate) struct Owned {
    hold: Mutex<Weak<Hold>>,
    /// Locked by the call that acquires. The owner's other calls wait for that call, and then share its hold.
    pub(crate) acquiring: tokio::sync::Mutex<()>,
    /// The progress of the call that acquires.
    pub(crate) progress: Arc<Progress>,
}

impl Owned {
    /// Returns the owner's hold; `None` if no guard of it is left.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        locked(&self.hold).upgrade()
    }

    /// Records a new hold, for the owner's other calls.
    pub(crate) fn held(&self, hold: Hold) -> Arc<Hold> {
        let hold = Arc::new(hold);
        *locked(&self.hold) = Arc::downgrade(&hold);
        hold
    }
}

impl Owner {
    /// Creates an owner that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the owner's entry for this lock.
    pub(crate) fn of(&self, lock: &Lock) -> Arc<Owned> {
        let mut owned = locked(&self.0);
        // Remove the entries that neither a guard nor a call of the owner uses.
        owned.retain(|_, owned| Arc::strong_count(owned) > 1 || locked(&owned.hold).strong_count() > 0);
        Arc::clone(owned.entry((lock.session.identity(), lock.path.clone())).or_default())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}
