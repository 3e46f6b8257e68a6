//! Connects the state machine of the locks (`machine`) to the ZooKeeper client. Each call locks the machine and sends requests.
//! One task per session reads all answers and events, runs the timers, follows the connection, and renews the session.
//!
//! | | |
//! |---|---|
//! | `core` | a session: locks its state, passes events to the machine and carries out its actions |
//! | `reading` | reads answers and watch events |
//! | `state` | the state under the lock: the machine, its client and requests in flight |
//! | `deferred` | wake-ups, callbacks and drops to run after unlock |
//! | `entry` | requests in flight, watches, reservations and wakers of one acquisition |
//! | `call` | an acquisition and a release, as futures |
//! | `draft` | options, paths and kinds of new nodes |
//! | `budget` | limits on the bytes of node paths and watched paths |
//! | `wire` | turns the machine's requests (`Ask`) into the client's, and the answers into outcomes |
//! | `names` | the texts of node names and paths |
//! | `progress` | publishes how many contenders are ahead of a waiter |
//! | `reports` | makes log events and metrics, which run the user's code |
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
pub(crate) use self::call::{Acquire, Failed, Granted, abandon, poll_released};
pub(crate) use self::core::Core;
pub(crate) use self::draft::Draft;
pub(crate) use self::entry::HoldListener;
pub(crate) use self::names::longest_child;
pub(crate) use self::progress::Progress;
pub(crate) use self::state::{Closing, State, nonce};
pub(crate) use self::task::drive;
pub(crate) use self::wire::{MAX_REQUEST_BYTES, is_refusal, runtime_is_gone};

#[cfg(test)]
mod tests;
