//! Owns [`Owner`]: what an owner holds, and the acquisitions that its calls share.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::Notify;

use crate::driver::Progress;
use crate::error::Result;
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
pub struct Owner(Arc<Register>);

/// The holds and attempts of one owner, by session and path. The register keeps none of them alive.
type Register = Mutex<HashMap<(usize, LockPath), Entry>>;

enum Entry {
    Acquiring(Weak<Attempt>),
    Held(Weak<Hold>),
}

/// The output is weak, because a call that is kept and not polled keeps it. [`Attempt::hold`] has the hold itself.
type Acquiring = BoxFuture<'static, Result<Option<Weak<Hold>>>>;

/// How an attempt has ended.
pub(crate) enum Outcome {
    Held(Arc<Hold>),
    /// Another contender was ahead, and the attempt was one of `try_lock`, which does not wait.
    Contended,
    /// The lock was acquired, and another call of the owner has already released it.
    Released,
}

/// An acquisition that all waiting calls of one owner share.
pub(crate) struct Attempt {
    acquiring: Shared<Acquiring>,
    /// The hold, until a call takes it: the first one to see that the attempt has ended.
    hold: Arc<Mutex<Option<Arc<Hold>>>>,
    pub(crate) progress: Arc<Progress>,
    /// Notified when a call ends, because the call may have been woken to poll the attempt without having done so.
    left: Notify,
}

/// A call that shares an attempt.
struct Call<'a>(&'a Notify);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Attempt {
    /// Waits for the end of the attempt.
    pub(crate) async fn outcome(&self) -> Result<Outcome> {
        let _call = Call(&self.left);
        let acquired = loop {
            tokio::select! {
                biased;
                acquired = self.acquiring.clone() => break acquired?,
                () = self.left.notified() => {}
            }
        };
        let Some(hold) = acquired else { return Ok(Outcome::Contended) };
        let held = locked(&self.hold).take().or_else(|| hold.upgrade());
        Ok(held.map_or(Outcome::Released, Outcome::Held))
    }
}

/// What an owner has of a lock: a hold, or an acquisition under way.
pub(crate) enum Locking {
    Held(Arc<Hold>),
    Acquiring(Arc<Attempt>),
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

    /// Returns the owner's hold of this lock, or its attempt. Starts an attempt if there is neither.
    pub(crate) fn lock(&self, lock: &Lock, mode: Mode) -> Locking {
        let key = (lock.session.identity(), lock.path.clone());
        let mut entries = locked(&self.0);
        // Entries of ended holds and attempts are removed.
        entries.retain(|_, entry| match entry {
            Entry::Held(hold) => hold.strong_count() > 0,
            Entry::Acquiring(attempt) => attempt.strong_count() > 0,
        });
        let found = entries.get(&key).and_then(|entry| match entry {
            Entry::Held(hold) => hold.upgrade().map(Locking::Held),
            Entry::Acquiring(attempt) => attempt.upgrade().map(Locking::Acquiring),
        });
        if let Some(locking) = found {
            return locking;
        }
        let progress = Arc::<Progress>::default();
        let (lock, register, reports, place) = (lock.clone(), self.0.clone(), progress.clone(), key.clone());
        let hold = Arc::<Mutex<Option<Arc<Hold>>>>::default();
        let slot = hold.clone();
        let acquiring = async move {
            let hold = match mode {
                Mode::Wait => lock.acquire_with(Some(&reports)).await.map(Some),
                // No time limit here: each caller that tries has its own, and callers share the attempt.
                Mode::Try => lock.try_without_limit().await,
            };
            let hold = hold.map(|hold| hold.map(Arc::new));
            let mut entries = locked(&register);
            match hold {
                Ok(Some(hold)) => {
                    let weak = Arc::downgrade(&hold);
                    entries.insert(place, Entry::Held(weak.clone()));
                    *locked(&slot) = Some(hold);
                    Ok(Some(weak))
                }
                Ok(None) | Err(_) => {
                    entries.remove(&place);
                    hold.map(|_| None)
                }
            }
        };
        let acquiring = acquiring.boxed().shared();
        let attempt = Arc::new(Attempt { acquiring, hold, progress, left: Notify::new() });
        entries.insert(key, Entry::Acquiring(Arc::downgrade(&attempt)));
        Locking::Acquiring(attempt)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}
