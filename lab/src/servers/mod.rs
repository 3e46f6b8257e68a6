//! Servers of other projects, each a process in a temporary folder on a free port.
//!
//! Dropping one ends the process and removes the folder. Both also happen when this process is killed.

pub mod clock;
pub mod etcd;
pub mod mariadb;
pub mod memcached;
pub mod postgresql;
pub mod process;
pub mod redis;
pub mod zookeeper;

use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;

use crate::Outcome;
use crate::servers::clock::Clock;

/// What is on a server's disk when it starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disk {
    /// What it has written there.
    Kept,
    /// Nothing, as after a replacement of the machine.
    Lost,
}

/// How a server is started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Setup {
    /// Whether every change is on the disk before its answer. Otherwise the package's defaults count.
    pub durable: bool,
    /// The clock that it sees instead of the machine's.
    pub clock: Option<Clock>,
    /// Whether it counts its statements, if it does that only on demand.
    pub counts: bool,
}

/// A running server.
#[async_trait]
pub trait Server: Debug + Send + Sync {
    /// Where clients connect.
    fn address(&self) -> SocketAddr;

    /// The version that the server reports.
    fn version(&self) -> &str;

    /// Requests of clients since its start, as it counts them.
    async fn requests(&self) -> Outcome<u64>;

    /// How often it has notified a waiting client, if it counts that.
    async fn notifications(&self) -> Outcome<Option<u64>> {
        Ok(None)
    }

    /// The CPU time that it has used.
    fn cpu_time(&self) -> Outcome<Duration>;

    /// Kills it with SIGKILL.
    fn kill(&mut self);

    /// Starts it again on the same port, after it was killed.
    async fn restart(&mut self, disk: Disk) -> Outcome;
}

/// An address of this machine.
pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
