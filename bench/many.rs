//! Many holds and waiters of one session: `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench many`.
//!
//! What ten thousand holds cost at rest, in requests and CPU time of the client; what their release costs when all are released at
//! once, beside bare deletes; and how long the thread is kept that drops two thousand waiters for one lock. The scenes have one thread.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use rustix::time::{ClockId, clock_gettime};
use testbed::proxy::Proxy;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Mutex, MutexGuard, Session};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const HOLDS: usize = 10_000;
const WAITERS: usize = 2_000;
/// At least two fallback polls.
const REST: Duration = Duration::from_secs(65);
/// Until each hold has tried to watch its node.
const SETTLED: Duration = Duration::from_secs(5);

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(now.tv_sec.unsigned_abs()) + Duration::from_nanos(now.tv_nsec.unsigned_abs())
}

async fn holds(session: &Session, count: usize) -> Outcome<Vec<MutexGuard>> {
    let path = format!("/bench-many-{}", std::process::id());
    let mut guards = Vec::new();
    while guards.len() < count {
        let next = guards.len()..count.min(guards.len() + 500);
        let locks = next.map(async |index| Mutex::new(session, &format!("{path}/{index}"))?.lock().await);
        guards.extend(try_join_all(locks).await?);
    }
    Ok(guards)
}

/// Deletes as many nodes as there were holds, each watched as the node of a hold is. Returns the microseconds of each.
async fn bare(session: &Session) -> Outcome<f64> {
    let (client, path) =
        (session.client().ok_or("no session")?, format!("/bench-many-bare-{}", std::process::id()));
    client.create(&path, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
    let nodes: Vec<_> = (0..HOLDS).map(|index| format!("{path}/_c_{}-lock-{index:010}", "0".repeat(36))).collect();
    let (mode, mut watches) = (CreateMode::Ephemeral.with_acls(Acls::anyone_all()), Vec::new());
    for nodes in nodes.chunks(500) {
        try_join_all(nodes.iter().map(|node| client.create(node, b"", &mode))).await?;
        watches.extend(try_join_all(nodes.iter().map(|node| client.get_and_watch_data(node))).await?);
    }
    let began = Instant::now();
    try_join_all(nodes.iter().map(|node| client.delete(node, None))).await?;
    Ok(began.elapsed().as_secs_f64() * 1e6 / HOLDS as f64)
}

/// The proxy runs in another thread, but in this process: the CPU time is measured straight at the server.
async fn rest(hosts: &str) -> Outcome {
    let straight = Session::connect(hosts).await?;
    let guards = holds(&straight, HOLDS).await?;
    tokio::time::sleep(SETTLED).await;
    let began = cpu();
    tokio::time::sleep(REST).await;
    let share = 100.0 * (cpu() - began).as_secs_f64() / REST.as_secs_f64();
    let began = Instant::now();
    let took = try_join_all(guards.into_iter().map(MutexGuard::release)).await.map(|_| began.elapsed())?;
    let (each, bare) = (took.as_secs_f64() * 1e6 / HOLDS as f64, bare(&straight).await?);
    straight.close().await?;
    let proxy = Proxy::start(hosts).await?;
    let session = Session::connect(proxy.hosts()).await?;
    let guards = holds(&session, HOLDS).await?;
    tokio::time::sleep(SETTLED).await;
    proxy.reset();
    tokio::time::sleep(REST).await;
    let requests = proxy.requests().len() as f64 / REST.as_secs_f64();
    println!("{HOLDS} holds at rest: {requests:.1} requests a second, {share:.1} % of a core");
    println!("all released at once: {each:.1} µs each; as many bare deletes of watched nodes: {bare:.1} µs");
    let began = cpu();
    drop(guards);
    println!("all dropped at once: {:.1} µs each", (cpu() - began).as_secs_f64() * 1e6 / HOLDS as f64);
    Ok(session.close().await?)
}

async fn waiters(hosts: &str) -> Outcome {
    let session = Session::connect(hosts).await?;
    let mutex = Mutex::new(&session, &format!("/bench-many-waiters-{}", std::process::id()))?;
    let guard = mutex.lock().await?;
    let waiting = try_join_all((0..WAITERS).map(|_| mutex.enqueue())).await?;
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    for one in waiting {
        let began = Instant::now();
        drop(one);
        longest = longest.max(began.elapsed());
    }
    let all = began.elapsed();
    println!("{WAITERS} waiters dropped: {all:.1?}, the longest drop {longest:.1?}");
    guard.release().await?;
    Ok(session.close().await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let hosts = std::env::var("ZK_HOSTS").map_err(
        |_| "no ZK_HOSTS: run it as `zk-docker/run cargo bench --manifest-path bench/Cargo.toml --bench many`",
    )?;
    waiters(&hosts).await?;
    rest(&hosts).await
}
