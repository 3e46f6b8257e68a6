//! Random workloads of fifty sessions while the servers' 32-bit counter crosses an end: exclusion, order, and one wake-up for
//! each deletion.
//!
//! `HISTORY_SEED=7` repeats a workload, as far as the scheduling of the machine lets it be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex as StdMutex};

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::frames::{Kind, Op};
use testbed::history::{Event, History, Mode, Model, Step};
use testbed::proxy::Proxy;
use zookeeper_recipes::zookeeper_client::Client as Admin;

use crate::alone::turn;
use crate::counter::{PATH, number, server};
use crate::support::{PATIENCE, connect, wait_children};
use crate::workload::{Client, PERMITS, Round, campaign, lock, lock_some, read_or_write, reenter, take_permits};

const SESSIONS: usize = 50;
/// How often each session holds.
const HOLDS: usize = 20;
/// How many numbers are left: enough for all kinds of them to be in the queue while the end is crossed.
const LEFT: i32 = 300;
/// The protocol's number for the deletion of a node.
const DELETED: i32 = 2;

macro_rules! crossings {
    ($($name:ident: $round:expr => $paths:expr, $next:expr, $models:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let history = cross(|client| Box::pin($round(client)), $paths, $next).await;
            let models: &[Model] = &$models;
            models.iter().for_each(|model| history.judge(*model).assert_clean());
            if !models.contains(&Model::Fifo) {
                grants(&history).judge(Model::FencedMutex).assert_clean();
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
    mutex_starts_again: lock => &[""], -LEFT, [Model::FencedMutex, Model::Fifo];
    rwlock_starts_again: read_or_write => &[""], -LEFT, [Model::ReadWrite, Model::Fifo];
}

/// Lets all sessions contend while the counters of these paths go over an end.
async fn cross(round: Round, paths: &[&str], next: i32) -> History {
    let _turn = turn().await;
    let seed = std::env::var("HISTORY_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    println!("HISTORY_SEED={seed}");
    let paths: Vec<_> = paths.iter().map(|path| format!("{PATH}{path}")).collect();
    let server = server(&paths, next).await;
    let (hosts, history, mut random) = (server.hosts(), History::new(), Rng::with_seed(seed));
    let admin = Admin::connect(&hosts).await.expect("connects");
    let seen: Arc<StdMutex<BTreeSet<i32>>> = Arc::default();
    let watches = paths.iter().map(|path| tokio::spawn(watch(admin.clone(), path.clone(), seen.clone())));
    let watches: Vec<_> = watches.collect();

    let proxy = Proxy::start(&hosts).await.expect("a proxy");
    let through = proxy.hosts();
    let sessions = join_all((0..SESSIONS).map(|_| connect(&through))).await;
    let tasks = (0..).zip(&sessions).map(|(index, session)| {
        let mut client = Client::new(session, PATH, &history, format!("session {index}"), random.fork());
        tokio::spawn(async move {
            while client.held < HOLDS {
                round(&mut client).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let done = tokio::time::timeout(5 * PATIENCE, join_all(tasks)).await.expect("all rounds end");
    for task in done {
        task.expect("no panic");
    }

    for path in &paths {
        wait_children(&admin, path, 0).await;
    }
    watches.iter().for_each(|watch| watch.abort());
    let seen = std::mem::take(&mut *seen.lock().expect("unpoisoned"));
    let last = usize::from(seen.contains(&i32::MAX));
    let negative = seen.range(..0).count();
    let other = seen.len() - negative - last;
    println!("numbers seen: {other} in the middle, {last} at the end, {negative} negative");
    assert!(other > 0, "the counter was not on the one side of its end");
    // Negative ones come where creates happen to meet in the server; `in_queue` makes them meet.
    assert!(last + negative > 0, "the counter was not on the other side of its end");
    let summary = history.summary();
    println!("{summary}");
    assert_one_was_woken(&proxy, summary.acquire_failed + summary.acquire_unknown);
    assert!(summary.acquired >= SESSIONS * HOLDS, "{} holds", summary.acquired);
    history
}

/// The deletion of a node wakes one waiter, unless it is a writer's, for which many readers may wait. A waiter that gives up
/// takes its watch back, but may be woken before.
fn assert_one_was_woken(proxy: &Proxy, gave_up: usize) {
    let mut wakes = wakes(proxy);
    wakes.retain(|path, _| !path.contains("__WRIT__"));
    let all: usize = wakes.values().sum();
    let twice = all - wakes.len();
    println!(
        "{} nodes woke a waiter as they were deleted, and {twice} another beside; {gave_up} gave up",
        wakes.len()
    );
    assert!(all > 0, "nobody waited");
    assert!(twice <= gave_up, "{twice} were woken without need: {wakes:?}");
}

/// How often others than its owner were notified of a node's deletion.
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
        // A holder watches its own nodes.
        if let Kind::Notification { event: DELETED, path, .. } = frame.kind
            && owners[&guid(&path).expect("a contender")] != frame.connection
        {
            *wakes.entry(path).or_default() += 1;
        }
    }
    wakes
}

/// Collects the numbers that are seen under a path.
async fn watch(admin: Admin, path: String, seen: Arc<StdMutex<BTreeSet<i32>>>) {
    loop {
        let (names, watcher) = admin.list_and_watch_children(&path).await.expect("it is there");
        seen.lock().expect("unpoisoned").extend(names.iter().map(|name| number(name)));
        watcher.changed().await;
    }
}

/// The grants alone, each an instant: they come in the order of their tokens, however many hold at a time.
fn grants(history: &History) -> History {
    let mut grants = Vec::new();
    for event in history.events() {
        let with = |step| Event::new(event.at, event.process.clone(), event.object.clone(), event.attempt, step);
        match &event.step {
            Step::Acquire { .. } => grants.push(with(Step::Acquire { mode: Mode::Exclusive, owner: None })),
            // A hold that was lost at an unknown time may have ended at once.
            Step::Acquired { .. } => {
                grants.extend([event.step.clone(), Step::Release, Step::ReleaseLost].map(with));
            }
            _ => {}
        }
    }
    History::from_events(grants)
}
