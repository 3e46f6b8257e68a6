//! What an acquire and its release cost, beside the lock of `zookeeper-client`: `zk-docker/run cargo bench -p bench --bench acquire`.
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

#[tokio::main]
async fn main() -> Outcome {
    let hosts = std::env::var("ZK_HOSTS")
        .map_err(|_| "no ZK_HOSTS: run it as `zk-docker/run cargo bench -p bench --bench acquire`")?;
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
    drop((raw, raw_through));
    counted.close().await?;
    direct.close().await?;
    Ok(())
}
