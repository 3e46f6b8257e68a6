//! The machine over the client: a call locks it itself and polls its own answers; one task has the timers, the connection, what
//! nobody awaits, and the next session.
//!
//! | | |
//! |---|---|
//! | `core` | a session: its state under one lock, and what is done of what the machine asks for |
//! | `reading` | answers and events that have come |
//! | `state` | what the lock guards: the machine, and what it has under way |
//! | `deferred` | what runs the user's code, and waits until the lock is released |
//! | `entry` | what an acquisition has under way: requests, watches, room, and whom to wake |
//! | `call` | an acquisition and a release, as futures |
//! | `draft` | what its nodes are created with |
//! | `budget` | what a session may have of nodes and watches |
//! | `wire` | how an ask becomes a request, and its answer an outcome |
//! | `names` | the texts of names and paths |
//! | `progress` | how many are ahead, for those that want to know |
//! | `reports` | log events and metrics, which run the user's code |
//! | `task` | the one task of a session |

mod budget;
mod call;
mod core;
mod deferred;
mod draft;
mod entry;
mod names;
mod progress;
mod reading;
mod reports;
mod state;
mod task;
mod wire;

pub(crate) use self::budget::Reservation;
pub(crate) use self::call::{Acquire, Failed, Granted, abandon, release};
pub(crate) use self::core::Core;
pub(crate) use self::draft::{Draft, Permits};
pub(crate) use self::entry::HoldListener;
pub(crate) use self::progress::Progress;
pub(crate) use self::state::{Closing, Reader, State, nonce};
pub(crate) use self::task::drive;
pub(crate) use self::wire::{MAX_REQUEST_BYTES, is_refusal, runtime_is_gone};

#[cfg(test)]
mod tests;
