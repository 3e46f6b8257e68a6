//! What single kinds of locks do beside that.

mod candidate;
mod election;
mod enqueue;
mod max_hold;
mod members;
mod monitor;
mod multi_lock;
mod reentrant;
mod rwlock;
mod semaphore;
mod semaphore_share;
mod slots;
