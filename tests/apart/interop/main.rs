//! Tests beside locks of other clients, on the same paths: `zk-docker/run --peers cargo test -p apart --test interop`.
//!
//! The other clients are driver programs, in the folders `java`, `python` and `go`, that take commands on standard
//! input and answer on standard output; [`peer`] lists the commands. [`pairs`] is the table of locks that exclude each
//! other, and [`fleet`] has the tests that run for every row of it.

mod client;
mod curator;
mod curator_costs;
mod fleet;
mod golang;
mod groups;
mod java;
mod kazoo;
mod last_number;
mod ledger;
mod pairs;
mod peer;
mod support;
mod together;
#[path = "../../it/wait.rs"]
mod wait;
#[expect(dead_code, reason = "shared with the suite, which uses all of it")]
#[path = "../../it/warnings.rs"]
mod warnings;
mod watched;
mod zookeeper;
