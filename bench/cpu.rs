//! The client's CPU for a free lock and its release, beside a bare create and delete: `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench acquire
//! --bench cpu`.
//!
//! Both run in turns in one run, in one session, on each kind of runtime. The clock is that of the process's CPU time, so
//! other work on the machine matters little; the ratio matters, and not the time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};
use zookeeper_recipes::{Mutex, Session};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const ROUNDS: usize = 21;
const PER_ROUND: u32 = 100;

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(now.tv_sec.unsigned_abs()) + Duration::from_nanos(now.tv_nsec.unsigned_abs())
}

async fn locks(mutex: &Mutex) -> Outcome {
    for _ in 0..PER_ROUND {
        mutex.lock().await?.release().await?;
    }
    Ok(())
}

async fn requests(client: &Client, path: &str) -> Outcome {
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{path}/_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-lock-");
    for _ in 0..PER_ROUND {
        let (_, number) = client.create(&prefix, b"", &mode).await?;
        client.delete(&format!("{prefix}{number}"), None).await?;
    }
    Ok(())
}

/// The same with the listing that a lock needs, sent together with the create.
async fn requests_with_listing(client: &Client, path: &str) -> Outcome {
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{path}/_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-lock-");
    for _ in 0..PER_ROUND {
        let (created, listed) =
            futures_util::join!(client.create(&prefix, b"", &mode), client.list_children(path));
        listed?;
        client.delete(&format!("{prefix}{}", created?.1), None).await?;
    }
    Ok(())
}

async fn compare(name: &str, hosts: &str) -> Outcome {
    let path = format!("/bench-cpu-{}-{name}", std::process::id());
    let session = Session::connect(hosts).await?;
    let mutex = Mutex::new(&session, &path)?;
    let client = session.client().expect("a client");
    locks(&mutex).await?;
    let (mut ours, mut bare, mut listing) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = cpu();
        locks(&mutex).await?;
        let between = cpu();
        requests(&client, &path).await?;
        ours.push((between - began) / PER_ROUND);
        let then = cpu();
        bare.push((then - between) / PER_ROUND);
        requests_with_listing(&client, &path).await?;
        listing.push((cpu() - then) / PER_ROUND);
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (ours, bare, listing) = (median(&mut ours), median(&mut bare), median(&mut listing));
    let ratio = |time: Duration| time.as_secs_f64() / bare.as_secs_f64();
    println!(
        "{name:<16} {bare:>20.1?} {listing:>20.1?} {:>6.2} {ours:>16.1?} {:>6.2}",
        ratio(listing),
        ratio(ours)
    );
    drop(client);
    session.close().await?;
    Ok(())
}

fn main() -> Outcome {
    let hosts = std::env::var("ZK_HOSTS").map_err(
        |_| "no ZK_HOSTS: run it as `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench acquire`",
    )?;
    let heads = ["client CPU", "create, delete", "with a listing", "ratio", "lock, release", "ratio"];
    let [name, bare, listing, first, ours, second] = heads;
    println!("{name:<16} {bare:>20} {listing:>20} {first:>6} {ours:>16} {second:>6}");
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    current.block_on(compare("current_thread", &hosts))?;
    let multi = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let task = { async move { compare("multi_thread", &hosts).await } };
    multi.block_on(async { tokio::spawn(task).await })??;
    Ok(())
}
