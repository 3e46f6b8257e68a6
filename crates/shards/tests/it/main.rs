//! Shards on simulated servers: who owns what, what moves, and what faults do.

mod busy;
mod cost;
mod faults;
mod histories;
mod joins;
mod ledger;
mod metrics;
mod moves;
mod rules;
mod support;
mod surface;
#[cfg(not(virtual_time))]
mod threads;
