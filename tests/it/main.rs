//! The suite, on a real ZooKeeper: `zk-docker/run cargo test`.

mod contract;
mod pause;
mod support;
mod trust;
