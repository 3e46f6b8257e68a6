//! What an acquire and its release cost, beside the lock of `zookeeper-client`: `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench acquire`.
//!
//! Times depend on the machine, so both run in turns in one run; round trips (requests that wait for an answer) and
//! requests do not, and are counted by a proxy that holds every answer back.

use std::time::{Duration, Instant};

use testbed::proxy::Proxy;
use zookeeper_recipes::zookeeper_client::{Acls, Client, LockPrefix};
use zookeeper_recipes::{Mutex, Session};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 20;
const PER_ROUND: usize = 50;

/// An uncontended lock and its release.
async fn ours(mutex: &Mutex) -> Outcome {
    mutex.lock().await?.release().await?;
    Ok(())
}

async fn client(client: &Client, path: &str) -> Outcome {
    let prefix = LockPrefix::new_curator(path, "lock-")?;
    let lock = client.lock(prefix, b"", Acls::anyone_all()).await?;
    // Dropping it deletes in the background; awaiting the delete is what a release is here.
    let node = lock.lock_path().to_owned();
    client.delete(&node, None).await?;
    std::mem::forget(lock);
    Ok(())
}

/// Prints what to plan with: how long it takes to lock what is free, to release it, and to hand it over to a waiter of another session.
async fn latencies(direct: &Session, hosts: &str, path: &str) -> Outcome {
    let other = Session::connect(hosts).await?;
    let [mine, theirs] = [Mutex::new(direct, path)?, Mutex::new(&other, path)?];
    let [mut locks, mut releases, mut hand_overs] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS * PER_ROUND {
        let began = Instant::now();
        let guard = mine.lock().await?;
        locks.push(began.elapsed());
        let began = Instant::now();
        guard.release().await?;
        releases.push(began.elapsed());
    }
    for _ in 0..ROUNDS * PER_ROUND / 4 {
        let guard = mine.lock().await?;
        let waiting = theirs.enqueue().await?;
        let waiting = tokio::spawn(async move { waiting.await.map(|guard| (guard, Instant::now())) });
        let began = Instant::now();
        guard.release().await?;
        let (guard, granted) = waiting.await??;
        hand_overs.push(granted.duration_since(began));
        guard.release().await?;
    }
    println!("\n{:<26} {:>12} {:>12}", "from call to answer", "p50", "p99");
    for (name, mut times) in [("lock", locks), ("release", releases), ("hand-over", hand_overs)] {
        times.sort();
        println!("{name:<26} {:>12.1?} {:>12.1?}", times[times.len() / 2], times[times.len() * 99 / 100]);
    }
    Ok(other.close().await?)
}

#[tokio::main]
async fn main() -> Outcome {
    let hosts = std::env::var("ZK_HOSTS").map_err(
        |_| "no ZK_HOSTS: run it as `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench acquire`",
    )?;
    let proxy = Proxy::start(&hosts).await?;
    let path = format!("/bench-{}", std::process::id());
    let direct = Session::connect(&hosts).await?;
    let mutex = Mutex::new(&direct, &path)?;
    ours(&mutex).await?;
    let raw = direct.client().expect("a client");

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (peer, times) in times.iter_mut().enumerate() {
            let began = Instant::now();
            for _ in 0..PER_ROUND {
                match peer {
                    0 => ours(&mutex).await?,
                    _ => client(&raw, &path).await?,
                }
            }
            times.push(began.elapsed() / PER_ROUND as u32);
        }
    }

    let counted = Session::connect(&proxy.hosts()).await?;
    let through = Mutex::new(&counted, &path)?;
    let raw_through = counted.client().expect("a client");
    proxy.hold_answers(Duration::from_millis(50));
    let mut counts = Vec::new();
    for peer in 0..2 {
        proxy.reset();
        match peer {
            0 => ours(&through).await?,
            _ => client(&raw_through, &path).await?,
        }
        counts.push((proxy.round_trips(), proxy.requests().len()));
    }
    proxy.hold_answers(Duration::ZERO);

    println!(
        "{:<26} {:>12} {:>12} {:>12} {:>10}",
        "acquire and release", "median", "fastest", "round trips", "requests"
    );
    for (name, (mut times, (trips, requests))) in
        ["zookeeper-recipes", "zookeeper-client's lock"].into_iter().zip(times.into_iter().zip(counts))
    {
        times.sort();
        println!("{name:<26} {:>12.1?} {:>12.1?} {trips:>12} {requests:>10}", times[times.len() / 2], times[0]);
    }
    latencies(&direct, &hosts, &path).await?;
    drop((raw, raw_through));
    counted.close().await?;
    direct.close().await?;
    Ok(())
}
