//! What operators see and do.

mod break_and_revoke;
mod contenders;
mod metrics;
mod spans;
