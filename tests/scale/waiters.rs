//! Ten thousand waiters for one lock.

use std::sync::{Arc, Mutex as Shared};
use std::time::Instant;

use futures_util::future::{join_all, try_join_all};
use testbed::Server;
use testbed::frames::{Kind, Op};
use testbed::proxy::Proxy;
use zookeeper_recipes::Mutex;

use crate::alone::{LONG, turn, unstuck, wait_for_watches, watcher};
use crate::support::{children, connect_for, slow_looks};

const SESSIONS: usize = 20;
const PATH: &str = "/scale/wide";
/// Waiters of one session.
const EACH: usize = 500;
const WAITERS: usize = SESSIONS * EACH;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_admitted_in_order_and_woken_once_each() {
    let _turn = turn().await;
    let server = Server::start().await.expect("a server");
    let proxy = Proxy::start(&server.hosts()).await.expect("a proxy");
    let admin = watcher(&server).await;
    let gate = Mutex::new(&connect_for(&server.hosts(), LONG).await, PATH).expect("a mutex");
    let gate = gate.lock().await.expect("free");
    let sessions = join_all((0..SESSIONS).map(async |_| connect_for(&proxy.hosts(), LONG).await)).await;
    let count = |op: Op| proxy.requests().iter().filter(|request| request.op == op).count();
    let watches = || proxy.requests().iter().filter(|request| request.watch).count();

    proxy.reset();
    let began = Instant::now();
    let granted = Arc::new(Shared::new(Vec::new()));
    let mut tasks = Vec::new();
    // One session after the other, because in the field they would have a core each: what thousands take apart at once
    // keeps everybody here from answering in time.
    for session in &sessions {
        for _ in 0..EACH {
            let mutex = Mutex::new(session, PATH).expect("a mutex");
            let granted = granted.clone();
            tasks.push(tokio::spawn(async move {
                let guard = mutex.lock().await?;
                granted.lock().expect("no panic").push((
                    guard.fencing_token(),
                    guard.nodes()[0].clone(),
                    Instant::now(),
                ));
                guard.release().await
            }));
        }
        unstuck("all wait", wait_for_watches(&proxy, tasks.len())).await;
    }
    let entered = began.elapsed();
    let line: Vec<_> = children(&admin, PATH).await[1..].iter().map(|name| format!("{PATH}/{name}")).collect();
    assert_eq!(line.len(), WAITERS);
    println!(
        "{WAITERS} waiters of {SESSIONS} sessions queued after {entered:.1?}: {} creates, {} listings, {} watches",
        count(Op::Create2),
        count(Op::GetChildren),
        watches(),
    );
    assert_eq!(watches(), WAITERS, "one watch each");
    let most = WAITERS / 10 + SESSIONS * slow_looks(entered);
    assert!(count(Op::GetChildren) < most, "those of one session share their listings");

    proxy.reset();
    let began = Instant::now();
    gate.release().await.expect("released");
    let done = unstuck("all had their turn", try_join_all(tasks)).await.expect("no panic");
    done.into_iter().for_each(|released| released.expect("held and released"));
    let took = began.elapsed();
    let woken = proxy.uncounted().iter().filter(|frame| matches!(frame.kind, Kind::Notification { .. })).count();
    println!(
        "{WAITERS} turns in {took:.1?}: {woken} wake-ups, {} listings, {} watches, {} proofs, {} deletes",
        count(Op::GetChildren),
        watches(),
        count(Op::Multi),
        count(Op::Delete),
    );
    let granted = std::mem::take(&mut *granted.lock().expect("no panic"));
    let thousand = |from: usize| granted[from + 999].2 - granted[from].2;
    println!("the first thousand took {:.1?}, the last {:.1?}", thousand(0), thousand(WAITERS - 1_000));
    let (tokens, nodes): (Vec<_>, Vec<_>) = granted.into_iter().map(|(token, node, _)| (token, node)).unzip();
    assert!(nodes == line, "in the order of the line");
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens grow");
    assert_eq!(woken, WAITERS, "one wake-up each");
    let listings = WAITERS..=WAITERS + SESSIONS * slow_looks(entered + took);
    assert!(listings.contains(&count(Op::GetChildren)), "one listing each, and not {}", count(Op::GetChildren));
    assert_eq!(watches(), 0, "nobody has to wait again");
    assert_eq!(count(Op::Delete), WAITERS);
    assert!(children(&admin, PATH).await.is_empty(), "nothing is left");
}
