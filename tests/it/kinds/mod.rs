//! What single kinds of locks do beside that.

#[cfg(feature = "scenes")]
mod candidate;
#[cfg(feature = "scenes")]
mod election;
#[cfg(feature = "scenes")]
mod eligible;
#[cfg(feature = "scenes")]
mod enqueue;
#[cfg(feature = "scenes")]
mod members;
#[cfg(feature = "scenes")]
mod monitor;
#[cfg(feature = "scenes")]
mod multi_lock;
#[cfg(feature = "scenes")]
mod reentrant;
#[cfg(feature = "scenes")]
mod rwlock;
#[cfg(feature = "scenes")]
mod semaphore;
#[cfg(feature = "scenes")]
mod semaphore_share;
#[cfg(feature = "scenes")]
mod shared_count;
#[cfg(feature = "scenes")]
mod slots;
#[cfg(feature = "scenes")]
mod stall_limit;
