//! The suite, on a real ZooKeeper: `zk-docker/run cargo test`.

mod cancel;
mod contract;
mod cut;
mod election;
mod ends;
mod given;
mod histories;
mod listing;
mod loss;
mod multi_lock;
mod nobody;
mod paths;
mod pause;
mod recipes;
mod reentrant;
mod round_trips;
mod rwlock;
mod semaphore;
mod storm;
mod support;
mod traits;
mod trust;
mod types;
mod weather;
