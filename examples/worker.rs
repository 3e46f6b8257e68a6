//! A worker from its start to SIGTERM: of all its processes one works through the orders, and the others wait to take over.
//!
//! * The settings come from the environment: `ZK_HOSTS`, `ZK_SESSION_TIMEOUT_MS`, credentials, TLS.
//! * It starts before its servers, and goes on through outages.
//! * If its leadership is lost, its work is dropped at the next `await`. If it is paused before a write, the store refuses the
//!   write.
//! * While the store cannot be reached it tries again, and keeps the leadership.
//! * On SIGTERM or Ctrl-C it finishes the order that it is at, resigns, and closes its session. That has a limit.
//!
//! Start it twice in one `zk-docker/run bash`. Stop the leader with `kill`, or pause it with `kill -STOP` for a while. A number of
//! seconds as its argument stops it by itself.
//!
//! ```console
//! $ zk-docker/run cargo run --example worker -- 5
//! ```

use std::future::pending;
use std::process::ExitCode;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::zookeeper_client::{Acls, CheckWriteError, CreateMode, Error as ZkError};
use zookeeper_recipes::{Config, Election, Session, Term};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// How long a clean end may take. Keep it below the time after which SIGKILL follows.
const GRACE: Duration = Duration::from_secs(20);
/// Between two orders, and between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
const ORDERS: &str = "/examples/worker-orders";

/// Writes that an order is done, and returns the next. `None` if another worker leads. Here the store is ZooKeeper, whose transaction
/// checks the leadership. Others compare `term.fencing_token()`: `UPDATE orders SET done = true, token = $1 … WHERE token <= $1`.
async fn complete(term: &Term, order: u64) -> Result<Option<u64>> {
    let Ok(mut writer) = term.check_writer() else { return Ok(None) };
    writer.add_set_data(ORDERS, order.to_string().as_bytes(), None)?;
    match writer.commit().await {
        Ok(_) => Ok(Some(order + 1)),
        Err(CheckWriteError::CheckFailed { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The first order that is not done.
async fn next_order(session: &Session) -> Result<u64> {
    let read = session.request(None, |client| async move {
        match client.create(ORDERS, b"0", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
            Ok(_) | Err(ZkError::NodeExists) => client.get_data(ORDERS).await,
            Err(error) => Err(error),
        }
    });
    let (data, _) = read.await??;
    Ok(std::str::from_utf8(&data)?.parse::<u64>()? + 1)
}

/// Works through the orders until the term is to end, or another worker leads.
async fn work(session: Session, term: Term) {
    println!("leads, with token {}", term.fencing_token());
    let mut next = None;
    loop {
        // `end` has resolved, the session is drained, or an operator has called `revoke`.
        tokio::select! {
            () = term.revoke_requested() => return,
            () = sleep(PAUSE) => {}
        }
        let written = match next {
            None => next_order(&session).await.map(Some),
            Some(order) => complete(&term, order).await,
        };
        match written {
            Ok(Some(order)) => {
                println!("order {order} is next");
                next = Some(order);
            }
            Ok(None) => return,
            // The order may be done nevertheless, so it has to be one that may be done twice.
            Err(error) => eprintln!("tries again: {error}"),
        }
    }
}

/// Leads whenever it can, until `end` resolves. Then it has resigned. A term that does not end in time is cut off.
async fn lead(session: &Session, end: watch::Receiver<()>) -> Result<()> {
    let ended = async |mut end: watch::Receiver<()>| drop(end.changed().await);
    let election = Election::new(session, "/examples/worker")?;
    tokio::select! {
        led = election.run_until(ended(end.clone()), |term| work(session.clone(), term)) => Ok(led?),
        () = async { ended(end.clone()).await; sleep(GRACE).await } => Err("the work did not end in time".into()),
    }
}

/// Waits for SIGTERM, Ctrl-C, or the end of the time that was given. Then it drops the sender.
async fn end(limit: Option<Duration>, _until: watch::Sender<()>) {
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = pending::<()>();
    let passed = async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => pending().await,
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
        () = passed => {}
    }
}

async fn run() -> Result<()> {
    let limit = std::env::args().nth(1).map(|seconds| seconds.parse().map(Duration::from_secs)).transpose()?;
    // Before all that a signal would kill otherwise. A service also installs a subscriber of `tracing` here, for the library's warnings.
    let (ends, ended) = watch::channel(());
    tokio::spawn(end(limit, ends));
    let config = Config::from_env("ZK")?;
    let session = Session::lazy(&config)?;
    let mut states = session.states();
    tokio::spawn(async move {
        while let Some(state) = states.changed().await {
            println!("ZooKeeper: {state}");
        }
    });
    let led = lead(&session, ended).await;
    // The exit code does not depend on it.
    if !matches!(timeout(GRACE, session.close()).await, Ok(Ok(()))) {
        eprintln!("the leadership may stay taken until the session expires");
    }
    led
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
