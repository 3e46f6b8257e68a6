//! Shared parts of the demonstrations in `src/bin`.
//!
//! Each demonstration starts processes that compete for a lock: the same program, with arguments.

mod crew;
mod store;

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;
use zookeeper_recipes::{Servers, Session};

pub use crate::crew::{Crew, Worker, stop_here};
pub use crate::store::Store;

/// How long a stopped process keeps its locks.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of a demonstration, or of a part of it.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Runs the demonstration `demo`, or in a process of a [`Worker`] its `work`.
pub async fn run<W>(demo: &str, supervise: impl Future<Output = Result<()>>, work: fn(Worker) -> W) -> ExitCode
where
    W: Future<Output = Result<()>>,
{
    let done = match Worker::from_arguments() {
        Err(_) => Err(format!("usage: {demo} (without arguments)").into()),
        Ok(_) if hosts().is_err() => {
            Err(format!("ZK_HOSTS is not set; try: zk-docker/run cargo run -p demos --bin {demo}").into())
        }
        Ok(Some(worker)) => work(worker).await,
        Ok(None) => timeout(PATIENCE, supervise)
            .await
            .unwrap_or_else(|_| Err(format!("not done after {PATIENCE:?}").into())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{demo}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Connects to ZooKeeper.
///
/// # Errors
///
/// If `ZK_HOSTS` is not set, or no server answers.
pub async fn session() -> Result<Session> {
    let servers = Servers::new(&hosts()?).with_session_timeout(SESSION_TIMEOUT);
    Ok(Session::connect(servers).await?)
}

fn hosts() -> Result<String> {
    Ok(std::env::var("ZK_HOSTS")?)
}
