//! A free lock that is granted by the number of children in the answer to its create: on several servers, of which one dies or lags,
//! and where servers check more than usual.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testbed::ledger::Ledger;
use testbed::{Ensemble, Server, next_look};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode, Error as ZkError};
use zookeeper_recipes::{Error, Mutex, Session};

use crate::requests::cycle::{COUNTED, cycle, is_tried_once};
use crate::support::{PATIENCE, TIMEOUT, World, admin_client, connect, make_paths, pass, soon, wait_children};

/// Three servers, a session on each, and a path that exists.
struct Turns {
    ensemble: Ensemble,
    admin: Client,
    path: String,
    ledger: Arc<Ledger>,
    mutexes: Vec<Mutex>,
}

impl Turns {
    async fn start() -> Self {
        let ensemble = Ensemble::builder().sync_limit(30).start().await.unwrap_or_else(|error| panic!("{error}"));
        ensemble.settled().await.expect("settles");
        let admin = admin_client(&ensemble.hosts()).await;
        let path = format!("/it-{}/lock", Uuid::new_v4().simple());
        make_paths(&admin, std::slice::from_ref(&path)).await;
        let mut mutexes = Vec::new();
        for server in 0..ensemble.len() {
            // It moves to another server when its own is gone.
            let others = (1..3).map(|other| ensemble.server((server + other) % 3).hosts());
            let hosts: Vec<String> = [ensemble.server(server).hosts()].into_iter().chain(others).collect();
            let session: Session = connect(&hosts.join(",")).await;
            mutexes.push(Mutex::new(&session, &path).expect("a mutex"));
        }
        Self { ensemble, admin, path, ledger: Arc::new(Ledger::new()), mutexes }
    }

    /// All lock in turn, so nobody else is there. How many were granted by the count: only these write to the path.
    async fn in_turn(&self) -> i32 {
        let before = self.writes().await;
        for round in 0..4 {
            for (number, mutex) in self.mutexes.iter().enumerate() {
                soon("a turn", turn(mutex, &self.ledger, &format!("session {number}, round {round}"))).await;
            }
        }
        self.writes().await - before
    }

    /// The count grants every lock, of each session in turn, unless it looks at the path just then, as it does every half minute.
    async fn granted_by_the_count(&self) {
        self.in_turn().await;
        let mut counted = Vec::new();
        while counted.last() != Some(&12) {
            counted.push(self.in_turn().await);
            assert!(counted.len() < 10, "not every lock is granted by the count: {counted:?}");
        }
    }

    /// Waits for so many more grants. Without them it says what each server reports, and who is in the queue.
    async fn granted(&self, more: usize) {
        let count = self.ledger.grants().len() + more;
        let enough = async {
            while self.ledger.grants().len() < count {
                next_look().await;
            }
        };
        if timeout(PATIENCE, enough).await.is_ok() {
            return;
        }
        for server in 0..self.ensemble.len() {
            eprintln!("{:?}", self.ensemble.server(server).four_letter_word("srvr").await);
        }
        for mutex in &self.mutexes {
            eprintln!("{:?}", timeout(TIMEOUT, mutex.contenders()).await);
        }
        panic!("{} grants, not {count}", self.ledger.grants().len());
    }

    async fn writes(&self) -> i32 {
        self.admin.check_stat(&self.path).await.expect("answers").expect("it is there").version
    }

    /// All lock at the same time, until it is over.
    fn at_once(&self) -> (Arc<AtomicBool>, Vec<JoinHandle<usize>>) {
        let is_over = Arc::new(AtomicBool::new(false));
        let workers = self.mutexes.iter().enumerate().map(|(number, mutex)| {
            let (mutex, ledger, is_over) = (mutex.clone(), Arc::clone(&self.ledger), Arc::clone(&is_over));
            let mut random = fastrand::Rng::with_seed(number as u64);
            tokio::spawn(async move {
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    turn(&mutex, &ledger, &format!("worker {number}, turn {count}")).await;
                    count += 1;
                    // Others come and go meanwhile, so some find the lock free.
                    pass(Duration::from_micros(random.u64(..8_000))).await;
                }
                count
            })
        });
        (is_over.clone(), workers.collect())
    }
}

async fn turn(mutex: &Mutex, ledger: &Ledger, who: &str) {
    let guard = mutex.lock().await.expect("held");
    let entry = ledger.enter(who, guard.fencing_token().get());
    tokio::task::yield_now().await;
    entry.leave();
    guard.release().await.expect("its session lives");
}

