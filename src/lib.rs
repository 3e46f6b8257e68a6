//! Fair, queueing, distributed locks on [ZooKeeper](https://zookeeper.apache.org) for async Rust.
//!
//! These are Curator's lock recipes for Rust and tokio, on the same nodes, so both can share a lock path. Locks are
//! granted first come, first served. Every guard carries a fencing token and reports a lost lock *before* the servers
//! can grant it to someone else.
//!
//! `lock().await` waits as Curator's `acquire()` does, but it suspends the task and blocks no thread.
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
//! drop(guard);
//! session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! When the work is done, drop the guard or let its scope end, as with [`std::sync::MutexGuard`]. The drop sends the
//! delete at once and does not wait, so a loss after the work does not turn success into an error. [`Session::close`]
//! at the end of the program waits until everything is deleted. Call [`release().await`](MutexGuard::release) if you
//! must know that the lock is free, or that the hold was not lost before.
//!
//! Give the guard a name, even if you do not use it: `let _guard = …`. A guard in `let _ = mutex.lock().await?` is
//! dropped at the end of that line, so the work below it runs without the lock. The compiler does not warn; clippy's
//! `let_underscore_must_use` does.
//!
//! # Recipes
//!
//! | | |
//! |---|---|
//! | [`Mutex`] | one holder at a time |
//! | [`ReentrantMutex`] | a mutex that its [`Owner`] may lock again |
//! | [`RwLock`] | one writer or many readers; a writer can become a reader without a gap |
//! | [`Semaphore`] | at most *n* permits in use; `acquire_many` is all or nothing |
//! | [`SemaphoreShare`] | permits that a process keeps for its tasks, without a request for each use |
//! | [`MultiLock`] | several locks as one, in one transaction, without deadlock |
//! | [`Election`] | one leader among candidates, for one term or [term after term](Election::run), and its [observers](Observer) |
//! | [`Job`] | work that a fleet does at most once, or at least once, for each fire, and records |
//!
//! Members of a group, numbered slots and shards are in the package
//! [`zookeeper-groups`](https://docs.rs/zookeeper-groups), which is built on the public API of this one.
//!
//! Each recipe but the job and the share has a call that waits, one that does not wait, and one with a time limit. All
//! of these but the re-entrant mutex also have `enqueue`, which joins the queue and returns a [`Waiting`]. `contenders`
//! lists holders and waiters, `revoke` asks a holder to release, and `break_lock` takes the lock from it. Every guard
//! dereferences to a [`Hold`]; its [monitor](Hold::monitor) shows the hold to other tasks and does not keep the lock.
//!
//! The tests of a service need no server: with the feature `testing`, `Session::local` connects to a simulated one.
//!
//! # Promises
//!
//! * **Exclusion.** Two live sessions never hold the same lock at once.
//! * **Order.** Locks are granted in the order in which the contenders' nodes were created.
//! * **No herd.** A waiter waits only for its predecessor. So a release wakes only the next waiter, or the readers
//!   behind a writer, however many wait. They may hold the lock before the release has returned.
//! * **Growing tokens.** Each grant of a lock has a larger token than every conflicting grant before it, even after the
//!   lock's path was deleted and created again.
//! * **Reported loss.** While the session's runtime runs, a hold reports its loss before the servers can expire its
//!   session and grant the lock to someone else. After a pause of the process, or when the runtime was
//!   [blocked](#do-not-block-the-runtime), the first call of [`Hold::state`] reports it.
//! * **No leftover nodes.** A dropped future, a cut connection, a panic or a refused request leaves no node behind,
//!   once the servers can be reached again.
//! * **Time limits.** `try_lock_for(d)` returns within `d`, whether or not the servers can be reached. `None`: another
//!   contender was ahead. [`Error::Unavailable`]: no server answered in time, for the [reason](error::Unanswered) in
//!   `why`. With a `d` of zero the call is a `try_lock` that does not wait for a connection: without one it returns at
//!   once.
//! * **Honest release.** `release()` is `Ok` only if the lock was still held when its delete was sent. If the
//!   connection was lost before the answer, a node that is gone counts as released.
//! * **Outages.** A waiter keeps its position through a lost connection while its session lives. Its grant may come a
//!   third of the session timeout after the reconnect, because a session without holds does not renew its
//!   [trust](#trust) and must first prove that it lives. A holder keeps the lock if the client reconnects within 0.38
//!   session timeouts. The client doubles its pauses between attempts, so it may be back only
//!   after twice the outage.
//! * **Mixed fleets.** Nodes are named and ordered as Curator's. Nodes of kazoo, of Go's `zk.Lock` and of ZooKeeper's
//!   own `WriteLock` count as contenders.
//! * **Counter overflow.** Exclusion and order survive the end of ZooKeeper's 32-bit sequence counter.
//! * **Visible writes.** The next holder, in the session that holds the lock, reads everything that earlier holders
//!   wrote to the same ZooKeeper before their release.
//!
//! # Limits
//!
//! * **Exclusion at a resource that ignores tokens** is not promised. A process can be stopped between its last check
//!   and its write, and continue when another contender holds the lock. No lock can prevent that. A resource that
//!   refuses old [`FencingToken`]s can. For data in the same ZooKeeper use [`Hold::check_writer`].
//! * **A forced end comes without warning.** If someone deletes a holder's node or ends its session, the lock is free
//!   at once. The hold reports the loss as soon as the servers do.
//! * **A waiter whose node is deleted by hand may still be granted the lock**, if a holder of its own session releases
//!   the lock before the event of the deletion arrives. Another session may hold the lock at the same time, with the
//!   larger token. The event ends the first hold as [`Lost(Deleted)`](Loss::Deleted). A semaphore's caller whose node
//!   in the queue is deleted just when permits become free may still get them. Even then, the permits in use do not
//!   exceed the limit.
//! * **A dead waiter stops all waiters behind it** until the servers expire its session, up to about one session timeout,
//!   although nobody holds the lock. In a semaphore, this happens even if permits are free. The guide [what can go
//!   wrong](guide::what_can_go_wrong) has tables of faults and times; [incidents](guide::incidents) says what to do.
//! * **No fairness across the end of a session.** A waiter whose session ended queues again at the tail.
//! * **Tokens fall when the servers' data is wiped** or restored from an older backup, unless the operator raises
//!   [their epoch](Options::with_token_epoch).
//! * **No progress without a majority of the servers.**
//! * **Nothing is undone** that a holder did before it lost the lock.
//! * **No exclusion between a semaphore and another recipe at the same path.** A [`Semaphore`] has its nodes in `locks`
//!   and `leases` below its path, the others directly below theirs. Neither sees the other's nodes. Use one recipe for
//!   each path.
//! * **The data of a lock's path belongs to the lock.** An uncontended lock is acquired in one request, which also writes
//!   empty data to the path. Data that you write there after the session saw the path empty may be overwritten;
//!   [`Options::with_one_request`] turns that off.
//! * **No re-entrance**, except for [`ReentrantMutex`]. A task that locks a [`Mutex`] twice waits for itself, and a
//!   reader cannot become a writer.
//! * **Tokens of simultaneous holders are not ordered**: those of readers, and those of permits.
//! * **A paused virtual machine goes unnoticed** if its clocks were paused too.
//! * **A copied process goes unnoticed**: for example one restored twice from a checkpoint (CRIU, a snapshot of a
//!   virtual machine), or running in both parent and child after a `fork` without `exec`. The copies share one
//!   ZooKeeper session, so each may report the same hold as held. Close the session before the copy is made, and
//!   connect in each copy.
//! * **Servers with different limits for session timeouts.** A session relies on the timeout of its first connection. A
//!   server with a lower limit shortens it at a reconnect, and the client does not report that. Such a session may
//!   expire before its holds report the loss. While you change the limits server by server, the same can happen.
//!
//! # Trust
//!
//! The servers end a session one timeout *T* after their leader last heard of it, and the client learns of that later.
//! A hold therefore computes until when its session certainly lives, and reports its loss at that instant. The [trust
//! rule](guide::trust) lists the proofs that count and the assumptions. For you this means:
//!
//! * [`Hold::state`] compares the end of trust with a clock, so no event has to arrive first. The state is
//!   [`Suspended`](HoldState::Suspended) while disconnected, and [`Lost`](HoldState::Lost) for good when trust ends.
//! * Trust does not lapse while the servers answer writes within *T*/6. Choose *T* well above six times the slowest
//!   write.
//! * A hold survives 0.38 *T* without an answer, if the servers had answered promptly until then. After a reconnect,
//!   trust is back with the first write that is answered.
//! * Trust costs four small writes and four reads per *T* and session with holds, for any number of holds.
//!
//! # Do not block the runtime
//!
//! A session lives on the runtime on which it was connected. If all threads of that runtime are blocked for longer than
//! trust lasts, nothing can wake [`Hold::lost`]. It then resolves late, perhaps after the next grant, and the session
//! expires. [`Hold::state`] compares clocks, and [`Hold::run_until_lost`] checks the state before every step, so both
//! are right as soon as they run again. Put work that blocks on [`tokio::task::spawn_blocking`], or connect the session
//! on a runtime of its own. A loss does not stop work on such a thread, so let the work send the token.
//!
//! [`tokio::task::spawn_blocking`]: https://docs.rs/tokio/latest/tokio/task/fn.spawn_blocking.html
//!
//! # Log layers and metrics recorders
//!
//! `tracing` layers and `metrics` recorders are your code. They may call this crate, take locks of their own, and panic.
//!
//! * A session logs and counts its own events, such as a lost lock, in a separate task, a moment after they happened.
//!   The session's internal mutex is not locked meanwhile, and a layer that panics loses only that event. So after
//!   [`Hold::lost`] has returned, the warning and the counter of the loss may not have arrived yet. [`Session::close`]
//!   waits for them for up to a second.
//! * A layer that *blocks*, on a full pipe for example, blocks one thread of the runtime. Losses are reported in time
//!   as long as the runtime has another thread. A runtime with one thread stands still; see
//!   [above](#do-not-block-the-runtime).
//! * Spans, and the events of a call such as `held`, come from the thread of that call. A layer that blocks there delays
//!   the call.
//!
//! # Futures
//!
//! A future keeps its position in the queue, and then its grant, until it is dropped, as in tokio's fair locks. A grant
//! counts as a hold at once: its limit ([`Options::with_stall_limit`]) runs, a [drain](Session::drain) waits for it, and
//! it can be lost. Do not keep a future and stop polling it: spawn it, or use `enqueue`. A call never returns a hold
//! that it knows to be lost: it queues again. A [`Waiting`], and a call whose hold reached its limit, return
//! [`Error::Lost`].
//!
//! # Cancel safety
//!
//! Every future of this crate can be dropped at any point. A dropped waiter leaves the queue, and its node is deleted
//! in the background. A dropped release continues in the background. Dropping a guard sends the delete before the drop
//! returns, on any thread, and does not wait for the answer.
//!
//! # Runtimes
//!
//! The futures of this crate need a tokio runtime with timers (`enable_time` or `enable_all`). Elsewhere they may
//! panic: [`Mutex::try_lock`] always does, and [`Hold::lost`] while the lock is held. A call that panics leaves no node
//! behind. No runtime is needed to create a lock, to call [`Hold::state`], to await [`Hold::revoke_requested`], or to drop
//! a guard, a [`Waiting`] or a session.
//!
//! # Sessions
//!
//! A process needs one [`Session`], which all its locks share. A [`Config`] reads its settings from the environment. The
//! session renews itself after it has expired. Its holds are lost for good then, and its waiters queue again.
//!
//! Call [`Session::close`] before the program ends, or [`Session::drain`], which lets holders finish first. A program that
//! exits without either may leave its nodes, and with them its locks, until the servers expire the session.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! * `blocking`: [`blocking`](https://docs.rs/zookeeper-recipes/latest/zookeeper_recipes/blocking/), the locks for threads
//!   without a runtime. One session can serve both threads and tasks.
//! * `metrics`: [`metrics`](https://docs.rs/zookeeper-recipes/latest/zookeeper_recipes/metrics/), metrics of locks and
//!   sessions, for the recorder of the `metrics` crate.
//! * `testing`: `Session::local`, a session with simulated servers within the process, which a test can disconnect, expire and
//!   make unavailable. Add it under `[dev-dependencies]`.
//! * `serde`: [`FencingToken`] is serialized as a number, and a [`Config`] is deserialized.
//! * `tls`, `sasl-digest-md5`, `sasl-gssapi`: the features of [`zookeeper_client`]. `tls` needs a C compiler, and
//!   `sasl-gssapi` the C library libgssapi.
//!
//! The crate needs ZooKeeper 3.6 or later, and keeps its promises on Unix only. Use it on other systems for development
//! only: there the clock may stand still while the computer sleeps, and nothing is tested.
//!
//! Five crates are part of this API: [`zookeeper_client`] 0.11, which is re-exported, `async-trait` 0.1 and `futures-util`
//! 0.3 for the traits, `tracing` 0.1 for spans, and `tokio` 1 for the time of [`Looks::look_by`](session::Looks::look_by).
//! Depend on the last four where you name their items.
//!
//! [`Hold::lost`]: HoldMonitor::lost
//! [`Hold::revoke_requested`]: HoldMonitor::revoke_requested
//! [`Hold::state`]: HoldMonitor::state

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "blocking")]
pub mod blocking;
mod both;
mod clock;
mod config;
pub mod contender;
mod distributed_lock;
mod driver;
mod election;
pub mod error;
mod fencing_token;
#[cfg(any(doc, doctest))]
pub mod guide;
mod hold;
pub mod job;
mod lock;
mod locked;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod multi_lock;
mod mutex;
pub mod options;
mod owner;
pub mod path;
mod queue;
mod reentrant;
pub mod rwlock;
mod semaphore;
mod semaphore_share;
pub mod session;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;

