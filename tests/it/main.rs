//! The suite, on a real ZooKeeper: `zk-docker/run cargo test`.

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

/// What the crate promises, for all recipes and under faults. DESIGN.md has a table of the promises.
mod promises {
    mod cancel;
    mod contract;
    mod cut;
    mod end_of_counter;
    mod histories;
    mod loss;
    mod missing_paths;
    mod no_server;
    mod pause;
    mod silence;
    mod token_epoch;
    mod trust;
    mod visible_writes;
}

/// What single kinds of locks do beside that.
mod kinds {
    mod candidate;
    mod election;
    mod enqueue;
    mod max_hold;
    mod members;
    mod monitor;
    mod multi_lock;
    mod reentrant;
    mod rwlock;
    mod semaphore;
    mod semaphore_share;
    mod slots;
}

/// One fault each: of the servers, of neighbours, of the user.
mod faults {
    mod acls;
    mod all_at_once;
    mod bad_input;
    mod deleted_by_hand;
    mod full_session;
    mod hostile;
    mod lost_creates;
    mod lost_events;
    mod new_sessions;
    mod paths;
    pub(crate) mod permissions_and_restarts;
    mod throttled;
    mod user_code;
}

/// Sessions from their start to their end.
mod session {
    mod attached;
    mod drain;
    mod ends;
    mod lazy;
    mod renewal;
    mod restart;
    mod runtime;
    mod states;
}

/// What a lock costs, and by which of several ways it is granted.
mod requests {
    mod counted;
    mod in_memory;
    mod round_trips;
    mod shared_listings;
    mod switches;
    mod undisturbed;
}

/// What operators see and do.
mod operators {
    mod break_and_revoke;
    mod contenders;
    mod metrics;
    mod spans;
}

/// What stands on the public API.
mod extras {
    mod blocking;
    mod config;
    mod job;
    mod kept_node;
    mod local;
    mod traits;
    mod types;
}

/// The name of a test of a module, as its binary has it: for tests that start one of themselves as a process.
fn full_name(module: &str, test: &str) -> String {
    let (_, module) = module.split_once("::").expect("the crate and a path");
    format!("{module}::{test}")
}