async fn end(turns: Turns, is_over: Arc<AtomicBool>, workers: Vec<JoinHandle<usize>>) {
    is_over.store(true, Ordering::Relaxed);
    for worker in workers {
        assert!(soon("the last turn", worker).await.expect("no panic") > 0, "every session had turns");
    }
    turns.ensemble.settled().await.expect("settles");
    turns.granted_by_the_count().await;
    turns.ledger.assert_clean();
    wait_children(&turns.admin, &turns.path, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_on_three_servers_exclude_each_other_over_the_death_of_the_leader() {
    let mut turns = Turns::start().await;
    turns.granted_by_the_count().await;
    let (is_over, workers) = turns.at_once();
    for _ in 0..2 {
        let leader = turns.ensemble.leader().await.expect("a leader");
        turns.ensemble.server_mut(leader).kill();
        turns.granted(30).await;
        turns.ensemble.server_mut(leader).restart().await.unwrap_or_else(|error| panic!("{error}"));
        turns.ensemble.settled().await.expect("settles");
    }
    end(turns, is_over, workers).await;
}

/// It applies late what the others do, and its own session counts all the same what is there.
#[tokio::test(flavor = "multi_thread")]
async fn session_on_a_follower_that_lags_excludes_the_others() {
    let turns = Turns::start().await;
    let (is_over, workers) = turns.at_once();
    for _ in 0..5 {
        let leader = turns.ensemble.leader().await.expect("a leader");
        let follower = (leader + 1) % 3;
        turns.ensemble.link(follower, leader).black_hole();
        pass(Duration::from_millis(300)).await;
        turns.ensemble.heal();
        turns.granted(10).await;
    }
    end(turns, is_over, workers).await;
}

/// The connected server refuses by itself what may not be written.
#[tokio::test]
async fn server_that_checks_early_is_asked_once_for_what_it_refuses() {
    let server =
        Server::builder().property("zookeeper.enableEagerACLCheck", "true").start().await.expect("a server");
    let world = World::at(&server.hosts(), TIMEOUT).await;
    world.make_path().await;
    is_tried_once(&world).await;
}

/// Sets a quota of nodes for a path, with itself. Servers log when the soft one is exceeded, and from 3.7.0 on refuse what exceeds
/// the hard one.
async fn set_quota(world: &World, soft: i32, hard: i32) {
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut node = "/zookeeper/quota".to_owned();
    for name in world.path.split('/').skip(1) {
        node = format!("{node}/{name}");
        world.admin.create(&node, b"", &open).await.expect("created");
    }
    let limits = format!("count={soft},bytes=-1=;byteHardLimit=-1;countHardLimit={hard}");
    world.admin.create(&format!("{node}/zookeeper_limits"), limits.as_bytes(), &open).await.expect("created");
    world.admin.create(&format!("{node}/zookeeper_stats"), b"count=1,bytes=0", &open).await.expect("created");
}

#[tokio::test]
async fn lock_within_a_quota_is_granted_by_the_count_and_beyond_it_refused() {
    let server = Server::builder().property("zookeeper.enforceQuota", "true").start().await.expect("a server");
    let report = server.four_letter_word("srvr").await.expect("answers");
    let is_enforced = !report.contains("version: 3.6");
    let world = World::at(&server.hosts(), TIMEOUT).await;
    world.make_path().await;
    set_quota(&world, 1, 2).await;
    let mutex = world.mutex();
    cycle(&world, &mutex).await;
    for _ in 0..3 {
        assert_eq!(cycle(&world, &mutex).await, COUNTED, "the path and one node");
    }
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    let other = world.other_mutex().await;
    // Where it is refused, a busy machine may take longer.
    let limit = if is_enforced { PATIENCE } else { Duration::from_secs(1) };
    match tokio::time::timeout(limit, other.lock()).await {
        Ok(refused) => {
            let error = refused.expect_err("there is no room for its node");
            assert!(
                is_enforced && matches!(&error, Error::Client { source: ZkError::QuotaExceeded, .. }),
                "{error:?}"
            );
        }
        Err(_) => assert!(!is_enforced, "it waits, though its node exceeds the quota"),
    }
    guard.release().await.expect("released");
    world.wait_empty().await;
    cycle(&world, &mutex).await;
    assert_eq!(cycle(&world, &mutex).await, COUNTED);
}
