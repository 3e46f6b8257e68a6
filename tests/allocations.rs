//! How many heap allocations a lock and its release make, the client's for their requests included.
//!
//! A suite of its own, because its allocator counts.

use allocation_counter::measure;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Mutex, Session};

const CYCLES: u64 = 100;

const MOST: u64 = 50;

/// All on one thread, which is the one that counts.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The fewest of several rounds, for each cycle: a beat of the session falls into some.
fn count(runtime: &tokio::runtime::Runtime, mut cycle: impl AsyncFnMut()) -> u64 {
    runtime.block_on(cycle());
    let round = || {
        measure(|| {
            runtime.block_on(async {
                for _ in 0..CYCLES {
                    cycle().await
                }
            })
        })
        .count_total
            / CYCLES
    };
    std::iter::repeat_with(round).take(5).min().expect("five")
}

#[test]
fn lock_and_release_allocate_little() {
    let hosts = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`");
    let path = format!("/allocations-{}", Uuid::new_v4().simple());
    let runtime = runtime();
    let session = runtime.block_on(Session::connect(&hosts)).expect("connects");
    let mutex = Mutex::new(&session, &path).expect("a mutex");
    let locks = count(&runtime, async || mutex.lock().await.expect("held").release().await.expect("released"));

    let client = session.client().expect("a client");
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{path}/_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-lock-");
    let requests = count(&runtime, async || {
        let (_, number) = client.create(&prefix, b"", &mode).await.expect("created");
        client.delete(&format!("{prefix}{number}"), None).await.expect("deleted");
    });
    println!("a lock and its release: {locks} allocations; a create and a delete: {requests}");
    assert!(locks <= MOST, "{locks}");
}
