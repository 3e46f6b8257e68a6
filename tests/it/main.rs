//! The suite, on a real ZooKeeper: `zk-docker/run cargo test`. What the feature `scenes` adds runs in virtual time, which is exact:
//! see verify/virtual. What is `not(virtual_time)` needs a thread, a process or several servers of its own.

#![cfg_attr(
    not(feature = "scenes"),
    allow(dead_code, unused_imports, unused_macros, reason = "scenes and what is real share helpers")
)]

// What all of it uses.
mod clock;
mod counter;
mod family;
mod recipes;
mod support;
mod wait;
mod warnings;
mod ways;
mod workload;

mod extras;
mod faults;
mod kinds;
mod operators;
mod promises;
#[cfg(not(virtual_time))]
mod real;
mod requests;
mod session;
