//! Sessions from their start to their end.

#[cfg(feature = "scenes")]
mod drain;
#[cfg(feature = "scenes")]
mod ends;
#[cfg(feature = "scenes")]
mod lazy;
#[cfg(feature = "scenes")]
mod looks;
#[cfg(feature = "scenes")]
mod renewal;
#[cfg(not(virtual_time))]
mod runtime;
#[cfg(feature = "scenes")]
mod states;
