//! Owns [`Config`]: arguments, or variables of the environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Ships each order once, and has one leader in the fleet.
#[derive(Parser)]
pub(crate) struct Config {
    /// Where to serve HTTP
    #[arg(long, env, default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// The address under which others reach this process, if it is not the one it listens on
    #[arg(long, env)]
    pub(crate) advertise: Option<String>,
    /// The servers of ZooKeeper, with a chroot if you like: zk1:2181,zk2:2181,zk3:2181/shop
    #[arg(long, env = "ZK_HOSTS")]
    pub(crate) hosts: String,
    /// Seconds after which ZooKeeper releases the locks of a process that died
    #[arg(long, env, default_value = "6", value_parser = seconds)]
    pub(crate) session_timeout: Duration,
    /// The database of orders, shared by the fleet
    #[arg(long, env)]
    pub(crate) database: PathBuf,
    /// Seconds from SIGTERM, when /ready turns to 503, until the server stops accepting
    #[arg(long, env, default_value = "2", value_parser = seconds)]
    pub(crate) notice: Duration,
    /// Seconds that requests in flight have after that
    #[arg(long, env, default_value = "10", value_parser = seconds)]
    pub(crate) drain: Duration,
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    text.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok()).ok_or("no number of seconds")
}