pub use zookeeper_client;

// The state machine that decides when a lock is granted, released or lost: see DESIGN.md.
use zookeeper_machine as machine;

pub use crate::both::Both;
pub use crate::config::Config;
#[doc(inline)]
pub use crate::contender::Contender;
pub use crate::distributed_lock::{DistributedLock, LockGuard};
pub use crate::election::{Election, Leadership, Observer, Term};
#[doc(inline)]
pub use crate::error::{Error, Loss, Result};
pub use crate::fencing_token::FencingToken;
pub use crate::hold::{Hold, HoldMonitor, HoldState};
#[doc(inline)]
pub use crate::job::Job;
pub use crate::lock::Waiting;
#[doc(inline)]
pub use crate::multi_lock::{MultiLock, MultiLockGuard};
pub use crate::mutex::{Mutex, MutexGuard};
#[doc(inline)]
pub use crate::options::Options;
pub use crate::owner::Owner;
pub use crate::reentrant::{ReentrantMutex, ReentrantMutexGuard};
#[doc(inline)]
pub use crate::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use crate::semaphore::{Semaphore, SemaphorePermit};
pub use crate::semaphore_share::{SemaphoreShare, SharePermit};
#[doc(inline)]
pub use crate::session::{Servers, Session, SessionState};

/// Compiles the Rust blocks of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
