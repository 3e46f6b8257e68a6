//! Locks for threads that block: the recipes without async. Needs the feature `blocking`.
//!
//! For programs without a tokio runtime: command line tools, services of one thread per request, test suites. In an
//! async program use the async locks: each waiter here costs a thread.
//!
//! ```no_run
//! # fn example() -> Result<(), zookeeper_recipes::Error> {
//! use zookeeper_recipes::blocking::{Mutex, Session};
//!
//! let session = Session::connect("zk1:2181,zk2:2181,zk3:2181")?;
//! let mutex = Mutex::new(&session, "/locks/nightly-report")?;
//! let guard = mutex.lock()?;
//! println!("a store that checks tokens refuses those older than {}", guard.fencing_token());
//! drop(guard);
//! session.close()
//! # }
//! ```
//!
//! The locks are the same, so all promises of the [crate documentation](crate) hold here, and threads and tasks of
//! different processes can share a lock path. Each [`Session`] has a thread that renews it and notices losses, however
//! long the other threads compute or block. For calls without a blocking form, use [`Session::as_async`] and
//! [`Session::block_on`].
//!
//! # What a thread can wait for
//!
//! | | returns |
//! |---|---|
//! | [`lock`](Mutex::lock) | the guard; [`Error::Closed`](crate::Error::Closed) once the session is closed or drained, by any thread |
//! | [`try_lock`](Mutex::try_lock), [`try_lock_for`](Mutex::try_lock_for) | the guard, or `None` if the lock is contended |
//! | [`enqueue`](Mutex::enqueue) | a [`Waiting`], on which the thread waits in steps, without losing its position |
//! | [`session.block_on(monitor.ended())`](Session::block_on) | when a hold is released or lost |
//!
//! A thread that works under a lock is not interrupted when the lock is lost: see [`Guard`].
//!
//! # One session for threads and tasks
//!
//! A process with threads and tasks needs one session. [`Session::as_async`] returns its async side, whose clones make
//! locks for tasks of any runtime. The session runs on its own thread until both sides are dropped.
//! [`close`](Session::close) on either side closes both.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tokio::task::spawn_blocking;
//! use zookeeper_recipes::{Mutex, blocking};
//!
//! let connected = spawn_blocking(|| blocking::Session::connect("zk1:2181,zk2:2181,zk3:2181")).await??;
//! // Tasks use this one,
//! let session = connected.as_async().clone();
//! let guard = Mutex::new(&session, "/locks/nightly-report")?.lock().await?;
//! drop(guard);
//! // and threads that one.
//! let mutex = blocking::Mutex::new(&connected, "/locks/nightly-report")?;
//! std::thread::spawn(move || {
//!     let _guard = mutex.lock()?;
//!     // The report.
//!     Ok::<_, zookeeper_recipes::Error>(())
//! });
//! # Ok(())
//! # }
//! ```
//!
//! # Inside a tokio runtime
//!
//! A call that blocks panics where tokio polls a future, as tokio's own `block_on` does: in a task, and in the body of
//! `#[tokio::main]`. The call would block the thread, and with it every other task there. It panics before it has sent
//! anything, but a call that connects panics after it has begun to connect. A guard that the call consumes is released in
//! the background. Use the async API, or make the call in [`spawn_blocking`] or in `block_in_place`, where it is allowed.
//!
//! [`spawn_blocking`]: https://docs.rs/tokio/latest/tokio/task/fn.spawn_blocking.html
//!
//! Calls that do not block are allowed everywhere: you can create a lock, look at a guard's state, and drop guards and
//! sessions.
//!
//! # Errors
//!
//! Each call fails as the async call of the same name does. So a call that waits for a lock fails with
//! [`Error::Closed`](crate::Error::Closed) once the session is closed or drained.

mod election;
mod guard;
mod mutex;
mod runtime;
mod rwlock;
mod semaphore;
mod session;
mod waiting;

use self::runtime::Runtime;

pub use self::election::{Election, Term};
pub use self::guard::Guard;
pub use self::mutex::{Mutex, ReentrantMutex};
pub use self::rwlock::RwLock;
pub use self::semaphore::Semaphore;
pub use self::session::Session;
pub use self::waiting::Waiting;

