//! A ZooKeeper in memory, in two layers.
//!
//! [`Ensemble`] is a pure state machine: servers, sessions and watches, without IO, clock, threads or chance. Time is an
//! argument. [`Server`] puts it behind TCP ports of 127.0.0.1 and speaks the wire protocol, so any client connects to it.

mod acl;
mod code;
mod ensemble;
mod front;
mod host;
mod message;
mod multi;
mod session;
#[cfg(test)]
mod tests;
mod tree;
mod watch;
mod wire;
mod write;

pub use acl::{Acl, Identity};
pub use code::Code;
pub use ensemble::{Config, Ensemble, Output, Version};
pub use front::{Link, Server};
pub use host::{Connection, Host, OwnThread};
pub use message::{Connect, Connected, Event, EventKind, Message, Reply, Request, SetWatches, Watcher, Write};
pub use session::ConnectionId;
pub use tree::Stat;
