//! What a lock costs here and in Curator, counted in frames by a proxy before each side; `--nocapture` prints the table.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use testbed::proxy::{Proxy, Request};
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Election, Error, LockGuard, MultiLock, Mutex, RwLock, Semaphore, Session};

use crate::peer::{Handle, Language, Peer};
use crate::support::{fresh_path, hosts, soon, wait_nodes};
use crate::watched::{proxy, watch};

/// For how long answers are held back, so that whatever waits for one shows as a round trip of its own. Who is slow to send
/// two requests one behind the other shows more of them than there are, so what looks too much is measured once more.
const HOLDS: [Duration; 2] = [Duration::from_millis(150), Duration::from_secs(1)];

/// So many times as long as an answer takes is enough for all requests of an acquire before it is over.
const LIMIT: u32 = 14;

type Guard = Box<dyn LockGuard>;
/// Of ours. How long it is waited for: zero is a try.
type Acquire = fn(&Session, &str, Option<Duration>) -> Acquired;
type Acquired = BoxFuture<'static, Result<Option<Guard>, Error>>;

/// A class of Curator's, and what stands for it here.
struct Row {
    name: &'static str,
    theirs: &'static str,
    /// What the driver is told after the path.
    arguments: &'static str,
    dirs: &'static [&'static str],
    /// How many nodes there are when it is held.
    held: usize,
    /// How many there are when one more waits, of theirs or of ours.
    waiting: (usize, usize),
    /// Whether theirs can be tried. (A latch that is awaited for no time has not even begun.)
    tries: bool,
    ours: Acquire,
    /// What of ours keeps it out.
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

const LINE: Row = Row {
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
    ..LINE
};

const ROWS: [Row; 9] = [
    LINE,
    Row { name: "…ReadWriteLock.writeLock", theirs: "write", ours: writer, blocker: writer, ..LINE },
    Row { name: "…ReadWriteLock.readLock", theirs: "read", ours: reader, blocker: writer, ..LINE },
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
        ..LINE
    },
    Row { name: "LeaderLatch", theirs: "latch", tries: false, ours: leadership, blocker: leadership, ..LINE },
    Row { name: "LeaderSelector", theirs: "selector", tries: false, ..LINE },
];

/// Requests, writes among them, and round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    requests: usize,
    writes: usize,
    trips: usize,
}

impl Cost {
    /// What was sent when it is `quiet` again, and how many round trips the caller waited for until now.
    async fn of(proxy: &Proxy, quiet: impl Future<Output = ()>) -> Self {
        let waited = |request: &Request| request.answer.is_some_and(|answer| answer.forwarded.is_some());
        let trips = proxy.requests().iter().filter(|one| waited(one)).map(|one| one.round).max().unwrap_or(0);
        // Some of it may be under way still that nobody waits for.
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
    Ours(Session, Row, String, Option<Guard>),
    Theirs(Handle),
}

impl Side {
    /// Acquires, within a limit; tells whether it holds.
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

/// What the acquire and the release of a free lock cost, what a held one costs to try, to wait for in vain and to wait
/// for, all of one side, whose answers are held back.
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
    // The paths are made by the first.
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
    let limits = [("try in vain", Duration::ZERO), ("wait in vain", hold * LIMIT)];
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

/// Whether ours are as promised at this event: a cost of theirs, and of ours.
fn is_cheaper(event: &str, row: &Row, theirs: Cost, ours: Cost) -> bool {
    match event {
        "acquire" => ours.trips < theirs.trips && ours.writes <= theirs.writes,
        // Nobody waits for the end of their latch.
        "release" => ours.requests == 1 && theirs.requests == row.releases,
        // Before a waiter gives up its turn, it makes sure in a quorum that the turn was its own to the end.
        "wait" | "wait in vain" => ours.trips <= theirs.trips,
        _ => ours.trips < theirs.trips && ours.writes < theirs.writes,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_costs_more_than_curators() {
    let (our_proxy, their_proxy) = (proxy().await, proxy().await);
    // A session that has no need to renew its trust while answers are held back.
    let connect = async |hosts: &str| {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(60));
        Session::connect_with(connector, hosts).await.expect("connects")
    };
    let (session, blocker) = (connect(&our_proxy.hosts()).await, connect(&hosts()).await);
    let peer = Peer::start(Language::Java, &their_proxy.hosts()).await;
    println!("round trips / requests / writes       Curator          ours");
    for row in ROWS {
        let mut dear = Vec::new();
        for hold in HOLDS {
            let path = fresh_path();
            let mut theirs = Side::Theirs(peer.lock(row.theirs, &format!("{path}{}", row.arguments)).await);
            let theirs = costs(&mut theirs, (&their_proxy, hold), &blocker, &row, &path).await;
            let path = fresh_path();
            let mut ours = Side::Ours(session.clone(), Row { ..row }, path.clone(), None);
            let ours = costs(&mut ours, (&our_proxy, hold), &blocker, &row, &path).await;
            dear.clear();
            for ((event, theirs), (_, ours)) in theirs.into_iter().zip(ours) {
                println!("{:28} {event:13} {theirs:>12} {ours:>12}", row.name);
                if !is_cheaper(event, &row, theirs, ours) {
                    dear.push(format!("{event}: {ours:?}, and Curator {theirs:?}"));
                }
            }
            if dear.is_empty() {
                break;
            }
        }
        assert!(dear.is_empty(), "{}, {dear:?}", row.name);
    }
}
