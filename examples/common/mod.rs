//! Shared parts of the examples: a session, a path, and an exit code.

#![allow(dead_code, reason = "each example takes what it needs")]

use std::error::Error;
use std::future::Future;
use std::iter::successors;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;
use zookeeper_recipes::zookeeper_client::{Client, Error as ZkError};
use zookeeper_recipes::{Contender, Options, Session};

const EXAMPLE: &str = env!("CARGO_CRATE_NAME");
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Runs an example to its end or its first error, and prints the error with all its causes.
pub(crate) async fn show(run: impl Future<Output = Result<()>>) -> ExitCode {
    match timeout(PATIENCE, run).await.unwrap_or_else(|late| Err(late.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes = successors(Some(&*error as &dyn Error), |&error| error.source());
            let causes: Vec<_> = causes.map(ToString::to_string).collect();
            eprintln!("{EXAMPLE}: {}", causes.join(": "));
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn ensure(holds: bool, otherwise: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

pub(crate) fn hosts() -> Result<String> {
    let no_hosts = |_| format!("ZK_HOSTS is not set; try: zk-docker/run cargo run --example {EXAMPLE}").into();
    std::env::var("ZK_HOSTS").map_err(no_hosts)
}

/// A path that only this run uses.
pub(crate) fn path() -> String {
    format!("/{EXAMPLE}-{}", std::process::id())
}

/// A session that represents a machine of a fleet; its lock nodes carry its name.
pub(crate) async fn session(name: &str) -> Result<Session> {
    let session = Session::connect(&hosts()?).await?;
    Ok(session.with_lock_options(Options::new().with_identifier(name)))
}

pub(crate) async fn close(sessions: impl IntoIterator<Item = &Session>) -> Result<()> {
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}

pub(crate) fn name(contender: &Contender) -> String {
    contender.identifier_lossy().into_owned()
}

/// Ends a session from outside, by taking it over and closing it. Its owner may take it back first, so only
/// `SessionExpired` proves that it has ended.
pub(crate) async fn end_session(session: &Session) -> Result<()> {
    let session = session.client().expect("a client").session().clone();
    loop {
        let thief = Client::connector().with_session(session.clone());
        match thief.with_fail_eagerly().connect(&hosts()?).await {
            Err(ZkError::SessionExpired) => return Ok(()),
            // The owner has just taken it back.
            Err(ZkError::NoHosts | ZkError::ConnectionLoss) => {}
            Err(error) => return Err(error.into()),
            Ok(client) => {
                let mut state = client.state_watcher();
                drop(client);
                let _ = timeout(Duration::from_millis(100), state.changed()).await;
            }
        }
    }
}
