//! Compares the cost of a lock here and in Curator. A proxy before each side counts frames; `--nocapture` prints the
//! table.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use testbed::proxy::{Proxy, Request};
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Election, Error, LockGuard, MultiLock, Mutex, RwLock, Semaphore, Servers, Session};

use crate::peer::{Handle, Language, Peer};
use crate::support::{fresh_path, hosts, soon, wait_nodes};
use crate::watched::{proxy, watch};

/// How long answers are delayed, so that each wait for an answer shows as a round trip of its own. A client that pauses
/// between two requests seems to need more round trips, so a cost that looks too high is measured again, with a longer
/// delay; but not one so long that a session of ours comes to its first fallback poll.
const HOLDS: [Duration; 3] = [Duration::from_millis(150), Duration::from_millis(300), Duration::from_millis(300)];

/// A time limit in delays. It is enough for every request of an acquire before it times out.
const LIMIT: u32 = 14;

type Guard = Box<dyn LockGuard>;
/// Acquires one of ours. The option is the time limit; zero is a try.
type Acquire = fn(&Session, &str, Option<Duration>) -> Acquired;
type Acquired = BoxFuture<'static, Result<Option<Guard>, Error>>;

/// A class of Curator's, and its counterpart here.
struct Row {
    name: &'static str,
    theirs: &'static str,
    /// What follows the path in the driver's command.
    arguments: &'static str,
    dirs: &'static [&'static str],
    /// How many nodes there are when it is held.
    held: usize,
    /// How many there are when a waiter of theirs, or of ours, is queued too.
    waiting: (usize, usize),
    /// Whether theirs can be tried. (A latch awaited with a zero limit has not even started.)
    tries: bool,
    ours: Acquire,
    /// Our lock that excludes it.
    blocker: Acquire,
    /// How many requests the release of theirs takes.
    releases: usize,
}

/// Acquires `$lock`, by the methods of its recipe.
macro_rules! acquire {
    ($lock:expr, $limit:expr, $wait:ident($($many:expr)?), $attempt:ident, $timed:ident) => {{
        let (lock, limit) = ($lock.expect("a lock"), $limit);
        async move {
            Ok(match limit {
                None => Some(Box::new(lock.$wait($($many)?).await?) as Guard),
                Some(Duration::ZERO) => lock.$attempt($($many)?).await?.map(|guard| Box::new(guard) as Guard),
                Some(limit) => lock.$timed($($many,)? limit).await?.map(|guard| Box::new(guard) as Guard),
            })
        }
        .boxed()
    }};
}

fn mutex(session: &Session, path: &str, limit: Option<Duration>) -> Acquired {
    acquire!(Mutex::new(session, path), limit, lock(), try_lock, try_lock_for)
}

fn writer(session: &Session, path: &str, limit: Option<Duration>) -> Acquired {
    acquire!(RwLock::new(session, path), limit, write(), try_write, try_write_for)
}

fn reader(session: &Session, path: &str, limit: Option<Duration>) -> Acquired {
    acquire!(RwLock::new(session, path), limit, read(), try_read, try_read_for)
}

fn permit(session: &Session, path: &str, limit: Option<Duration>) -> Acquired {
    acquire!(Semaphore::new(session, path, 1), limit, acquire(), try_acquire, try_acquire_for)
}

fn three_permits(session: &Session, path: &str, limit: Option<Duration>) -> Acquired {
    acquire!(Semaphore::new(session, path, 3), limit, acquire_many(3), try_acquire_many, try_acquire_many_for)
}

fn at_once(session: &Session, path: &str, limit: Option<Duration>) -> Acquired {
    let paths = ["a", "b", "c"].map(|member| format!("{path}/{member}"));
    acquire!(MultiLock::new(session, paths), limit, lock(), try_lock, try_lock_for)
}

fn leadership(session: &Session, path: &str, limit: Option<Duration>) -> Acquired {
    acquire!(Election::new(session, path), limit, campaign(), try_campaign, try_campaign_for)
}

