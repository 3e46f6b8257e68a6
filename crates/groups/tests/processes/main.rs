//! Members in processes of their own, on a real server: killed, stopped and continued, and restarted. They report to a ledger in the
//! test, which answers as a store that checks tokens would.

#[path = "../it/ledger.rs"]
#[allow(dead_code, reason = "the other suite uses more of it")]
mod ledger;
mod worker;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use uuid::Uuid;
use zookeeper_groups::tools::{Plan, Rules};
use zookeeper_recipes::Session;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};

use crate::ledger::{Book, Ledger, Service};

const COUNT: u32 = 64;
const THREE: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

/// A ledger that processes report to, and the path of their group.
struct Fleet {
    ledger: Ledger,
    address: String,
    path: String,
    grace: Duration,
    /// How many steps were refused because their token was old.
    refused: Arc<AtomicUsize>,
}

/// A member in a process of its own, which is killed at the end of the test.
struct Process(Child);

impl Fleet {
    fn new(grace: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (ledger, refused) = (Ledger::new(COUNT), Arc::<AtomicUsize>::default());
        let served = (ledger.clone(), refused.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (ledger, refused) = served.clone();
                std::thread::spawn(move || answer(stream, &ledger, &refused));
            }
        });
        Self { ledger, address, path: format!("/shards-{}", Uuid::new_v4().simple()), grace, refused }
    }

    fn start(&self, name: &str) -> Process {
        let hosts = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`");
        let this = std::env::current_exe().expect("this program");
        let mut command = Command::new(this);
        command.args(["--exact", "worker::member_of_another_test", "--nocapture"]).stdout(Stdio::null());
        command.env("SHARDS_MEMBER", name).env("SHARDS_LEDGER", &self.address).env("SHARDS_PATH", &self.path);
        command.env("SHARDS_GRACE_MS", self.grace.as_millis().to_string()).env("ZK_HOSTS", hosts);
        Process(command.spawn().expect("it starts"))
    }

    /// Waits until each of these members owns what the plan of them gives it.
    async fn settled(&self, names: &[&str]) {
        self.settled_by(&Plan::new(COUNT, names.iter().copied())).await;
    }

    async fn settled_by(&self, plan: &Plan) {
        let is_so = |book: &Book| (0..COUNT).all(|shard| book.owner(shard) == plan.owner(shard));
        self.ledger.until(&format!("{:?} own their shards", plan.members()), is_so).await;
    }

    /// Writes the plan node of the three members, waits until shards are owned by it, and returns how many have moved.
    async fn directed(&self, client: &Client, text: &str) -> usize {
        let moves = self.ledger.moves();
        client.set_data(&format!("{}/plan", self.path), text.as_bytes(), None).await.expect("written");
        let rules = Rules::parse(text.as_bytes()).expect("rules");
        self.settled_by(&Plan::with_rules(COUNT, THREE, &rules)).await;
        let (moves, gap) = (self.ledger.moves() - moves, self.ledger.longest_gap());
        println!("64 x 3: {text:?} moves {moves}; longest without an owner {gap:.1?}");
        moves
    }
}

impl Process {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([format!("-{signal}"), self.0.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// Asks it to stop, and waits for its end.
    async fn stop(mut self) {
        self.signal("TERM");
        let status = tokio::task::spawn_blocking(move || self.0.wait().expect("its end")).await.expect("no panic");
        assert!(status.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Answers one process: `begin`, `step` and `end` with the number of a shard and a token.
fn answer(stream: TcpStream, ledger: &Ledger, refused: &AtomicUsize) {
    let mut answers = stream.try_clone().expect("a stream");
    let (mut name, mut services) = (String::new(), HashMap::<u64, Service>::new());
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "name" => words[1].clone_into(&mut name),
            "begin" => {
                let shard = u32::try_from(number(1)).expect("a shard");
                _ = services.insert(number(2), ledger.begin(&name, shard, number(2), None));
            }
            "step" if services[&number(2)].newer().is_some() => _ = refused.fetch_add(1, Ordering::SeqCst),
            "step" => {}
            _ => _ = services.remove(&number(2)),
        }
        if answers.write_all(b"done\n").is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_killed_process_are_owned_again_and_it_gets_them_back() {
    let fleet = Fleet::new(Duration::ZERO);
    let mut processes: Vec<_> = THREE.iter().map(|name| fleet.start(name)).collect();
    fleet.settled(&THREE).await;
    fleet.ledger.count_again();
    let began = Instant::now();
    processes.pop().expect("three").signal("KILL");
    fleet.settled(&THREE[..2]).await;
    println!("64 x 3: owned again {:.2?} after SIGKILL; T is {:?}", began.elapsed(), worker::TIMEOUT);
    assert!(began.elapsed() < worker::TIMEOUT + Duration::from_secs(8));
    let _again = fleet.start(THREE[2]);
    fleet.settled(&THREE).await;
    assert_eq!(fleet.refused.load(Ordering::SeqCst), 0);
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_process_that_goes_on_keeps_nothing_of_others() {
    let fleet = Fleet::new(Duration::ZERO);
    let processes: Vec<_> = THREE[..2].iter().map(|name| fleet.start(name)).collect();
    fleet.settled(&THREE[..2]).await;
    fleet.ledger.stopped(THREE[0]);
    processes[0].signal("STOP");
    let _third = fleet.start(THREE[2]);
    fleet.settled(&THREE[1..]).await;
    fleet.ledger.goes_on(THREE[0]);
    processes[0].signal("CONT");
    fleet.settled(&THREE).await;
    let refused = fleet.refused.load(Ordering::SeqCst);
    println!("64 x 3: {refused} writes of the stopped process were refused by their token");
    // It was stopped within a step, of which each of its threads may be at one.
    assert!(refused <= worker::THREADS, "{refused}");
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_of_processes_within_the_grace_moves_nothing() {
    let fleet = Fleet::new(Duration::from_secs(60));
    let mut processes: Vec<_> = THREE.iter().map(|name| fleet.start(name)).collect();
    fleet.settled(&THREE).await;
    fleet.ledger.count_again();
    for name in THREE {
        processes.remove(0).stop().await;
        processes.push(fleet.start(name));
        fleet.settled(&THREE).await;
    }
    let (moves, gap) = (fleet.ledger.moves(), fleet.ledger.longest_gap());
    println!("64 x 3: a rolling restart within the grace moves {moves}; longest without an owner {gap:.1?}");
    assert_eq!(moves, 0);
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_direct_processes_by_the_plan_node() {
    let fleet = Fleet::new(Duration::from_secs(60));
    let _processes: Vec<_> = THREE.iter().map(|name| fleet.start(name)).collect();
    fleet.settled(&THREE).await;
    fleet.ledger.count_again();
    let hosts = std::env::var("ZK_HOSTS").expect("hosts");
    let session = Session::connect(hosts.as_str()).await.expect("connects");
    let client = session.client().expect("a client");
    let (path, options) = (format!("{}/plan", fleet.path), CreateMode::Persistent.with_acls(Acls::anyone_all()));
    _ = client.create(&path, b"rubbish", &options).await.expect("created");
    fleet.ledger.nothing_moves(Duration::from_secs(2)).await;

    let plan = Plan::new(COUNT, THREE);
    let of_last = plan.shards_of(THREE[2]).count();
    let drained = fleet.directed(&client, "version 1\ndrain orders-2\n").await;
    assert!((of_last..of_last + 8).contains(&drained), "{drained} of {of_last}");
    assert_eq!(fleet.directed(&client, "version 1\n").await, drained);
    let pins = plan.shards_of(THREE[0]).map(|shard| format!("version 1\npin {shard} orders-1\n"));
    let moves = |text: &String| {
        let rules = Rules::parse(text.as_bytes()).expect("rules");
        let after = Plan::with_rules(COUNT, THREE, &rules);
        (0..COUNT).filter(|&shard| plan.owner(shard) != after.owner(shard)).count()
    };
    let pin = pins.into_iter().find(|pin| moves(pin) == 1).expect("a pin");
    assert_eq!(fleet.directed(&client, &pin).await, 1);
    client.delete(&path, None).await.expect("deleted");
    fleet.settled(&THREE).await;
    fleet.ledger.judge();
    drop(client);
    session.close().await.expect("closed");
}
