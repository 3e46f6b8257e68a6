//! What a change costs the servers, and a fleet at rest: requests of all members, counted by a proxy.

use std::collections::BTreeMap;
use std::time::Duration;

use testbed::frames::Op;
use testbed::proxy::{Proxy, Request};
use tokio::task::JoinHandle;
use zookeeper_recipes::{Result, Servers, Session};

use crate::support::{Fleet, PATH, soon};

const FOUR: [&str; 4] = ["orders-0", "orders-1", "orders-2", "orders-3"];

/// A member behind the proxy. Its session needs no renewal while the test counts.
async fn start(fleet: &Fleet, proxy: &Proxy, name: &str) -> JoinHandle<Result<()>> {
    let servers = Servers::new(&proxy.hosts()).with_session_timeout(Duration::from_secs(60));
    let session = soon("a session", Session::connect(servers)).await.expect("connects");
    let shards = fleet.builder(name).build(&session).expect("valid settings");
    tokio::spawn(fleet.serve(&shards))
}

fn is_write(request: &Request) -> bool {
    matches!(request.op, Op::Create | Op::Create2 | Op::CreateContainer | Op::Delete | Op::SetData | Op::Multi)
}

fn counted(proxy: &Proxy) -> (usize, usize, BTreeMap<String, usize>) {
    let (requests, mut kinds) = (proxy.requests(), BTreeMap::new());
    requests.iter().for_each(|request| *kinds.entry(format!("{:?}", request.op)).or_default() += 1);
    let writes = requests.iter().filter(|request| is_write(request)).count();
    (writes, requests.len() - writes, kinds)
}

/// The requests for the plan node alone.
fn of_plan_node(proxy: &Proxy) -> Vec<Op> {
    let path = format!("{PATH}/plan");
    proxy.requests().iter().filter(|request| request.path == path).map(|request| request.op).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn join_costs_two_writes_a_move_and_a_fleet_at_rest_a_read_a_member_and_turn() {
    let fleet = Fleet::new(256).await.set(|builder| builder.patience(Duration::from_secs(6)));
    let proxy = Proxy::start(&fleet.root.hosts()).await.expect("a proxy");
    let mut running = Vec::new();
    for name in &FOUR[..3] {
        running.push(start(&fleet, &proxy, name).await);
    }
    fleet.settled(&FOUR[..3]).await;
    // Without a plan node a member asks for it once, with a watch.
    assert_eq!(of_plan_node(&proxy), [Op::Exists; 3]);
    proxy.reset();
    running.push(start(&fleet, &proxy, FOUR[3]).await);
    fleet.settled(&FOUR).await;
    let (moves, (writes, reads, kinds)) = (fleet.difference(&FOUR[..3], &FOUR), counted(&proxy));
    println!("256 x 3: a join with {moves} moves costs {writes} writes and {reads} reads: {kinds:?}");
    // The member's own node, and what a path or a slow machine adds.
    assert!(writes <= 2 * moves + 20, "{writes}");
    proxy.reset();
    // Four turns of half the patience.
    let time = Duration::from_secs(12);
    assert!(tokio::time::timeout(time, proxy.wait_until(|_| false)).await.is_err());
    let (writes, reads, kinds) = counted(&proxy);
    println!("256 x 4: at rest {writes} writes and {reads} reads in {time:?}: {kinds:?}");
    assert!(writes + reads <= 60, "{kinds:?}");
    assert_eq!(of_plan_node(&proxy), []);
    fleet.ledger.judge();
    running.iter().for_each(JoinHandle::abort);
}
