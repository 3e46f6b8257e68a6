//! What needs several threads, processes or servers, or a property of the servers that the simulation does not have.

mod ensembles;
mod processes;
mod runtimes;
mod servers;
mod threads;

use tokio::runtime::{Builder, Runtime};

/// A runtime with a thread of its own.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}
