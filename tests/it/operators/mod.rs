//! What operators see and do.

#[cfg(feature = "scenes")]
mod break_and_revoke;
#[cfg(feature = "scenes")]
mod contenders;
#[cfg(feature = "scenes")]
mod metrics;
#[cfg(feature = "scenes")]
mod spans;
