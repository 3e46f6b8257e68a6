//! Fair, queueing, distributed locks on [ZooKeeper](https://zookeeper.apache.org), for tokio.
//!
//! What Curator's lock recipes are to Java services: one at a time across machines, in the order of arrival, on the
//! same nodes as Curator, so both can share a lock path. Every guard carries a fencing token, and reports a
//! lost lock before the servers can grant it to someone else.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use zookeeper_recipes::{Mutex, Session};
//!
//! let session = Session::connect("zk1:2181,zk2:2181,zk3:2181").await?;
//! let mutex = Mutex::new(&session, "/locks/nightly-report")?;
//! let guard = mutex.lock().await?;
//! let token = guard.fencing_token();
//! guard.run_until_lost(async { /* the report; its store refuses tokens older than `token` */ }).await?;
//! guard.release().await?;
//! session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Recipes
//!
//! | | |
//! |---|---|
//! | [`Mutex`] | one holder at a time |
//! | [`ReentrantMutex`] | that an explicit [`Owner`] can lock again |
//! | [`RwLock`] | one writer, or any number of readers; a writer can go on as a reader |
//! | [`Semaphore`] | a number of permits, one or several at a time |
//! | [`MultiLock`] | several locks as one, taken at once, without deadlocks |
//! | [`Election`] | one leader among candidates, and [observers](Observer) of it |
//!
//! All have a form that waits, one that does not, and one with a time limit; all but the re-entrant one have another
//! that [takes its place first](Waiting), to be awaited later. `contenders` returns holders and waiters, `revoke` asks a holder to release, and
//! `break_lock` makes it. Every guard is a [`Hold`].
//!
//! Services are better written against [`DistributedLock`] and [`LockProvider`], so that their tests need no server.
//!
//! # What is promised
//!
//! * **Exclusion.** Two live sessions never hold the same lock at once.
//! * **Fairness.** Holders follow each other in the order in which their nodes were created.
//! * **No herd.** A waiter watches only its predecessor, so a release wakes one.
//! * **Tokens grow** from each hold of a lock to the next, also after its path was deleted and made again.
//! * **Loss is reported in time.** While the session's runtime runs, a hold calls itself lost *before* the servers give
//!   the lock away by themselves; after a pause, or when the runtime is [blocked](#do-not-block-the-runtime), the first
//!   look at [`Hold::state`] shows it.
//! * **Nothing is left behind** by a dropped future, a cut connection, a panic or a failed delete, once the servers can
//!   be reached again.
//! * **Time limits hold**, whether the servers answer or not. `None` means that somebody was seen ahead of us; if no
//!   answer came, it is [`Error::Unavailable`], which has the [reason](Unanswered): time, or a connection, was missing.
//! * **A release is honest.** It is `Ok` only if the lock was still held.
//! * **What is written is seen.** What a holder wrote to the same ZooKeeper before it released the lock, the next one
//!   reads in the session that it holds in.
//!
//! # What is not promised
//!
//! * *Exclusion at a resource that ignores tokens.* A process can be stopped between its last question and its write,
//!   and continue when others hold the lock. No lock can prevent that; a resource that refuses old [`FencingToken`]s
//!   can. Data in the same ZooKeeper is guarded by [`Hold::check_writer`] instead.
//! * *A warning, if the node or the session of a hold is ended by someone else.* The lock is free at once then; the
//!   hold learns of it as soon as the servers report it.
//! * *Fairness across the end of a session.* Who loses it while waiting queues again at the tail.
//! * *Tokens that grow when the servers' data is wiped, or restored from an older backup*: their counter starts over, or
//!   goes back, and a store that has seen larger tokens refuses all holders. See [`FencingToken`] for what to do.
//! * *Progress without a majority of the servers*, and *atomicity* of what a holder did before it lost the lock.
//! * *Noticing that a virtual machine stood still*, if its clocks stood still too.
//!
//! Do not use it where a lock within one process would do ([`tokio::sync::Mutex`]), where the database that is to be
//! guarded has locks of its own, or for thousands of locks a second on one path: each costs a write by a majority, and
//! so does its release.
//!
//! # Trust
//!
//! The servers end a session one timeout *T* after their leader last heard of it; a client learns of that only later.
//! So a hold does not wait for the news, but computes until when it can be sure:
//!
//! 1. It is trusted for *T* from the *sending* of an answered request, once a write sent *T*/3 after that answer has
//!    been answered too. The first touched the session; the second proves that the leader has heard.
//! 2. A new session is trusted for *T* from its creation, and one that has held nothing for a while for about 0.4 *T* from
//!    the sending of its next write; for less if the process stood still just before.
//! 3. While there are holds, a small read and a small write that changes nothing are sent about every *T*/3. Trust never
//!    lapses while writes are answered within *T*/6.
//! 4. [`Hold::state`] compares the end of trust with the system's boot time, so no event has to arrive first. It is
//!    [`Suspended`](HoldState::Suspended) while disconnected, [`Lost`](HoldState::Lost) for good when trust ends.
//!
//! It is assumed that *T* is at least two ticks of the servers (their default minimum), that a follower answers its
//! leader's pings within *T*/3, that the client's own pings are not held up on their way, and that all servers have the
//! same limits for session timeouts. The cost is about three small writes per *T* and session with holds, however many these are;
//! [`Trust::Connection`] saves them and promises less.
//!
//! Every 20 to 30 s a session that waits for something, or holds it, also lists the path once or twice, in case an event
//! was never sent: servers send none to a client that the ACLs of the moment deny the node.
//!
//! # Do not block the runtime
//!
//! A session lives on the runtime on which it was connected. If all threads of that runtime are blocked for longer than
//! trust lasts, nobody is there to wake [`Hold::lost`]: it comes late, maybe after the next grant, and the
//! session expires. [`Hold::state`] compares clocks, and [`Hold::run_until_lost`] asks it before every step, so both are
//! right at the first look afterwards. Put work that blocks on [`tokio::task::spawn_blocking`], or connect the session on
//! a runtime of its own.
//!
//! # Cancel safety
//!
//! Every future here can be dropped at any point. A waiter gives up its place, and its node is deleted in the
//! background; one that releases goes on releasing there. A guard's drop sends the delete before it returns, on any
//! thread, and does not wait for the answer.
//!
//! # Runtimes
//!
//! The futures of this crate need a tokio runtime with timers (`enable_time` or `enable_all`). Awaited on another executor
//! or on a thread of its own they may panic: [`Mutex::try_lock`], [`MutexGuard::release`] and [`Hold::lost`] always do,
//! [`Mutex::lock`] does when it has to pause. A call that panics leaves nothing behind: its node is deleted in the
//! background. No runtime is needed to make a lock, to ask for [`Hold::state`], to await [`Hold::revoke_requested`], or
//! to drop a guard, a place in the queue or a session.
//!
//! # Sessions
//!
//! A [`Session`] renews itself after it has expired: its holds are lost for good, its waiters queue again. All locks
//! made from it share it, so a process needs one. It lives on the runtime that it was connected on. A task that locks
//! the same [`Mutex`] twice waits for itself; see [`ReentrantMutex`].
//!
//! Call [`Session::close`] before the program ends. A `main` that simply ends may leave its nodes, and so its locks,
//! until the servers give the session up.
//!
//! # Features
//!
//! None is on by default.
//!
//! * `testing`: `testing::LocalLock`, a lock within the process, whose holder can be made to lose it.
//! * `tls`, `sasl-digest-md5`, `sasl-gssapi`: those of [`zookeeper_client`]. The last needs the C library libgssapi.
//!
//! ZooKeeper 3.5.3 or later is needed, for container nodes. [`zookeeper_client`] is part of this API and exported.

