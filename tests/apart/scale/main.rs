//! Width and length: very many waiters, very many nodes in one session, very many watches, very many nodes of strangers, and
//! paths that come and go.
//!
//! Each test has a server of its own and the machine for itself, so they run one at a time.

mod alone;
mod containers;
mod delays;
mod nodes;
#[expect(dead_code, unused_imports, unused_macros, reason = "shared with the suite, which uses all of it")]
#[path = "../../it/recipes.rs"]
mod recipes;
mod strangers;
#[expect(dead_code, reason = "shared with the suite, which uses all of it")]
#[path = "../../it/support.rs"]
mod support;
#[path = "../../it/wait.rs"]
mod wait;
mod waiters;
mod watches;
