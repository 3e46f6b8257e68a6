//! Owns [`Config`]: arguments, or variables of the environment. The servers, credentials and TLS are in the variables `ZK_*` of the
//! library.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Shows locks and their queues as web pages, with numbers for Prometheus and traces. It connects as the variables ZK_HOSTS, ZK_CHROOT,
/// ZK_AUTH_FILE, ZK_TLS_CA_FILE and the others of zookeeper-recipes say
#[derive(Parser)]
pub(crate) struct Config {
    /// Shows the locks at this path and below
    #[arg(default_value = "/")]
    pub(crate) parent: String,
    /// Where to serve HTTP. There is no login: all who reach it may ask a holder to release
    #[arg(long, env, default_value = "127.0.0.1:8081")]
    pub(crate) listen: SocketAddr,
    /// Seconds from one look at the locks to the next, at least
    #[arg(long, env, default_value = "0.25", value_parser = seconds)]
    pub(crate) every: Duration,
    /// Requests a second for these looks, at most
    #[arg(long, env, default_value = "200")]
    pub(crate) rate: NonZeroU32,
    /// A file of SQLite for the history of grants. Without it the history ends with the process
    #[arg(long, env)]
    pub(crate) history: Option<PathBuf>,
    /// How many grants the history keeps
    #[arg(long, env, default_value = "10000")]
    pub(crate) keep: u32,
    /// The path of the mutex of POST /work
    #[arg(long)]
    pub(crate) work: Option<String>,
    /// Prints the spans of OpenTelemetry to the standard output
    #[arg(long, env)]
    pub(crate) traces: bool,
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().and_then(|number| Duration::try_from_secs_f64(number).ok());
    seconds.filter(|seconds| !seconds.is_zero()).ok_or("no number of seconds above 0")
}
