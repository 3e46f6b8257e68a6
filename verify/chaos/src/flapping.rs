//! Checks that a client's memory and watches do not grow over many acquires while its connection flaps.

use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Signal, set_parent_process_death_signal};
use testbed::Server;
use testbed::proxy::{Closing, Proxy};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::{Mutex, Servers, Session};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const SESSION: Duration = Duration::from_secs(4);
const LOCKS: usize = 3;
/// Contenders per lock, all in one session.
const CONTENDERS: usize = 3;
/// How many reports the client prints.
const REPORTS: usize = 20;
/// The report with which the last one is compared. By then everything that is allocated once has been.
const BASELINE: usize = 4;
/// How much resident memory may grow from there, in KiB, to allow for the allocator.
const SLACK: u64 = 1_536;

/// A measurement.
#[derive(Clone, Copy, Debug)]
struct Sample {
    acquires: usize,
    resident: u64,
    watches: u64,
}

/// Returns whether neither memory nor watches grew.
pub(crate) async fn run(acquires: usize, seed: u64) -> Result<bool> {
    println!("chaos: {acquires} acquires while the connection is closed every 100 to 500 ms, seed {seed}");
    let server = Server::start().await?;
    let proxy = Proxy::start(&server.hosts()).await?;
    let mut client = Command::new(std::env::current_exe()?)
        .args(["flapping-client", &proxy.hosts(), &acquires.to_string()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(client.stdout.take().ok_or("the client has no output")?).lines();
    let began = Instant::now();
    let mut cuts = 0;
    let mut samples = Vec::new();
    println!("{:>8}{:>10}{:>14}{:>10}{:>8}", "seconds", "acquires", "resident, KiB", "watches", "cuts");
    let (mut flap, quiet) = (true, Duration::from_millis(100));
    let mut random = Rng::with_seed(seed);
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            () = sleep(quiet + Duration::from_millis(random.u64(0..400))), if flap => {
                proxy.close_by(if random.bool() { Closing::Fin } else { Closing::Reset });
                proxy.cut_now();
                proxy.reset();
                cuts += 1;
                continue;
            }
        };
        let Some(line) = line else { break };
        let mut numbers = line.split(' ').map(str::parse);
        let (Some(Ok(acquires)), Some(Ok(resident))) = (numbers.next(), numbers.next()) else {
            return Err(format!("the client printed {line:?}").into());
        };
        let sample = Sample { acquires: acquires as usize, resident, watches: watches(&server).await? };
        let seconds = began.elapsed().as_secs();
        println!("{seconds:>8}{:>10}{:>14}{:>10}{cuts:>8}", sample.acquires, sample.resident, sample.watches);
        samples.push(sample);
        // The last report is made on a stable connection.
        flap = samples.len() < REPORTS;
    }
    let status = client.wait().await?;
    if !status.success() {
        return Err(format!("the client ended with {status}").into());
    }
    Ok(judge(&samples))
}

fn judge(samples: &[Sample]) -> bool {
    let (Some(before), Some(after)) = (samples.get(BASELINE), samples.last()) else {
        println!("chaos: too few reports to judge");
        return false;
    };
    let grown = after.resident.cast_signed() - before.resident.cast_signed();
    println!(
        "chaos: from {} to {} acquires: {} to {} KiB ({grown:+}, up to {SLACK:+} is flat), {} to {} watches (0 is flat)",
        before.acquires, after.acquires, before.resident, after.resident, before.watches, after.watches
    );
    let flat = grown <= SLACK.cast_signed() && after.watches == 0;
    println!("chaos: {}", if flat { "flat" } else { "NOT flat" });
    flat
}

/// The number of watches on the server.
async fn watches(server: &Server) -> Result<u64> {
    let answer = server.four_letter_word("wchs").await?;
    let total = answer.lines().find_map(|line| line.strip_prefix("Total watches:"));
    Ok(total.ok_or_else(|| format!("wchs: {answer:?}"))?.trim().parse()?)
}

/// The client process: acquires and releases, and prints from time to time its number of acquires and its resident
/// memory in KiB. At the last report it neither holds nor waits for a lock.
pub(crate) async fn acquire(hosts: &str, acquires: usize) -> Result {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let session = Session::connect(Servers::new(hosts).with_session_timeout(SESSION)).await?;
    let (send, mut done) = mpsc::channel(1);
    let mut tasks = JoinSet::new();
    for number in 0..LOCKS * CONTENDERS {
        let mutex = Mutex::new(&session, &format!("/flapping/{}", number % LOCKS))?;
        let send = send.clone();
        let mut random = Rng::with_seed(number as u64);
        tasks.spawn(async move {
            loop {
                let guard = match random.u8(0..8) {
                    0 => mutex.try_lock().await.ok().flatten(),
                    1 => timeout(Duration::from_millis(random.u64(0..10)), mutex.lock())
                        .await
                        .ok()
                        .and_then(Result::ok),
                    _ => mutex.lock().await.ok(),
                };
                let Some(guard) = guard else { continue };
                match random.u8(0..8) {
                    0 => drop(guard),
                    // The lock may be lost; only leftovers matter here.
                    _ => drop(guard.release().await),
                }
                if send.send(()).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(send);
    for number in 1..=acquires {
        done.recv().await.ok_or("the contenders are gone")?;
        if number.is_multiple_of(acquires.div_ceil(REPORTS)) {
            println!("{number} {}", resident()?);
        }
    }
    drop(done);
    while tasks.join_next().await.is_some() {}
    // Abandoned nodes are deleted in the background.
    sleep(SESSION).await;
    println!("{acquires} {}", resident()?);
    Ok(session.close().await?)
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
