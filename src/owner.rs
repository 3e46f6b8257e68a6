//! Owns [`Owner`]: who can lock again, and what it holds or waits for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::driver::Progress;
use crate::error::Result;
use crate::hold::Hold;
use crate::lock::Lock;
use crate::locked::locked;
use crate::path::LockPath;

/// The owner of a held [`ReentrantMutex`](crate::ReentrantMutex). Clones are the same owner.
///
/// It holds locks by session: with handles from two sessions it waits for itself.
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
pub struct Owner(Arc<Register>);

/// What one owner holds or waits for, by session and path. It keeps none of it alive.
type Register = Mutex<HashMap<(usize, LockPath), Entry>>;

enum Entry {
    Acquiring(WeakShared<Acquiring>, Arc<Progress>),
    Held(Weak<Hold>),
}

type Acquiring = BoxFuture<'static, Result<Option<Arc<Hold>>>>;

/// What a call to lock comes upon.
pub(crate) enum Locking {
    Held(Arc<Hold>),
    Acquiring(Shared<Acquiring>, Arc<Progress>),
}

/// How a lock is acquired when the owner neither holds it nor waits for it.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Wait,
    Try,
}

impl Owner {
    /// Creates an owner that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the owner has of this lock; begins to acquire it if that is nothing.
    pub(crate) fn lock(&self, lock: &Lock, mode: Mode) -> Locking {
        let key = (lock.session.identity(), lock.path.clone());
        let mut entries = locked(&self.0);
        // What is over has no place here.
        entries.retain(|_, entry| match entry {
            Entry::Held(hold) => hold.strong_count() > 0,
            Entry::Acquiring(acquiring, _) => acquiring.upgrade().is_some(),
        });
        let found = entries.get(&key).and_then(|entry| match entry {
            Entry::Held(hold) => hold.upgrade().map(Locking::Held),
            Entry::Acquiring(acquiring, progress) => {
                Some(Locking::Acquiring(acquiring.upgrade()?, progress.clone()))
            }
        });
        if let Some(locking) = found {
            return locking;
        }
        let progress = Arc::<Progress>::default();
        let acquiring = acquire(lock.clone(), mode, progress.clone(), self.0.clone(), key.clone()).shared();
        if let Some(weak) = acquiring.downgrade() {
            entries.insert(key, Entry::Acquiring(weak, progress.clone()));
        }
        Locking::Acquiring(acquiring, progress)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

/// Acquires the lock for all calls of one owner that wait for it, and enters the hold in its register.
fn acquire(
    lock: Lock,
    mode: Mode,
    progress: Arc<Progress>,
    register: Arc<Register>,
    key: (usize, LockPath),
) -> Acquiring {
    async move {
        let hold = match mode {
            Mode::Wait => lock.acquire_with(Some(&progress)).await.map(Some),
            // A caller that tries has a time limit of its own, which is not that of others who share the attempt.
            Mode::Try => lock.try_without_limit().await,
        };
        let hold = hold.map(|hold| hold.map(Arc::new));
        let mut entries = locked(&register);
        match &hold {
            Ok(Some(hold)) => drop(entries.insert(key, Entry::Held(Arc::downgrade(hold)))),
            Ok(None) | Err(_) => drop(entries.remove(&key)),
        }
        hold
    }
    .boxed()
}
