//! Support for tests and benchmarks of locks on ZooKeeper: real servers, ensembles with links that can be broken, a
//! proxy that understands frames, ledgers of holders, and judges of histories.
//!
//! It does not depend on the library under test.

mod ensemble;
pub mod expire;
pub mod frames;
pub mod history;
mod java;
pub mod ledger;
mod link;
pub mod nemesis;
mod ports;
pub mod proxy;
mod quorum_wire;
mod relay;
mod server;
mod snapshot;
pub mod timeline;
mod wire;

pub use ensemble::{Ensemble, EnsembleBuilder};
pub use link::Link;
pub use ports::free_port;
pub use server::{Server, ServerBuilder, ServerError};
pub use wire::Wire;

/// Lets a millisecond pass before the next look at a condition that reports no change. A loop that only yields takes a whole
/// core from what it waits for.
pub async fn next_look() {
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
}