#[cfg(not(unix))]
compile_error!(
    "zookeeper-recipes needs a Unix: trust is measured by clock_gettime, and a node carries the host's name"
);

mod contender;
mod distributed_lock;
mod election;
mod error;
mod fencing_token;
mod hold;
mod lock;
mod multi_lock;
mod mutex;
mod options;
mod owner;
pub mod path;
mod queue;
mod reentrant;
mod rwlock;
mod semaphore;
mod session;
#[cfg(feature = "testing")]
pub mod testing;

pub use async_trait::async_trait;
pub use futures_util::Stream;
pub use futures_util::future::BoxFuture;
pub use zookeeper_client;

pub use crate::contender::Contender;
pub use crate::distributed_lock::{
    DistributedElection, DistributedLock, DistributedReentrantLock, DistributedRwLock, DistributedSemaphore,
    LeaderGuard, LockGuard, LockProvider, WriteGuard,
};
pub use crate::election::{Election, Leadership, Observer, Term};
pub use crate::error::{Error, ErrorKind, HostFailure, Loss, Result, Unanswered};
pub use crate::fencing_token::FencingToken;
pub use crate::hold::{Ended, Hold, HoldMonitor, HoldState};
pub use crate::lock::Waiting;
pub use crate::multi_lock::{Member, MultiLock, MultiLockBuilder, MultiLockGuard};
pub use crate::mutex::{Mutex, MutexGuard};
pub use crate::options::{Options, Trust};
pub use crate::owner::Owner;
pub use crate::queue::ContenderKind;
pub use crate::reentrant::{ReentrantMutex, ReentrantMutexGuard};
pub use crate::rwlock::{DowngradeError, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use crate::semaphore::{Semaphore, SemaphorePermit};
pub use crate::session::Session;