const MUTEX: Row = Row {
    name: "InterProcessMutex",
    theirs: "mutex",
    arguments: "",
    dirs: &[""],
    held: 1,
    waiting: (2, 2),
    tries: true,
    ours: mutex,
    blocker: mutex,
    releases: 1,
};
const PERMIT: Row = Row {
    name: "InterProcessSemaphoreV2",
    theirs: "semaphore",
    dirs: &["/locks", "/leases"],
    waiting: (3, 3),
    ours: permit,
    blocker: permit,
    ..MUTEX
};

const ROWS: [Row; 9] = [
    MUTEX,
    Row { name: "…ReadWriteLock.writeLock", theirs: "write", ours: writer, blocker: writer, ..MUTEX },
    Row { name: "…ReadWriteLock.readLock", theirs: "read", ours: reader, blocker: writer, ..MUTEX },
    PERMIT,
    Row {
        name: "…SemaphoreV2, 3 leases",
        arguments: " 3 3",
        held: 3,
        // One after the other, and all at once.
        waiting: (5, 7),
        ours: three_permits,
        blocker: three_permits,
        releases: 3,
        ..PERMIT
    },
    Row { name: "InterProcessSemaphoreMutex", theirs: "semaphore-mutex", ..PERMIT },
    Row {
        name: "InterProcessMultiLock of 3",
        theirs: "multi",
        dirs: &["/a", "/b", "/c"],
        held: 3,
        waiting: (4, 6),
        ours: at_once,
        blocker: at_once,
        releases: 3,
        ..MUTEX
    },
    Row { name: "LeaderLatch", theirs: "latch", tries: false, ours: leadership, blocker: leadership, ..MUTEX },
    Row { name: "LeaderSelector", theirs: "selector", tries: false, ..MUTEX },
];

/// Requests, writes among them, and round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    requests: usize,
    writes: usize,
    trips: usize,
}

impl Cost {
    /// The requests sent until it is `quiet` again, and the round trips that the caller has waited for until now.
    async fn of(proxy: &Proxy, quiet: impl Future<Output = ()>) -> Self {
        let waited = |request: &Request| request.answer.is_some_and(|answer| answer.forwarded.is_some());
        let trips = proxy.requests().iter().filter(|one| waited(one)).map(|one| one.round).max().unwrap_or(0);
        // Requests that nobody waits for may still be under way.
        quiet.await;
        let requests = proxy.requests();
        let writes = requests.iter().filter(|request| request.is_write()).count();
        Self { requests: requests.len(), writes, trips }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{} / {} / {}", self.trips, self.requests, self.writes))
    }
}

/// One side, and what it costs.
enum Side {
    Ours(Session, Box<Row>, String, Option<Guard>),
    Theirs(Handle),
}

impl Side {
    /// Acquires within a limit; returns whether it holds.
    async fn acquire(&mut self, limit: Option<Duration>) -> bool {
        match self {
            Self::Ours(session, row, path, held) => {
                *held = soon("ours", (row.ours)(session, path, limit)).await.expect("asked");
                held.is_some()
            }
            Self::Theirs(handle) => {
                let limit = limit.map_or_else(String::new, |limit| format!(" {}", limit.as_millis()));
                handle.send(&format!("acquire{limit}")).await;
                let answer = handle.answer().await;
                assert!(["held", "timeout"].contains(&answer.word.as_str()), "{}: {}", answer.word, answer.rest);
                answer.word == "held"
            }
        }
    }

    async fn release(&mut self) {
        match self {
            Self::Ours(_, _, _, held) => held.take().expect("held").release().await.expect("released"),
            Self::Theirs(handle) => handle.release().await,
        }
    }
}

