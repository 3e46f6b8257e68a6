//! Lock paths that the server removes whenever nobody is there, under locks of all recipes that come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex as Shared};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::try_join_all;
use testbed::Server;
use testbed::history::{Acquire, History, Model};
use zookeeper_recipes::{DistributedLock, Mutex, Options, Session};

use crate::alone::{LONG, turn, unstuck, watcher};
use crate::recipes::{ELECTION, MULTI_LOCK, MUTEX, READER, Recipe, SEMAPHORE, SEVERAL_PERMITS, WRITER};
use crate::support::{connect_for, wait_children};

const LOAD: Duration = Duration::from_secs(60);
/// How often the server looks for empty containers.
const CHECK_INTERVAL_MS: &str = "50";
const SESSIONS: usize = 5;
/// Tasks at all paths.
const TASKS: usize = 50;
/// The longest pause between a task's release and its next acquire, in ms: so long that a path is deserted now and then.
const PAUSE: u64 = 2_000;

/// What is locked at one path.
struct Place {
    path: &'static str,
    lock: fn(&Session, &str, task: usize) -> Arc<dyn DistributedLock>,
    acquire: fn(&str, task: usize) -> Vec<Acquire>,
    /// Where the nodes are.
    dirs: &'static [&'static str],
    model: Model,
}

fn of(recipe: &Recipe, session: &Session, path: &str) -> Arc<dyn DistributedLock> {
    (recipe.lock)(session, path)
}

fn removing(session: &Session, path: &str) -> Arc<dyn DistributedLock> {
    let options = Options::new().with_path_removal(true);
    Arc::new(Mutex::with_options(session, path, options).expect("a mutex"))
}

fn exclusive(path: &str, _task: usize) -> Vec<Acquire> {
    vec![Acquire::exclusive(path.to_owned())]
}

const PLACES: [Place; 7] = [
    Place {
        path: "/idle/mutex",
        lock: |session, path, _| of(&MUTEX, session, path),
        acquire: exclusive,
        dirs: &[""],
        model: Model::FencedMutex,
    },
    Place {
        path: "/idle/rwlock",
        lock: |session, path, task| of(if task % 3 == 0 { &WRITER } else { &READER }, session, path),
        acquire: |path, task| match task % 3 {
            0 => exclusive(path, task),
            _ => vec![Acquire::shared(path.to_owned())],
        },
        dirs: &[""],
        model: Model::ReadWrite,
    },
    Place {
        path: "/idle/semaphore",
        lock: |session, path, _| of(&SEMAPHORE, session, path),
        acquire: exclusive,
        dirs: &["/locks", "/leases"],
        model: Model::FencedMutex,
    },
    Place {
        path: "/idle/permits",
        lock: |session, path, _| of(&SEVERAL_PERMITS, session, path),
        acquire: |path, _| vec![Acquire::permits(path.to_owned(), 3)],
        dirs: &["/locks", "/leases"],
        model: Model::Permits(4),
    },
    Place {
        path: "/idle/deep/down/multi",
        lock: |session, path, _| of(&MULTI_LOCK, session, path),
        acquire: |path, task| ["a", "b", "c"].map(|name| exclusive(&format!("{path}/{name}"), task)).concat(),
        dirs: &["/a", "/b", "/c"],
        model: Model::FencedMutex,
    },
    Place {
        path: "/election",
        lock: |session, path, _| of(&ELECTION, session, path),
        acquire: exclusive,
        dirs: &[""],
        model: Model::FencedMutex,
    },
    Place {
        path: "/idle/removed",
        lock: |session, path, _| removing(session, path),
        acquire: exclusive,
        dirs: &[""],
        model: Model::FencedMutex,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_that_vanish_when_idle_are_noticed_by_nobody() {
    let _turn = turn().await;
    let server = Server::builder().property("znode.container.checkIntervalMs", CHECK_INTERVAL_MS).start().await;
    let server = server.expect("a server");
    let admin = watcher(&server).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(connect_for(&server.hosts(), LONG).await);
    }
    let histories: Vec<_> = PLACES.iter().map(|_| History::new()).collect();
    let lives = Arc::new(Shared::new(BTreeMap::<_, BTreeSet<i64>>::new()));
    let until = Instant::now() + LOAD;
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let (place, history) = (&PLACES[task % PLACES.len()], &histories[task % PLACES.len()]);
        let process = history.process(format!("task {task}"));
        let lock = (place.lock)(&sessions[task % SESSIONS], place.path, task);
        let (admin, lives) = (admin.clone(), lives.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = Rng::with_seed(task as u64);
            while Instant::now() < until {
                let asked = (place.acquire)(place.path, task).into_iter();
                let asked: Vec<_> = asked.map(|acquire| process.acquire(acquire)).collect();
                let guard = lock.lock().await?;
                let token = guard.fencing_token().get();
                let held: Vec<_> = asked.into_iter().map(|asked| asked.ok(token)).collect();
                // While somebody holds, the path is there; each time that it was created again it has another czxid.
                let stat = admin.check_stat(place.path).await.expect("asked").expect("it is there");
                lives.lock().expect("no panic").entry(place.path).or_default().insert(stat.czxid);
                let releasing: Vec<_> = held.into_iter().map(|held| held.release()).collect();
                guard.release().await?;
                releasing.into_iter().for_each(|releasing| releasing.ok());
                a_while(random.u64(..PAUSE)).await;
            }
            Ok::<_, zookeeper_recipes::Error>(())
        }));
    }
    let done = unstuck("all are done", try_join_all(tasks)).await.expect("no panic");
    done.into_iter().for_each(|done| done.expect("no error escapes"));
    let lives = lives.lock().expect("no panic").clone();
    for (place, history) in PLACES.iter().zip(&histories) {
        for dir in place.dirs {
            wait_children(&admin, &format!("{}{dir}", place.path), 0).await;
        }
        let summary = history.summary();
        let vanished = lives[place.path].len() - 1;
        println!("{}: vanished {vanished} times; {} acquired", place.path, summary.acquired);
        assert!(vanished >= 10, "{} vanished only {vanished} times", place.path);
        history.judge(place.model).assert_clean();
    }
}

async fn a_while(millis: u64) {
    let _ = tokio::time::timeout(Duration::from_millis(millis), pending::<()>()).await;
}
