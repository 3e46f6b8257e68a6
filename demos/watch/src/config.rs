//! Owns [`Config`]: arguments, or variables of the environment.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;

/// Shows the queue of a lock as a web page, with numbers for Prometheus and traces.
#[derive(Parser)]
pub(crate) struct Config {
    /// The path of a mutex, a read-write lock or an election
    pub(crate) path: String,
    /// Where to serve HTTP. There is no login: all who reach it may ask a holder to release
    #[arg(long, env, default_value = "127.0.0.1:8081")]
    pub(crate) listen: SocketAddr,
    /// The servers of ZooKeeper, with a chroot if you like: zk1:2181,zk2:2181,zk3:2181/shop
    #[arg(long, env = "ZK_HOSTS")]
    pub(crate) hosts: String,
    /// Seconds after which ZooKeeper ends the session of this process if it died
    #[arg(long, env, default_value = "6", value_parser = seconds)]
    pub(crate) session_timeout: Duration,
    /// Seconds from one look at the queue to the next
    #[arg(long, env, default_value = "0.25", value_parser = seconds)]
    pub(crate) every: Duration,
    /// Prints the spans of OpenTelemetry to the standard output
    #[arg(long, env)]
    pub(crate) traces: bool,
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    seconds.filter(|seconds| !seconds.is_zero()).ok_or("no number of seconds above 0")
}
