//! A whole worker: of all its processes one processes the orders. The others wait to take over.
//!
//! * It connects, and reports what becomes of its session.
//! * On SIGTERM or Ctrl-C it finishes the order that it is at, resigns, and closes its session.
//! * If its leadership is lost, its work is dropped at the next `await`.
//! * Each write carries the fencing token. The store refuses an older one than it has seen, so a worker that was paused
//!   does no harm, even if it was paused between its last check and its write.
//!
//! Start it in two terminals, and stop one with Ctrl-C, or pause it with `kill -STOP` for a minute. A number of seconds as
//! its argument stops it by itself.
//!
//! ```console
//! $ zk-docker/run cargo run --example worker -- 5
//! ```

use std::fs::File;
use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};
use zookeeper_recipes::{Candidate, Election, Error, FencingToken, Servers, Session, Term};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Where the orders are. A database does this in one statement: `UPDATE orders SET done = …, token = $1 WHERE token <= $1`. No row is
/// changed if the token is old.
///
/// This one is a file with the largest token and the number of orders that are done.
#[derive(Clone)]
struct Store(PathBuf);

/// The store has seen a larger token: another worker leads.
#[derive(Debug, thiserror::Error)]
#[error("the store has seen token {newest}")]
struct Refused {
    newest: FencingToken,
}

impl Store {
    /// Writes that one more order is done; returns how many are.
    fn complete(&self, token: FencingToken) -> Result<u64> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&self.0)?;
        // The workers of this machine write one after the other.
        #[cfg(unix)]
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        let before = std::io::read_to_string(&file)?;
        let (newest, done) = match before.split_once(' ') {
            Some((newest, done)) => (newest.parse()?, done.parse()?),
            None => (token, 0),
        };
        if newest > token {
            return Err(Refused { newest }.into());
        }
        std::fs::write(&self.0, format!("{token} {}", done + 1))?;
        Ok(done + 1)
    }
}

/// Processes orders until the term is to end.
async fn process(term: &Term, store: &Store) -> Result<()> {
    let mut asked = pin!(term.revoke_requested());
    let mut orders = interval(Duration::from_millis(200));
    // After a pause, no order is processed before the leadership was checked.
    orders.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut asked => return Ok(()),
            _ = orders.tick() => {}
        }
        println!("order {} is done", store.complete(term.fencing_token())?);
    }
}

/// Campaigns, and leads whenever it can, until it is stopped.
fn lead(election: &Election, store: Store) -> Candidate {
    election.run(move |term| {
        let store = store.clone();
        async move {
            println!("leads, with token {}", term.fencing_token());
            // The term ends here. After an error this worker campaigns again, behind the others.
            match process(&term, &store).await {
                Ok(()) => println!("resigns"),
                Err(error) => eprintln!("resigns: {error}"),
            }
        }
    })
}

/// Waits for the end of the process: SIGTERM, Ctrl-C, or the time that was given.
async fn end(limit: Option<Duration>) -> Result<()> {
    #[cfg(unix)]
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    #[cfg(unix)]
    let terminated = terminated.recv();
    #[cfg(not(unix))]
    let terminated = pending::<Option<()>>();
    let limit = async {
        match limit {
            Some(limit) => sleep(limit).await,
            None => pending().await,
        }
    };
    tokio::select! {
        _ = terminated => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        () = limit => {}
    }
    Ok(())
}

async fn run() -> Result<()> {
    let hosts = std::env::var("ZK_HOSTS").unwrap_or_else(|_| "localhost:2181".to_owned());
    let limit = std::env::args().nth(1).map(|seconds| seconds.parse().map(Duration::from_secs)).transpose()?;
    let session = Session::connect(Servers::new(&hosts).with_session_timeout(Duration::from_secs(10))).await?;
    let mut states = session.states();
    let reporter = tokio::spawn(async move {
        while let Some(state) = states.changed().await {
            println!("ZooKeeper: {state}");
        }
    });
    let store = Store(std::env::temp_dir().join("zookeeper-recipes-orders"));
    let candidate = lead(&Election::new(&session, "/examples/worker")?, store);
    end(limit).await?;
    // The order that is under way is finished, and the next worker leads at once.
    candidate.stop().await?;
    session.close().await?;
    Ok(reporter.await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            // No server answers: whoever starts this process may try again later.
            let is_unavailable = matches!(error.downcast_ref(), Some(Error::Unavailable { .. }));
            ExitCode::from(if is_unavailable { 75 } else { 1 })
        }
    }
}
