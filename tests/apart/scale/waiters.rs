//! Ten thousand waiters for one lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as Shared};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use testbed::Server;
use testbed::frames::{Kind, Op};
use testbed::proxy::Proxy;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{FencingToken, Mutex, Result, Session};

use crate::alone::{LONG, resident, turn, unstuck, wait_for_watches, watcher};
use crate::support::{children, connect_for, slow_looks};

const SESSIONS: usize = 20;
const PATH: &str = "/scale/wide";
/// Waiters of one session.
const EACH: usize = 500;
const WAITERS: usize = SESSIONS * EACH;

/// Who was granted the lock: its token, its node, and when.
type Granted = Arc<Shared<Vec<(FencingToken, String, Instant)>>>;

/// Tasks that wait for the lock, hold it for a moment, and release it.
#[derive(Default)]
struct Crowd {
    tasks: Vec<JoinHandle<Result<()>>>,
    queued: Arc<AtomicUsize>,
    granted: Granted,
}

impl Crowd {
    /// Lets this many tasks of a session join the queue, and waits until each knows its predecessor.
    async fn join(&mut self, session: &Session, count: usize) {
        for _ in 0..count {
            let mutex = Mutex::new(session, PATH).expect("a mutex");
            let (queued, granted) = (self.queued.clone(), self.granted.clone());
            self.tasks.push(tokio::spawn(async move {
                let waiting = mutex.enqueue().await?;
                queued.fetch_add(1, Ordering::Relaxed);
                let guard = waiting.await?;
                granted.lock().expect("no panic").push((
                    guard.fencing_token(),
                    guard.nodes()[0].clone(),
                    Instant::now(),
                ));
                guard.release().await
            }));
        }
        let mut beat = interval(Duration::from_millis(50));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let all = self.tasks.len();
        unstuck("all wait", async {
            while self.queued.load(Ordering::Relaxed) < all && !self.tasks.iter().any(JoinHandle::is_finished) {
                beat.tick().await;
            }
        })
        .await;
    }

    /// Waits until all had their turn, in this order.
    async fn served(self, line: &[String]) {
        let done = unstuck("all had their turn", try_join_all(self.tasks)).await.expect("no panic");
        done.into_iter().for_each(|released| released.expect("held and released"));
        let granted = std::mem::take(&mut *self.granted.lock().expect("no panic"));
        let thousand = |from: usize| granted[from + 999].2 - granted[from].2;
        println!("the first thousand took {:.1?}, the last {:.1?}", thousand(0), thousand(WAITERS - 1_000));
        let (tokens, nodes): (Vec<_>, Vec<_>) = granted.into_iter().map(|(token, node, _)| (token, node)).unzip();
        assert!(nodes == line, "in the order of the queue");
        assert!(tokens.is_sorted_by(|one, next| one < next), "tokens grow");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_admitted_in_order_without_a_listing_each() {
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
    let mut crowd = Crowd::default();
    // One session after the other, because in the field they would have a core each: what thousands take apart at once
    // keeps everybody here from answering in time.
    for (before, session) in sessions.iter().enumerate() {
        crowd.join(session, EACH).await;
        unstuck("a watch on the session before", wait_for_watches(&proxy, before + 1)).await;
    }
    let entered = began.elapsed();
    let line = queue(&admin).await;
    println!(
        "{WAITERS} waiters of {SESSIONS} sessions queued after {entered:.1?}: {} creates, {} listings, {} watches",
        count(Op::Create2),
        count(Op::GetChildren2),
        watches(),
    );
    // Each session watches its predecessor, and the nodes of its first two waiters; the others wait in memory.
    assert!(watches() <= 3 * SESSIONS, "{} watches", watches());
    let most = WAITERS / 10 + SESSIONS * slow_looks(entered);
    assert!(count(Op::GetChildren2) < most, "those of one session share their listings");

    proxy.reset();
    let began = Instant::now();
    gate.release().await.expect("released");
    crowd.served(&line).await;
    let took = began.elapsed();
    let woken = proxy.uncounted().iter().filter(|frame| matches!(frame.kind, Kind::Notification { .. })).count();
    println!(
        "{WAITERS} turns in {took:.1?}: {woken} events, {} listings, {} watches, {} proofs, {} deletes",
        count(Op::GetChildren2),
        watches(),
        count(Op::Multi),
        count(Op::Delete),
    );
    // The first of each session lists again. All others are handed the lock.
    let most = 2 * SESSIONS + SESSIONS * slow_looks(entered + took);
    assert!(count(Op::GetChildren2) <= most, "{} listings", count(Op::GetChildren2));
    // A node has one watch. One more is asked for by each whose predecessor is already on its way out when it comes to the
    // front: how many those are is chance.
    assert!(watches() <= WAITERS + WAITERS / 2, "{} watches", watches());
    assert!(woken <= WAITERS + 3 * SESSIONS, "{woken} events");
    assert_eq!(count(Op::Delete), WAITERS);
    assert!(children(&admin, PATH).await.is_empty(), "nothing is left");
}

/// The nodes of all that wait behind the holder, in their order.
async fn queue(admin: &Client) -> Vec<String> {
    let line: Vec<_> = children(admin, PATH).await[1..].iter().map(|name| format!("{PATH}/{name}")).collect();
    assert_eq!(line.len(), WAITERS);
    line
}

/// Each used to have a watch, of which a session may have some 1,400.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_of_one_session_are_served_in_order() {
    let _turn = turn().await;
    let server = Server::start().await.expect("a server");
    let admin = watcher(&server).await;
    // Without a proxy, which keeps each request in the memory of this process.
    let session = connect_for(&server.hosts(), LONG).await;
    let gate = Mutex::new(&session, PATH).expect("a mutex").lock().await.expect("free");
    let mut crowd = Crowd::default();
    crowd.join(&session, 1).await;
    let (before, idle) = (resident(), Meter::read(&server).await);
    let began = Instant::now();
    for _ in 0..20 {
        crowd.join(&session, (WAITERS - 1).div_ceil(20).min(WAITERS - crowd.tasks.len())).await;
    }
    let (after, queued) = (resident(), Meter::read(&server).await);
    println!(
        "{WAITERS} waiters of one session queued after {:.1?}: {} requests, {} watches, {}",
        began.elapsed(),
        queued.requests - idle.requests,
        queued.watches,
        match before.zip(after) {
            Some((before, after)) => {
                let each = after.saturating_sub(before) / (WAITERS - 1);
                format!("{each} bytes of resident memory each, with the task itself")
            }
            None => "memory unknown".to_owned(),
        },
    );
    assert!(queued.watches <= 4, "{} watches", queued.watches);
    let line = queue(&admin).await;
    let began = Instant::now();
    gate.release().await.expect("released");
    crowd.served(&line).await;
    let served = Meter::read(&server).await;
    println!("{WAITERS} turns in {:.1?}: {} requests", began.elapsed(), served.requests - queued.requests);
    assert!(children(&admin, PATH).await.is_empty(), "nothing is left");
}

/// What a server has counted.
struct Meter {
    requests: usize,
    watches: usize,
}

impl Meter {
    async fn read(server: &Server) -> Self {
        let counts = server.four_letter_word("mntr").await.expect("it answers");
        let count = |name: &str| -> usize {
            let found = counts.lines().find_map(|line| line.strip_prefix(name)).expect("a count");
            found.trim().parse().expect("a number")
        };
        Self { requests: count("zk_packets_received"), watches: count("zk_watch_count") }
    }
}
