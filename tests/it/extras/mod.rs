//! What stands on the public API.

#[cfg(not(virtual_time))]
mod blocking;
#[cfg(feature = "scenes")]
mod both;
#[cfg(feature = "scenes")]
mod config;
#[cfg(feature = "scenes")]
mod job;
#[cfg(feature = "scenes")]
mod kept_node;
#[cfg(feature = "scenes")]
mod local;
#[cfg(feature = "scenes")]
mod traits;
#[cfg(feature = "scenes")]
mod types;
