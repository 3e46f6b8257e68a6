//! Shards on simulated servers: who owns what, what moves, and what faults do.

mod busy;
mod cost;
mod faults;
mod histories;
mod joins;
mod ledger;
mod metrics;
mod moves;
mod reports;
mod rules;
mod support;
mod surface;
#[cfg(not(virtual_time))]
mod threads;
#[path = "../../../../tests/it/warnings.rs"]
#[allow(dead_code, reason = "the other suite uses more of it")]
mod warnings;
