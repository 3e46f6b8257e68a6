//! Five workers take turns with one lock in the order of arrival; then the session of the holder is killed.
//!
//! ```console
//! $ zk-docker/run cargo run --example fair_mutex
//! ```

mod common;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use zookeeper_recipes::{FencingToken, Mutex, Session};

use common::{Result, end_session, ensure};

const WORKERS: usize = 5;
const TURNS: usize = 10;
const WORK: Duration = Duration::from_millis(20);
/// The client's default.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

/// The worker that held the lock, its token, and how long it waited.
type Turn = (usize, FencingToken, Duration);

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let path = common::path();
    let (mut sessions, mut mutexes) = (Vec::new(), Vec::new());
    // Session 0 holds the lock until all workers have queued.
    for worker in 0..=WORKERS {
        let session = common::session(&format!("worker {worker}")).await?;
        mutexes.push(Mutex::new(&session, &path)?);
        sessions.push(session);
    }
    println!("{WORKERS} workers, each in its own session, share the lock {path}\n");
    take_turns(&mutexes).await?;
    kill_the_holder(&mutexes, &sessions[1]).await?;
    common::close(&sessions).await
}

async fn take_turns(mutexes: &[Mutex]) -> Result<()> {
    let gate = mutexes[0].lock().await?;
    let (send, mut turns) = unbounded_channel();
    let arrivals = (0..TURNS).map(|i| 1 + i * 2 % WORKERS);
    let mut tasks = Vec::new();
    for worker in arrivals.clone() {
        let turn = take_turn(mutexes[worker].clone(), worker, send.clone());
        tasks.push(tokio::spawn(turn));
        wait_until_queued(&mutexes[0], worker, 1 + tasks.len()).await?;
    }
    gate.release().await?;
    for task in tasks {
        task.await??;
    }

    println!("turn  worker  token    waited");
    let mut newest = None;
    for (turn, arrived) in (1..).zip(arrivals) {
        let (worker, token, waited) = turns.recv().await.ok_or("a turn is missing")?;
        let (number, millis) = (token.get(), waited.as_millis());
        println!("{turn:4}  {worker:6}  {number:5}  {millis:5} ms");
        ensure(worker == arrived, "unfair: not the order of arrival")?;
        ensure(newest.replace(token) < Some(token), "tokens must grow")?;
    }
    Ok(())
}

async fn take_turn(mutex: Mutex, worker: usize, turns: UnboundedSender<Turn>) -> Result<()> {
    let joined = Instant::now();
    let guard = mutex.lock().await?;
    turns.send((worker, guard.fencing_token(), joined.elapsed()))?;
    guard.run_until_lost(sleep(WORK)).await?;
    Ok(guard.release().await?)
}

/// Waits until there are `count` contenders, and `worker` is the last of them.
async fn wait_until_queued(mutex: &Mutex, worker: usize, count: usize) -> Result<()> {
    let identifier = format!("worker {worker}");
    loop {
        let queue = mutex.contenders().await?;
        let last = queue.last().map(|last| last.identifier());
        if queue.len() == count && last == Some(identifier.as_bytes()) {
            return Ok(());
        }
        sleep(WORK / 4).await;
    }
}

async fn kill_the_holder(mutexes: &[Mutex], victim: &Session) -> Result<()> {
    let (holder, next) = (&mutexes[1], mutexes[2].clone());
    let held = holder.lock().await?;
    let next = tokio::spawn(async move { next.lock().await.map(|guard| (guard, Instant::now())) });
    wait_until_queued(holder, 2, 2).await?;

    let first = held.fencing_token();
    println!("\nworker 1 has the lock with token {first}, worker 2 waits; 1's session is killed");
    let killed = Instant::now();
    end_session(victim).await?;
    let (guard, granted) = next.await??;
    let (second, wait) = (guard.fencing_token(), granted - killed);
    println!("worker 2 has the lock with token {second} after {wait:.0?}");
    println!("worker 1 reports: {}", held.lost().await);
    guard.release().await?;
    let third = holder.lock().await?.fencing_token();
    println!("worker 1 has the lock again with token {third}, in a new session");

    ensure(first < second && second < third, "tokens must grow")?;
    ensure(wait <= SESSION_TIMEOUT, "worker 2 waited longer than the session timeout")
}
