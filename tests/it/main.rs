//! The suite, on a real ZooKeeper: `zk-docker/run cargo test`.

mod bad_input;
mod cancel;
mod contract;
mod cut;
mod election;
mod ends;
mod enqueue;
mod family;
mod given;
mod listing;
mod loss;
mod max_hold;
mod nobody;
mod operators;
mod paths;
mod pause;
mod reentrant;
mod round_trips;
mod storm;
mod support;
mod traits;
mod trust;
mod types;
mod weather;
