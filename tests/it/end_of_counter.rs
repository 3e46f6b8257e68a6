//! The end of the servers' 32-bit counter, where numbers stick, jump between both ends, and begin anew.
//!
//! It takes a server weeks to get there, so these are started with counters that are almost at their end.
//! `HISTORY_SEED=7` repeats a workload, as far as the scheduling of the machine lets it be repeated.

mod crowd;
mod in_line;
mod same_name;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::Server;
use testbed::frames::{Kind, Op};
use testbed::history::{Event, History, Mode, Model, Step};
use testbed::proxy::Proxy;
use tokio::sync::Mutex as Turn;
use zookeeper_recipes::zookeeper_client::Client as Admin;
use zookeeper_recipes::{Error, HoldState, Mutex, RwLock};

use crate::histories::{Client, PERMITS, Round, campaign, lock, lock_some, read_or_write, reenter, take_permits};
use crate::support::{PATIENCE, World, children, connect_for, soon, wait_children};

const PATH: &str = "/end/lock";
const SESSIONS: usize = 50;
/// How often each session holds.
const HOLDS: usize = 20;
/// How many numbers are left: enough for all kinds of them to stand in line while the end is crossed.
const LEFT: i32 = 300;
/// What the protocol calls it when a node is gone.
const DELETED: i32 = 2;
/// Nothing here is about sessions that end.
const LONG: Duration = Duration::from_secs(30);

/// A server whose next number is `next` in each of these lines.
async fn server(lines: &[String], next: i32) -> Server {
    let builder = lines.iter().fold(Server::builder(), |builder, line| builder.counter(line, next));
    builder.start().await.expect("a server")
}

fn number(name: &str) -> i32 {
    let separators = ["-lock-", "-latch-", "-lease-", "__READ__", "__WRIT__"];
    let number = separators.iter().find_map(|separator| name.rsplit_once(separator)).expect("a contender").1;
    number.parse().expect("a number")
}

macro_rules! crossings {
    ($($name:ident: $round:expr => $lines:expr, $next:expr, $models:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let history = cross(|client| Box::pin($round(client)), $lines, $next).await;
            let models: &[Model] = &$models;
            models.iter().for_each(|model| history.judge(*model).assert_clean());
            if !models.contains(&Model::Fifo) {
                admissions(&history).judge(Model::FencedMutex).assert_clean();
            }
        }
    )*};
}

crossings! {
    mutex_goes_on: lock => &[""], i32::MAX - LEFT, [Model::FencedMutex, Model::Fifo];
    reentrant_mutex_goes_on: reenter => &[""], i32::MAX - LEFT, [Model::ReentrantMutex, Model::Fifo];
    rwlock_goes_on: read_or_write => &[""], i32::MAX - LEFT, [Model::ReadWrite, Model::Fifo];
    semaphore_goes_on: take_permits => &["/locks", "/leases"], i32::MAX - LEFT, [Model::Permits(PERMITS)];
    election_goes_on: campaign => &[""], i32::MAX - LEFT, [Model::FencedMutex, Model::Fifo];
    multi_lock_goes_on: lock_some => &["/a", "/b", "/c", "/d"], i32::MAX - LEFT, [Model::FencedMutex];
    mutex_begins_anew: lock => &[""], -LEFT, [Model::FencedMutex, Model::Fifo];
    rwlock_begins_anew: read_or_write => &[""], -LEFT, [Model::ReadWrite, Model::Fifo];
}

/// One storm at a time: the tests beside it need the machine, too.
static TURN: Turn<()> = Turn::const_new(());

