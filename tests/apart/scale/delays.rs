//! How long the others wait after a fault: the table in `docs/what-can-go-wrong.md`, on three servers.
//!
//! `zk-docker/run cargo test -p apart --test scale delays -- --nocapture` prints it. A process that is killed is a session whose connection is
//! closed and never made again. One that is stopped, or cut off, is a session whose connection is silent.

use std::time::Duration;

use futures_util::future::join_all;
use testbed::Ensemble;
use testbed::proxy::Proxy;
use tokio::time::Instant;
use uuid::Uuid;
use zookeeper_recipes::{Mutex, Semaphore, Session};

use crate::alone::{turn, unstuck};
use crate::support::connect_for;

/// The default of the client.
const TIMEOUT: Duration = Duration::from_secs(6);

/// Far more than the servers add to it, which look at sessions once a tick, and than a busy machine does.
const LATE: Duration = Duration::from_secs(60);

const ROUNDS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Killed,
    Silent,
}

/// A session that is to have a fault, and another behind it.
struct Pair {
    proxy: Proxy,
    dying: Session,
    next: Session,
    path: String,
}

impl Pair {
    async fn new(ensemble: &Ensemble, round: usize) -> Self {
        let proxy = Proxy::start(&ensemble.server(round % 3).hosts()).await.expect("a proxy");
        let dying = connect_for(&proxy.hosts(), TIMEOUT).await;
        let next = connect_for(&ensemble.hosts(), TIMEOUT).await;
        Self { proxy, dying, next, path: format!("/delays-{}", Uuid::new_v4().simple()) }
    }

    fn fail(&self, fault: Fault) {
        match fault {
            Fault::Killed => self.proxy.refuse(),
            Fault::Silent => self.proxy.black_hole(),
        }
    }
}

/// The holder dies. From then on the waiter waits.
async fn holder(ensemble: &Ensemble, fault: Fault, round: usize) -> Duration {
    let pair = Pair::new(ensemble, round).await;
    let held = Mutex::new(&pair.dying, &pair.path).expect("a mutex").lock().await.expect("held");
    let waiting = Mutex::new(&pair.next, &pair.path).expect("a mutex").enqueue().await.expect("queued");
    pair.fail(fault);
    let began = Instant::now();
    drop(waiting.await.expect("held"));
    drop(held);
    began.elapsed()
}

/// A waiter dies, and the holder releases at once. From then on nobody holds.
async fn waiter(ensemble: &Ensemble, fault: Fault, round: usize) -> Duration {
    let pair = Pair::new(ensemble, round).await;
    let next = Mutex::new(&pair.next, &pair.path).expect("a mutex");
    let held = next.lock().await.expect("held");
    let dead = Mutex::new(&pair.dying, &pair.path).expect("a mutex").enqueue().await.expect("queued");
    let waiting = next.enqueue().await.expect("queued");
    pair.fail(fault);
    let began = Instant::now();
    held.release().await.expect("released");
    drop(waiting.await.expect("held"));
    drop(dead);
    began.elapsed()
}

/// The same with a semaphore, all of whose permits are released. The dead waiter may have taken one of them.
async fn semaphore_waiter(ensemble: &Ensemble, fault: Fault, round: usize) -> (Duration, u32, bool) {
    let pair = Pair::new(ensemble, round).await;
    let next = Semaphore::new(&pair.next, &pair.path, 3).expect("a semaphore");
    let held = next.acquire_many(3).await.expect("held");
    let dead = Semaphore::new(&pair.dying, &pair.path, 3).expect("a semaphore").enqueue(1).await.expect("queued");
    let waiting = next.enqueue(1).await.expect("queued");
    pair.fail(fault);
    let began = Instant::now();
    held.release().await.expect("released");
    let free = next.available_permits().await.expect("asked");
    let has_permit = next.try_acquire().await.expect("asked").is_some();
    drop(waiting.await.expect("held"));
    drop(dead);
    (began.elapsed(), free, has_permit)
}

/// The time from a release to the next grant.
async fn hand_over(hosts: &str, fails: impl AsyncFnOnce()) -> Duration {
    let (holder, next) = (connect_for(hosts, TIMEOUT).await, connect_for(hosts, TIMEOUT).await);
    let path = format!("/delays-{}", Uuid::new_v4().simple());
    let held = Mutex::new(&holder, &path).expect("a mutex").lock().await.expect("held");
    let waiting = Mutex::new(&next, &path).expect("a mutex").enqueue().await.expect("queued");
    let began = Instant::now();
    fails().await;
    let released = tokio::spawn(held.release());
    drop(waiting.await.expect("held"));
    // On a busy machine the outage may be longer than a hold survives.
    let _ = released.await.expect("no panic");
    began.elapsed()
}

fn print(fault: &str, waits: &str, times: &[Duration]) {
    let (least, most) = (times.iter().min().expect("a round"), times.iter().max().expect("a round"));
    println!("| {fault} | {waits} | {:.1}–{:.1} s |", least.as_secs_f64(), most.as_secs_f64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_wait_after_a_fault_for_as_long_as_the_documents_state() {
    let _turn = turn().await;
    let mut ensemble = Ensemble::start(3).await.expect("an ensemble");
    println!("| fault, T = 6 s | waiting | measured |\n|---|---|---|");
    let bound = TIMEOUT + LATE;
    for fault in [Fault::Killed, Fault::Silent] {
        let of_holder = join_all((0..ROUNDS).map(|round| holder(&ensemble, fault, round)));
        let times = unstuck("a dead holder", of_holder).await;
        print(&format!("holder {fault:?}"), "the next waiter", &times);
        assert!(times.iter().all(|time| *time < bound), "{times:?}");
        let of_waiter = join_all((0..ROUNDS).map(|round| waiter(&ensemble, fault, round)));
        let times = unstuck("a dead waiter", of_waiter).await;
        print(&format!("waiter {fault:?}"), "all behind it, though nobody holds", &times);
        assert!(times.iter().all(|time| *time < bound), "{times:?}");
        let of_permits = join_all((0..ROUNDS).map(|round| semaphore_waiter(&ensemble, fault, round)));
        let rounds = unstuck("a dead waiter for a permit", of_permits).await;
        let times: Vec<_> = rounds.iter().map(|(time, ..)| *time).collect();
        print(&format!("waiter of a semaphore {fault:?}"), "all behind it, though permits are free", &times);
        assert!(times.iter().all(|time| *time < bound), "{times:?}");
        println!("free permits, and whether `try_acquire` got one: {rounds:?}");
    }
    let mut times = Vec::new();
    for _ in 0..3 {
        let follower = ensemble.followers().await.expect("followers")[0];
        let hosts = ensemble.server(follower).hosts();
        let restarted = hand_over(&hosts, async || {
            ensemble.server_mut(follower).kill();
            ensemble.server_mut(follower).restart().await.expect("restarted");
        });
        times.push(unstuck("a restart", restarted).await);
        ensemble.settled().await.expect("settled");
    }
    print("restart of the only server of both", "holders and waiters", &times);
    let mut times = Vec::new();
    for _ in 0..3 {
        let leader = ensemble.leader().await.expect("a leader");
        let hosts = ensemble.hosts();
        let died = hand_over(&hosts, async || ensemble.server_mut(leader).kill());
        times.push(unstuck("an election", died).await);
        ensemble.server_mut(leader).restart().await.expect("restarted");
        ensemble.settled().await.expect("settled");
    }
    print("death of the leader", "everybody", &times);
}
