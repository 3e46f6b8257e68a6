//! What the crate promises, for all recipes and under faults. DESIGN.md has a table of the promises.

mod contract;
mod end_of_counter;
#[cfg(feature = "scenes")]
mod loss;
#[cfg(feature = "scenes")]
mod missing_paths;
#[cfg(feature = "scenes")]
mod no_server;
#[cfg(not(virtual_time))]
mod pause;
#[cfg(feature = "scenes")]
mod release;
mod silence;
#[cfg(feature = "scenes")]
mod storm;
mod sweep;
#[cfg(feature = "scenes")]
mod token_epoch;
#[cfg(not(virtual_time))]
mod trust;
#[cfg(not(virtual_time))]
mod visible_writes;