/// Lets all sessions contend while the counters of these lines go over an end.
async fn cross(round: Round, lines: &[&str], next: i32) -> History {
    let _turn = TURN.lock().await;
    let seed = std::env::var("HISTORY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("HISTORY_SEED={seed}");
    let lines: Vec<_> = lines.iter().map(|line| format!("{PATH}{line}")).collect();
    let server = server(&lines, next).await;
    let (hosts, history, mut random) = (server.hosts(), History::new(), Rng::with_seed(seed));
    let admin = Admin::connect(&hosts).await.expect("connects");
    let seen: Arc<StdMutex<BTreeSet<i32>>> = Arc::default();
    let watches = lines.iter().map(|line| tokio::spawn(watch(admin.clone(), line.clone(), seen.clone())));
    let watches: Vec<_> = watches.collect();

    let proxy = Proxy::start(&hosts).await.expect("a proxy");
    let through = proxy.hosts();
    let sessions = join_all((0..SESSIONS).map(|_| connect_for(&through, LONG))).await;
    let tasks = (0..).zip(&sessions).map(|(index, session)| {
        let mut client = Client::new(session, PATH, &history, format!("session {index}"), random.fork());
        tokio::spawn(async move {
            while client.held < HOLDS {
                round(&mut client).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let done = tokio::time::timeout(5 * PATIENCE, join_all(tasks)).await.expect("somebody waits in vain");
    for task in done {
        task.expect("no panic");
    }

    for line in &lines {
        wait_children(&admin, line, 0).await;
    }
    watches.iter().for_each(|watch| watch.abort());
    let seen = std::mem::take(&mut *seen.lock().expect("unpoisoned"));
    let last = usize::from(seen.contains(&i32::MAX));
    let negative = seen.range(..0).count();
    let other = seen.len() - negative - last;
    println!("numbers seen: {other} in the middle, {last} at the end, {negative} negative");
    assert!(other > 0, "the counter was not on the one side of its end");
    // Negative ones come where creates happen to meet in the server; `in_line` sees to it that they do.
    assert!(last + negative > 0, "the counter was not on the other side of its end");
    let summary = history.summary();
    println!("{summary}");
    assert_one_was_woken(&proxy, summary.acquire_failed + summary.acquire_unknown);
    assert!(summary.acquired >= SESSIONS * HOLDS, "{} holds", summary.acquired);
    history
}

/// The end of a node wakes one of the others, unless it is a writer's, for which many readers may wait. Who gives up takes
/// its watch back, but may be told before.
fn assert_one_was_woken(proxy: &Proxy, gave_up: usize) {
    let mut wakes = wakes(proxy);
    wakes.retain(|path, _| !path.contains("__WRIT__"));
    let told: usize = wakes.values().sum();
    let twice = told - wakes.len();
    println!("{} nodes woke somebody as they went, and {twice} others beside; {gave_up} gave up", wakes.len());
    assert!(told > 0, "nobody waited");
    assert!(twice <= gave_up, "{twice} were woken in vain: {wakes:?}");
}

/// How often others than its owner were told that a node is gone.
fn wakes(proxy: &Proxy) -> BTreeMap<String, usize> {
    let guid = |path: &str| path.split_once("/_c_").and_then(|(_, name)| Some(name.get(..36)?.to_owned()));
    let mut owners = BTreeMap::new();
    for request in proxy.requests() {
        let parts = request.parts.iter().map(|(op, path)| (*op, path));
        let created =
            parts.chain([(request.op, &request.path)]).filter(|(op, _)| matches!(op, Op::Create | Op::Create2));
        owners.extend(created.filter_map(|(_, path)| Some((guid(path)?, request.connection))));
    }
    let mut wakes = BTreeMap::new();
    for frame in proxy.uncounted() {
        // Who holds watches its own nodes.
        if let Kind::Notification { event: DELETED, path, .. } = frame.kind
            && owners[&guid(&path).expect("a contender")] != frame.connection
        {
            *wakes.entry(path).or_default() += 1;
        }
    }
    wakes
}

/// Keeps the numbers that are seen in a line.
async fn watch(admin: Admin, line: String, seen: Arc<StdMutex<BTreeSet<i32>>>) {
    loop {
        let (names, watcher) = admin.list_and_watch_children(&line).await.expect("a line");
        seen.lock().expect("unpoisoned").extend(names.iter().map(|name| number(name)));
        watcher.changed().await;
    }
}

/// The admissions alone, each an instant: they come in the order of their tokens, however many hold at a time.
fn admissions(history: &History) -> History {
    let mut admissions = Vec::new();
    for event in history.events() {
        let with = |step| Event::new(event.at, event.process.clone(), event.object.clone(), event.attempt, step);
        match &event.step {
            Step::Acquire { .. } => admissions.push(with(Step::Acquire { mode: Mode::Exclusive, owner: None })),
            // What was lost by an unknown time may have ended at once.
            Step::Acquired { .. } => {
                admissions.extend([event.step.clone(), Step::Release, Step::ReleaseLost].map(with));
            }
            _ => {}
        }
    }
    History::from_events(admissions)
}

#[tokio::test]
async fn contenders_are_listed_in_the_order_of_their_creation() {
    let server = server(&[PATH.to_owned()], i32::MAX - 2).await;
    let hosts = server.hosts();
    let sessions = join_all((0..10).map(|_| connect_for(&hosts, LONG))).await;
    let mutexes = sessions.iter().map(|session| Mutex::new(session, PATH).expect("a mutex"));
    let places = join_all(mutexes.map(|mutex| async move { mutex.enqueue().await })).await;
    let places: Vec<_> = places.into_iter().map(|place| place.expect("a place")).collect();
    let contenders = Mutex::new(&sessions[0], PATH).expect("a mutex").contenders().await.expect("listed");
    let tokens: Vec<_> = contenders.iter().map(|contender| contender.token()).collect();
    assert!(tokens.len() == places.len() && tokens.is_sorted(), "{contenders:?}");
    assert!(contenders.iter().any(|contender| contender.sequence() == i32::MAX - 2), "{contenders:?}");
    assert!(contenders.iter().any(|contender| contender.sequence() == i32::MAX), "{contenders:?}");
}

#[tokio::test]
async fn downgrade_is_refused_at_the_end_and_the_write_guard_given_back() {
    let server = server(&[PATH.to_owned()], i32::MAX - 1).await;
    let world = World::at(&server.hosts(), LONG).await;
    let lock = RwLock::new(&world.session, PATH).expect("a lock");
    let other = RwLock::new(&world.other().await, PATH).expect("a lock");
    // The last number that has a place of its own.
    let reading = lock.write().await.expect("held").downgrade().await.expect("a reader");
    reading.release().await.expect("released");

    let writing = lock.write().await.expect("held");
    let waiting = other.enqueue_write().await.expect("a place");
    let before = children(&world.admin, PATH).await;
    assert!(before.iter().all(|name| number(name) == i32::MAX || number(name) < 0), "{before:?}");
    let (token, nodes) = (writing.fencing_token(), writing.nodes().to_vec());
    world.proxy.reset();
    let refused = writing.downgrade().await.expect_err("no place for a reader");
    assert!(matches!(refused.source, Error::InvalidInput { .. }), "{:?}", refused.source);
    assert!(world.proxy.requests().iter().all(|request| !request.parts.iter().any(|(op, _)| *op != Op::Check)));

    let writing = refused.guard;
    assert_eq!((writing.state(), writing.fencing_token()), (HoldState::Held, token));
    assert_eq!((writing.nodes(), children(&world.admin, PATH).await), (&*nodes, before));
    assert!(other.try_read().await.expect("asked").is_none(), "a writer holds");
    writing.release().await.expect("released");
    soon("the next writer", waiting).await.expect("held").release().await.expect("released");
    wait_children(&world.admin, PATH, 0).await;
}
