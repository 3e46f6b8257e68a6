//! What stands on the public API.

#[cfg(not(virtual_time))]
mod blocking;
mod config;
mod job;
mod kept_node;
mod local;
mod traits;
mod types;