/// A held [`Mutex`].
pub type MutexGuard = Guard<crate::mutex::MutexGuard>;
/// One of the guards of a held [`ReentrantMutex`]. Dropping the last of them releases the lock.
pub type ReentrantMutexGuard = Guard<crate::reentrant::ReentrantMutexGuard>;
/// An [`RwLock`] held for reading.
pub type RwLockReadGuard = Guard<crate::rwlock::RwLockReadGuard>;
/// An [`RwLock`] held for writing.
pub type RwLockWriteGuard = Guard<crate::rwlock::RwLockWriteGuard>;
/// One or several permits of a [`Semaphore`].
pub type SemaphorePermit = Guard<crate::semaphore::SemaphorePermit>;
/// A won [`Election`].
pub type Leadership = Guard<crate::election::Leadership>;

/// Defines a blocking recipe around the async recipe of the same name, with the methods that all recipes have.
macro_rules! recipe {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty)?)) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            inner: crate::$name,
            runtime: crate::blocking::Runtime,
        }

        impl $name {
            /// Creates a handle of the lock at `path`, with the session's options. Sends nothing.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidInput`](crate::Error::InvalidInput) if an argument cannot be used.
            pub fn new(session: &Session, path: &str $(, $argument: $type)?) -> Result<Self> {
                Self::with_options(session, path $(, $argument)?, Options::new())
            }

            /// Creates a handle of the lock at `path` with its own options, which override the session's. Sends
            /// nothing.
            ///
            /// # Errors
            ///
            /// [`Error::InvalidInput`](crate::Error::InvalidInput) if an argument cannot be used.
            pub fn with_options(
                session: &Session,
                path: &str,
                $($argument: $type,)?
                options: Options,
            ) -> Result<Self> {
                let inner = crate::$name::with_options(session.as_async(), path $(, $argument)?, options)?;
                Ok(Self { inner, runtime: session.runtime().clone() })
            }

            /// Returns the lock path.
            #[must_use]
            pub fn path(&self) -> &str {
                self.inner.path()
            }

            /// Lists the holders, then the waiters in queue order.
            ///
            /// # Errors
            ///
            /// [`Error::Unavailable`](crate::Error::Unavailable) if no server answered within one session timeout,
            /// [`Error::NoAuth`](crate::Error::NoAuth) if the ACLs deny it.
            pub fn contenders(&self) -> Result<Vec<crate::contender::Contender>> {
                self.runtime.block_on(self.inner.contenders())
            }

            /// Deletes the node of a contender, and so takes the lock from the contender. Returns whether the node was there.
            ///
            /// For operators, when nothing else helps: see [`break_lock`](crate::Mutex::break_lock) of the async mutex.
            ///
            /// # Errors
            ///
            /// As [`contenders`](Self::contenders), and [`Error::InvalidInput`](crate::Error::InvalidInput) if the
            /// contender belongs to another lock.
            pub fn break_lock(&self, contender: &crate::contender::Contender) -> Result<bool> {
                self.runtime.block_on(self.inner.break_lock(contender))
            }

            /// Asks a contender to release, as Curator's `Revoker` does. Returns whether its node was there.
            ///
            /// A holder sees the request by [`is_revoke_requested`](crate::blocking::Guard::is_revoke_requested). See
            /// [`revoke`](crate::Mutex::revoke) of the async mutex.
            ///
            /// # Errors
            ///
            /// As [`break_lock`](Self::break_lock).
            pub fn revoke(&self, contender: &crate::contender::Contender) -> Result<bool> {
                self.runtime.block_on(self.inner.revoke(contender))
            }

            fn held<G>(&self, acquired: impl Future<Output = Result<G>>) -> Result<Guard<G>> {
                self.runtime.block_on(acquired).map(|guard| Guard::new(guard, &self.runtime))
            }

            fn maybe_held<G>(&self, tried: impl Future<Output = Result<Option<G>>>) -> Result<Option<Guard<G>>> {
                Ok(self.runtime.block_on(tried)?.map(|guard| Guard::new(guard, &self.runtime)))
            }
        }
    };
}

use recipe;
