//! Support for tests and benchmarks of locks on ZooKeeper: real servers, ensembles with links that can be broken, a
//! proxy that understands frames, ledgers of holders, and judges of histories.
//!
//! It does not depend on the library under test.

// Where time is virtual, one simulated server stands for all: see verify/virtual.
#[cfg(not(virtual_time))]
mod ensemble;
pub mod expire;
pub mod frames;
pub mod history;
#[cfg(not(virtual_time))]
mod java;
pub mod ledger;
#[cfg(not(virtual_time))]
mod link;
#[cfg(not(virtual_time))]
pub mod nemesis;
#[cfg(not(virtual_time))]
mod ports;
pub mod proxy;
#[cfg(not(virtual_time))]
mod quorum_wire;
mod relay;
#[cfg(not(virtual_time))]
mod server;
#[cfg(virtual_time)]
mod simulated;
#[cfg(not(virtual_time))]
mod snapshot;
#[cfg(not(virtual_time))]
mod wire;

#[cfg(not(virtual_time))]
pub use ensemble::{Ensemble, EnsembleBuilder};
#[cfg(not(virtual_time))]
pub use link::Link;
#[cfg(not(virtual_time))]
pub use ports::free_port;
#[cfg(not(virtual_time))]
pub use server::{Server, ServerBuilder, ServerError};
#[cfg(virtual_time)]
pub use simulated::{Server, ServerBuilder, ServerError, free_port};
#[cfg(not(virtual_time))]
pub use wire::Wire;

/// Lets a millisecond pass before the next look at a condition that reports no change. A loop that only yields takes a whole
/// core from what it waits for.
pub async fn next_look() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}
