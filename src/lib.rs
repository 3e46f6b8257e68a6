//! Fair, blocking, distributed locks on ZooKeeper.

mod cleanup;
mod contender;
mod distributed_lock;
mod error;
mod hold;
mod mutex;
mod options;
pub mod path;
mod queue;
mod session;
#[cfg(feature = "testing")]
pub mod testing;

pub use async_trait::async_trait;
pub use zookeeper_client;

pub use crate::contender::Contender;
pub use crate::distributed_lock::{DistributedLock, LockGuard, LockProvider};
pub use crate::error::{Error, Loss, Result};
pub use crate::hold::token::FencingToken;
pub use crate::hold::{Hold, HoldState};
pub use crate::mutex::{Mutex, MutexGuard};
pub use crate::options::{Options, Trust};
pub use crate::session::Session;
