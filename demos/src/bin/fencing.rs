//! A holder is stopped between its read and its write, and writes after others were granted the lock. Compares the
//! updates that a store loses with and without checking fencing tokens.
//!
//! ```console
//! $ zk-docker/run cargo run -p demos --bin fencing
//! ```
//!
//! Each worker is a process that runs this program with arguments. Under the lock it reads a counter from SQLite,
//! thinks, and writes back one more. One worker stops itself (SIGSTOP) while it thinks, like a virtual machine that is
//! migrated, and is resumed when others have written. No lock can prevent its late write: it checked that it held the
//! lock, which was true, and was stopped before the next instruction.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::HoldState;

use demos::{Crew, Result, Worker, session};

const WORKERS: usize = 3;
const UPDATES: usize = 20;
/// The updates at which the first worker is stopped.
const STOPS: [usize; 2] = [2, 5];
/// How many writes of others the stopped worker misses; at least one comes after it lost the lock.
const MISSED: usize = 3;
const THINKING: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> ExitCode {
    demos::run(env!("CARGO_BIN_NAME"), supervise(), work).await
}

async fn supervise() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let unchecked = compete(false, folder.path()).await?;
    let checked = compete(true, folder.path()).await?;

    println!("{:<10}{:>14}{:>9}{:>6}", "tokens", "acknowledged", "counted", "lost");
    for (tokens, counted) in [("unchecked", unchecked), ("checked", checked)] {
        let acknowledged = WORKERS * UPDATES;
        let lost = acknowledged.saturating_sub(counted);
        println!("{tokens:<10}{acknowledged:>14}{counted:>9}{lost:>6}");
    }
    if unchecked >= WORKERS * UPDATES {
        return Err("the store without a check lost no updates; it should have".into());
    }
    if checked != WORKERS * UPDATES {
        return Err("the store with a check lost updates; it should not have".into());
    }
    Ok(())
}

/// Runs the workers on a new store; returns its final count.
async fn compete(checks: bool, folder: &Path) -> Result<usize> {
    let mut crew = Crew::new(folder, checks, 0)?;
    println!("{WORKERS} workers add {UPDATES} each, tokens {}", crew.tokens());
    for _ in 0..WORKERS {
        crew.spawn()?;
    }
    let mut missed = None;
    while let Some((number, line)) = crew.next_line().await {
        match (line.as_str(), missed) {
            ("written", Some(MISSED)) => {
                println!("  others have written {MISSED} times; worker 0 resumes");
                crew.resume(0)?;
                missed = None;
            }
            ("written", Some(count)) => missed = Some(count + 1),
            ("written", None) => {}
            (line, _) => {
                println!("  worker {number} {line}");
                if line.starts_with("stops") {
                    missed = Some(1);
                }
            }
        }
    }
    println!();
    crew.end().await
}

/// A worker: repeatedly adds one to the counter under the lock.
async fn work(worker: Worker) -> Result<()> {
    let store = worker.store()?;
    let session = session().await?;
    let mutex = worker.mutex(&session)?;
    let mut stops = if worker.number() == 0 { &STOPS[..] } else { &[] };
    let mut acknowledged = 0;
    while acknowledged < UPDATES {
        let guard = mutex.lock().await?;
        let token = guard.fencing_token();
        let Some(count) = store.read(token)? else {
            continue;
        };
        sleep(THINKING).await;
        let mut late = false;
        if guard.state() == HoldState::Held && stops.first() == Some(&acknowledged) {
            println!("stops, with token {token}, after it read {count}");
            worker.stop()?;
            stops = &stops[1..];
            late = true;
        }
        let accepted = store.write(count + 1, token)?;
        if late {
            let answer = if accepted { "accepts it" } else { "refuses it" };
            println!("writes {} with token {token}; the store {answer}", count + 1);
        }
        if accepted {
            acknowledged += 1;
            println!("written");
        }
        drop(guard);
    }
    Ok(session.close().await?)
}
