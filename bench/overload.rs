//! One key under overload: `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench overload`.
//!
//! Three processes of many clients each want one lock for 20 ms of work, and wait for it for at most 300 ms. Counted is how
//! much work is done per second, with 30 to 600 clients in all: with `try_lock_for` alone, and in the way that
//! `docs/limits.md` shows. 50 per second are the most.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use zookeeper_recipes::{Error, Mutex, MutexGuard, Session};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PROCESSES: usize = 3;
const WORK: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_millis(300);
const DURATION: Duration = Duration::from_secs(8);
const CLIENTS: [usize; 3] = [30, 300, 600];
const WAYS: [&str; 2] = ["try_lock_for", "as documented"];
/// How many callers of a process may be in the queue at once.
const SLOTS: usize = 2;
/// How many may be ahead of a caller, so that their work fits into its limit.
const MOST: usize = 6;

fn main() -> Outcome {
    let arguments: Vec<_> = std::env::args().collect();
    match arguments.iter().position(|argument| argument == "worker") {
        Some(at) => work(&arguments[at + 1], arguments[at + 2].parse()?, arguments[at + 3].parse()?),
        None => compare(),
    }
}

fn compare() -> Outcome {
    let hosts = std::env::var("ZK_HOSTS").map_err(
        |_| "no ZK_HOSTS: run it as `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench acquire`",
    )?;
    println!("work done per second, of {:.0} at most", 1.0 / WORK.as_secs_f64());
    println!("{:24} {}", "clients", CLIENTS.map(|count| format!("{count:>8}")).concat());
    for (way, name) in WAYS.into_iter().enumerate() {
        print!("{name:24} ");
        for clients in CLIENTS {
            print!("{:>8.1}", run(&hosts, way, clients)?);
            std::io::stdout().flush()?;
        }
        println!();
    }
    Ok(())
}

/// Runs the processes, and returns how much work they did per second.
fn run(hosts: &str, way: usize, clients: usize) -> Outcome<f64> {
    let path = format!("/bench-overload/{}-{way}-{clients}", std::process::id());
    let start = || {
        let mut worker = Command::new(std::env::current_exe()?);
        worker.args(["worker", &path, &way.to_string(), &(clients / PROCESSES).to_string()]);
        worker.env("ZK_HOSTS", hosts).stdout(Stdio::piped()).spawn()
    };
    let workers: Vec<Child> = (0..PROCESSES).map(|_| start()).collect::<Result<_, _>>()?;
    let mut done = 0.0;
    for worker in workers {
        let output = worker.wait_with_output()?;
        done += String::from_utf8(output.stdout)?.trim().parse::<f64>()?;
    }
    Ok(done / DURATION.as_secs_f64())
}

#[tokio::main(flavor = "current_thread")]
async fn work(path: &str, way: usize, clients: usize) -> Outcome {
    let session = Session::connect(&std::env::var("ZK_HOSTS")?).await?;
    let mutex = Mutex::new(&session, path)?;
    let slots = Arc::new(Semaphore::new(SLOTS));
    let until = Instant::now() + DURATION;
    let clients = (0..clients).map(|_| {
        let (mutex, slots) = (mutex.clone(), slots.clone());
        tokio::spawn(async move {
            let mut done = 0;
            while Instant::now() < until {
                let locked = match way {
                    0 => mutex.try_lock_for(LIMIT).await?,
                    _ => try_lock(&mutex, &slots, LIMIT).await?,
                };
                match locked {
                    Some(guard) => {
                        sleep(WORK).await;
                        done += 1;
                        guard.release().await?;
                    }
                    // The next customer comes.
                    None => sleep(LIMIT / 10).await,
                }
            }
            Ok::<_, Error>(done)
        })
    });
    let mut done = 0;
    for client in clients.collect::<Vec<_>>() {
        // A call that fails under overload is work that was not done.
        done += client.await?.unwrap_or_default();
    }
    println!("{done}");
    Ok(())
}

/// As `docs/limits.md` shows it.
async fn try_lock(mutex: &Mutex, slots: &Semaphore, limit: Duration) -> Result<Option<MutexGuard>, Error> {
    // A caller that waited for a slot would have little of its limit left for the queue.
    let Ok(_slot) = slots.try_acquire() else { return Ok(None) };
    if mutex.occupancy().await? > MOST {
        return Ok(None);
    }
    mutex.try_lock_for(limit).await
}
