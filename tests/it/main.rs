//! The suite, on a real ZooKeeper: `zk-docker/run cargo test`. What the feature `scenes` adds runs in virtual time, which is exact:
//! see verify/virtual. What is marked `not(virtual_time)` needs a thread, a process or several servers of its own.

#![cfg_attr(
    any(virtual_time, not(feature = "scenes")),
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

/// Makes what the library makes once a process, before the first scene in virtual time.
#[cfg(virtual_time)]
async fn warm_up() {
    let session = support::connect(&support::hosts()).await;
    let mutex = zookeeper_recipes::Mutex::new(&session, "/warm-up").expect("a mutex");
    mutex.lock().await.expect("held").release().await.expect("released");
}

/// The name of a test of a module, as its binary has it: for tests that start one of themselves as a process.
fn full_name(module: &str, test: &str) -> String {
    let (_, module) = module.split_once("::").expect("the crate and a path");
    format!("{module}::{test}")
}
