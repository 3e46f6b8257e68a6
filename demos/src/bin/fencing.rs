//! A holder is stopped between its read and its write, and writes after its lock has gone to others: what a store
//! loses that takes every write, and what one loses that checks fencing tokens.
//!
//! ```console
//! $ zk-docker/run cargo run -p demos --bin fencing
//! ```
//!
//! Each worker is a process of its own, this program again with arguments. Under the lock it reads a counter from
//! SQLite, thinks, and writes back one more. One of them stops itself (SIGSTOP) while it thinks, as a virtual machine
//! does that is moved, and is continued when others have written. No lock can stop its late write: it asked whether
//! it holds the lock, was told the truth, and was stopped before the next instruction.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{FencingToken, HoldState, Mutex, Session};

const WORKERS: usize = 3;
const UPDATES: usize = 20;
/// The updates at which the first worker is stopped.
const STOPS: [usize; 2] = [2, 5];
/// How many writes of others it sleeps through; at least one is written after its lock is gone.
const MISSED: usize = 3;
const THINKING: Duration = Duration::from_millis(20);
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => timeout(PATIENCE, supervise())
            .await
            .unwrap_or_else(|_| Err(format!("not done after {PATIENCE:?}").into())),
        ["worker", number, check, store, lock] => work(number, check, store, lock).await,
        _ => Err("usage: fencing (without arguments)".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fencing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hosts() -> Result<String> {
    std::env::var("ZK_HOSTS")
        .map_err(|_| "ZK_HOSTS is not set; try: zk-docker/run cargo run -p demos --bin fencing".into())
}

async fn supervise() -> Result<()> {
    hosts()?;
    let folder = tempfile::tempdir()?;
    let unchecked = compete("unchecked", folder.path()).await?;
    let checked = compete("checked", folder.path()).await?;

    println!("{:<10}{:>14}{:>9}{:>6}", "tokens", "acknowledged", "counted", "lost");
    for (tokens, counted) in [("unchecked", unchecked), ("checked", checked)] {
        let acknowledged = WORKERS * UPDATES;
        let lost = acknowledged.saturating_sub(counted);
        println!("{tokens:<10}{acknowledged:>14}{counted:>9}{lost:>6}");
    }
    if unchecked >= WORKERS * UPDATES {
        return Err("the store without a check lost nothing; it should have".into());
    }
    if checked != WORKERS * UPDATES {
        return Err("the store with a check lost updates; it should not have".into());
    }
    Ok(())
}

/// Lets the workers loose on a new store; returns what it has counted in the end.
async fn compete(check: &str, folder: &Path) -> Result<usize> {
    println!("{WORKERS} workers add {UPDATES} each, tokens {check}");
    let file = folder.join(check);
    Store::create(&file)?;
    let (send, mut news) = mpsc::unbounded_channel();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let mut worker = spawn_worker(number, check, &file)?;
        let output = worker.stdout.take().ok_or("a worker has no output")?;
        let mut lines = BufReader::new(output).lines();
        let send = send.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = send.send((number, line));
            }
        });
        workers.push(worker);
    }
    drop(send);

    let mut missed = None;
    while let Some((number, line)) = news.recv().await {
        match (line.as_str(), missed) {
            ("written", Some(MISSED)) => {
                println!("  others have written {MISSED} times; worker 0 goes on");
                kill_process(pid(&workers[0])?, Signal::CONT)?;
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
    for worker in &mut workers {
        if !worker.wait().await?.success() {
            return Err("a worker has failed".into());
        }
    }
    println!();
    Store::open(&file, true)?.count()
}

fn spawn_worker(number: usize, check: &str, file: &PathBuf) -> Result<Child> {
    let lock = format!("/fencing-{}/{check}", std::process::id());
    Ok(Command::new(std::env::current_exe()?)
        .args(["worker", &number.to_string(), check])
        .arg(file)
        .arg(lock)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?)
}

fn pid(worker: &Child) -> Result<Pid> {
    let id = worker.id().ok_or("the worker has ended")?;
    Ok(Pid::from_raw(id.try_into()?).ok_or("no process has the id 0")?)
}

/// A worker: adds one to the counter, again and again, under the lock.
async fn work(number: &str, check: &str, store: &str, lock: &str) -> Result<()> {
    let store = Store::open(Path::new(store), check == "checked")?;
    let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
    let session = Session::connect_with(connector, &hosts()?).await?;
    let mutex = Mutex::new(&session, lock)?;
    let mut stops = if number == "0" { &STOPS[..] } else { &[] };
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
            println!("stops, with token {token} and {count} in its hands");
            kill_process(getpid(), Signal::STOP)?;
            stops = &stops[1..];
            late = true;
        }
        let accepted = store.write(count + 1, token)?;
        if late {
            let answer = if accepted { "takes it" } else { "refuses it" };
            println!("writes {} with token {token}; the store {answer}", count + 1);
        }
        if accepted {
            acknowledged += 1;
            println!("written");
        }
        if let Err(error) = guard.release().await {
            println!("cannot release: {error}");
        }
    }
    Ok(session.close().await?)
}

/// A counter in SQLite, which may refuse those whose token is older than one that it has seen.
struct Store {
    connection: Connection,
    checks: bool,
}

impl Store {
    fn create(file: &Path) -> Result<()> {
        Ok(Connection::open(file)?.execute_batch(
            "CREATE TABLE counter (count INTEGER NOT NULL, token INTEGER NOT NULL);
             INSERT INTO counter VALUES (0, 0);",
        )?)
    }

    fn open(file: &Path, checks: bool) -> Result<Self> {
        let connection = Connection::open(file)?;
        Ok(Self { connection, checks })
    }

    fn count(&self) -> Result<usize> {
        let count = |row: &rusqlite::Row<'_>| row.get(0);
        Ok(self.connection.query_row("SELECT count FROM counter", [], count)?)
    }

    /// The count; `None` if the token is too old.
    ///
    /// Reading leaves the token behind, too: an older holder must not write between our read and our write.
    fn read(&self, token: FencingToken) -> Result<Option<usize>> {
        if !self.checks {
            return self.count().map(Some);
        }
        let statement = "UPDATE counter SET token = ?1 WHERE token <= ?1 RETURNING count";
        let count = self.connection.query_row(statement, params![token.get()], |row| row.get(0));
        Ok(count.optional()?)
    }

    /// Writes the count; `false` if the token is too old.
    fn write(&self, count: usize, token: FencingToken) -> Result<bool> {
        let statement = if self.checks {
            "UPDATE counter SET count = ?1, token = ?2 WHERE token <= ?2"
        } else {
            "UPDATE counter SET count = ?1, token = ?2"
        };
        Ok(self.connection.execute(statement, params![count, token.get()])? == 1)
    }
}