/// The costs of one side, whose answers are delayed: an uncontended acquire and release, then a contended try, a wait
/// that times out, and a wait that ends with the lock.
async fn costs(
    side: &mut Side,
    (proxy, hold): (&Proxy, Duration),
    blocker: &Session,
    row: &Row,
    path: &str,
) -> Vec<(&'static str, Cost)> {
    let admin = Client::connect(&hosts()).await.expect("connects");
    let dirs: Vec<_> = row.dirs.iter().map(|dir| format!("{path}{dir}")).collect();
    let nodes = async |count| drop(wait_nodes(&admin, &dirs, count).await);
    let waiting = if matches!(side, Side::Ours(..)) { row.waiting.1 } else { row.waiting.0 };
    let mut costs = Vec::new();
    // The first acquire creates the paths.
    assert!(side.acquire(None).await);
    side.release().await;
    nodes(0).await;
    proxy.hold_answers(hold);
    proxy.reset();
    assert!(side.acquire(None).await);
    costs.push(("acquire", Cost::of(proxy, nodes(row.held)).await));
    proxy.reset();
    side.release().await;
    costs.push(("release", Cost::of(proxy, nodes(0)).await));
    let block = async || {
        let guard = (row.blocker)(blocker, path, None).await.expect("asked").expect("held");
        // Its turn has passed, too.
        nodes(row.held).await;
        guard
    };
    let limits = [("contended try", Duration::ZERO), ("timed out", hold * LIMIT)];
    for (event, limit) in limits.into_iter().skip(usize::from(!row.tries)) {
        let guard = block().await;
        proxy.reset();
        assert!(!side.acquire(Some(limit)).await, "it is held");
        costs.push((event, Cost::of(proxy, nodes(row.held)).await));
        guard.release().await.expect("released");
    }
    let guard = block().await;
    proxy.reset();
    let release = async {
        nodes(waiting).await;
        watch(proxy).await;
        guard.release().await.expect("released");
    };
    let (held, ()) = tokio::join!(side.acquire(None), release);
    assert!(held);
    costs.push(("wait", Cost::of(proxy, nodes(row.held)).await));
    side.release().await;
    nodes(0).await;
    proxy.hold_answers(Duration::ZERO);
    costs
}

/// Whether our cost of this event is as promised, compared to theirs.
fn is_cheaper(event: &str, row: &Row, theirs: Cost, ours: Cost) -> bool {
    match event {
        "acquire" => ours.trips < theirs.trips && ours.writes <= theirs.writes,
        // Nobody waits for the close of their latch.
        "release" => ours.requests == 1 && theirs.requests == row.releases,
        // Before a waiter deletes its turn, it confirms with a quorum that the turn still exists.
        "wait" | "timed out" => ours.trips <= theirs.trips,
        _ => ours.trips < theirs.trips && ours.writes < theirs.writes,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_costs_more_than_curators() {
    let (our_proxy, their_proxy) = (proxy().await, proxy().await);
    // A session that need not renew its trust while answers are delayed.
    let connect = async |hosts: &str| {
        let servers = Servers::new(hosts).with_session_timeout(Duration::from_secs(60));
        Session::connect(servers).await.expect("connects")
    };
    let blocker = connect(&hosts()).await;
    let peer = Peer::start(Language::Java, &their_proxy.hosts()).await;
    println!("round trips / requests / writes       Curator          ours");
    for row in ROWS {
        let mut expensive = Vec::new();
        for hold in HOLDS {
            let path = fresh_path();
            let mut theirs = Side::Theirs(peer.lock(row.theirs, &format!("{path}{}", row.arguments)).await);
            let theirs = costs(&mut theirs, (&their_proxy, hold), &blocker, &row, &path).await;
            let path = fresh_path();
            let session = connect(&our_proxy.hosts()).await;
            let mut ours = Side::Ours(session.clone(), Box::new(Row { ..row }), path.clone(), None);
            let ours = costs(&mut ours, (&our_proxy, hold), &blocker, &row, &path).await;
            session.close().await.expect("closed");
            expensive.clear();
            for ((event, theirs), (_, ours)) in theirs.into_iter().zip(ours) {
                println!("{:28} {event:13} {theirs:>12} {ours:>12}", row.name);
                if !is_cheaper(event, &row, theirs, ours) {
                    expensive.push(format!("{event}: {ours:?}, and Curator {theirs:?}"));
                }
            }
            if expensive.is_empty() {
                break;
            }
        }
        assert!(expensive.is_empty(), "{}, {expensive:?}", row.name);
    }
}
