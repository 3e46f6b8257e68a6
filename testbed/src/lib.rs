//! What tests and benchmarks of locks on ZooKeeper stand on: real servers, ensembles whose links can be
//! broken, a proxy that understands frames, and ledgers that remember who held what.
//!
//! It knows nothing of the library under test.

pub mod expire;
pub mod frames;
pub mod ledger;
pub mod proxy;
mod ensemble;
mod java;
mod link;
mod ports;
mod quorum_wire;
mod server;

pub use ensemble::{Ensemble, EnsembleBuilder};
pub use link::Link;
pub use server::{Server, ServerBuilder, ServerError};
