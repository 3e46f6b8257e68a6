//! Every way to lock, side by side: the same work and the same faults, on real servers.

pub mod actor;
pub mod cell;
pub mod event;
pub mod expect;
pub mod faults;
pub mod java;
pub mod json;
pub mod load;
pub mod machine;
pub mod packages;
pub mod page;
pub mod play;
pub mod servers;
pub mod site;
pub mod stage;
pub mod store;
pub mod table;
pub mod ways;
pub mod work;

/// The result of everything here, with any error.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
