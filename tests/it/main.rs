//! The suite, on a real ZooKeeper: `zk-docker/run cargo test`.

mod cancel;
mod chaos;
mod contract;
mod cut;
mod ends;
mod given;
mod listing;
mod loss;
mod multi_lock;
mod nobody;
mod paths;
mod pause;
mod recipes;
mod round_trips;
mod rwlock;
mod semaphore;
mod storm;
mod support;
mod traits;
mod trust;
mod types;
mod weather;
