//! Faults, sessions and what stands on the public API, in virtual time.

#![allow(dead_code, unused_imports, unused_macros, reason = "each target uses some of the helpers")]

#[path = "../../../tests/it/clock.rs"]
mod clock;
#[path = "../../../tests/it/counter.rs"]
mod counter;
#[path = "../../../tests/it/family.rs"]
mod family;
#[path = "../../../tests/it/recipes.rs"]
mod recipes;
#[path = "../../../tests/it/support.rs"]
mod support;
#[path = "../../../tests/it/wait.rs"]
mod wait;
#[path = "../../../tests/it/warnings.rs"]
mod warnings;
#[path = "../../../tests/it/ways.rs"]
mod ways;
#[path = "../../../tests/it/workload.rs"]
mod workload;

#[path = "../../../tests/it/extras/mod.rs"]
mod extras;
#[path = "../../../tests/it/faults/mod.rs"]
mod faults;
#[path = "../../../tests/it/session/mod.rs"]
mod session;
