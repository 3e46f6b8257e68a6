//! Random workloads over several sessions, in calm and in storm, recorded and judged by a model of each recipe.
//!
//! `HISTORY_SEED=7` repeats a workload, as far as the scheduling of the machine lets it be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::history::{History, Model};
use testbed::next_look;
use testbed::proxy::Proxy;
use tracing::instrument::WithSubscriber;

use crate::support::{BRIEF, TIMEOUT, World, connect_for, hosts, pass, soon, wait_children};
use crate::ways::Ways;
use crate::workload::{
    Client, PERMITS, Round, campaign, lock, lock_again, lock_some, read_and_write_some, read_or_write, reenter,
    take_permits,
};

const SESSIONS: usize = 4;
const TASKS: usize = 3;
const ROUNDS: usize = 25;

/// The proxy of a session, and how many holds the session has.
type Rope = (Proxy, Arc<AtomicUsize>);

#[derive(Clone, Copy, PartialEq)]
enum Weather {
    Calm,
    Storm,
}

macro_rules! workloads {
    ($($name:ident: $round:expr => $dirs:expr, $model:expr, $calm:expr;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn in_calm() {
                run(Weather::Calm, |client| Box::pin($round(client)), $dirs, &[$model, $calm]).await;
            }

            #[tokio::test]
            async fn in_storm() {
                run(Weather::Storm, |client| Box::pin($round(client)), $dirs, &[$model]).await;
            }
        }
    )*};
}

workloads! {
    mutex: lock => &[""], Model::FencedMutex, Model::Fifo;
    reentrant_mutex: reenter => &[""], Model::ReentrantMutex, Model::Fifo;
    rwlock: read_or_write => &[""], Model::ReadWrite, Model::Fifo;
    semaphore: take_permits => &["/locks", "/leases"], Model::Permits(PERMITS), Model::Permits(PERMITS);
    multi_lock: lock_some => &["/a", "/b", "/c", "/d"], Model::FencedMutex, Model::Mutex;
    mixed_multi_lock: read_and_write_some => &["/a", "/b", "/c", "/d"], Model::ReadWrite, Model::ReadWrite;
    election: campaign => &[""], Model::FencedMutex, Model::Fifo;
}

/// Each way by which a lock is granted is taken.
mod mutex_again {
    use super::*;

    const DIRS: [&str; 6] = ["/often", "/now-and-then", "/0", "/1", "/2", "/3"];

    #[tokio::test]
    async fn in_calm() {
        let models = [Model::FencedMutex, Model::Fifo];
        run(Weather::Calm, |client| Box::pin(lock_again(client)), &DIRS, &models).await.assert_all_taken();
    }

    #[tokio::test]
    async fn in_storm() {
        let models = [Model::FencedMutex];
        run(Weather::Storm, |client| Box::pin(lock_again(client)), &DIRS, &models).await.assert_all_taken();
    }
}

/// Runs a workload, judges it, and returns the ways by which locks were granted.
async fn run(weather: Weather, round: Round, dirs: &[&str], models: &[Model]) -> Ways {
    let seed = std::env::var("HISTORY_SEED").map_or(1, |seed| seed.parse().expect("a seed"));
    println!("HISTORY_SEED={seed}");
    let world = World::new().await;
    let (history, mut random) = (History::new(), Rng::with_seed(seed));
    let ways = Ways::new();
    let logged = ways.dispatch();
    let (mut tasks, mut proxies) = (Vec::new(), Vec::new());
    // In a storm some of the sessions end.
    let timeout = if weather == Weather::Storm { BRIEF } else { TIMEOUT };
    for session in 0..SESSIONS {
        let proxy = Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy");
        let connected = connect_for(&proxy.hosts(), timeout).await;
        let holding = Arc::<AtomicUsize>::default();
        proxies.push((proxy, holding.clone()));
        for task in 0..TASKS {
            let name = format!("session {session}, task {task}");
            let client = Client::new(&connected, &world.path, &history, name, random.fork());
            let mut client = client.with_home(session.to_string()).with_holds_counted_in(&holding);
            let rounds = async move {
                for _ in 0..ROUNDS {
                    round(&mut client).await;
                }
            };
            tasks.push(tokio::spawn(rounds.with_subscriber(logged.clone())));
        }
    }
    let storm = async {
        if weather == Weather::Storm {
            let until = Instant::now() + BRIEF * 2;
            let (steady, lonely) = proxies.split_at(SESSIONS - 2);
            let (one, two) = (isolate(&lonely[0], random.fork()), isolate(&lonely[1], random.fork()));
            tokio::join!(rattle(steady, until, random.fork()), one, two);
        }
    };
    let (done, ()) = soon("all rounds", async { tokio::join!(join_all(tasks), storm) }).await;
    done.into_iter().for_each(|task| task.expect("no panic"));
    for dir in dirs {
        wait_children(&world.admin, &format!("{}{dir}", world.path), 0).await;
    }
    let summary = history.summary();
    println!("{summary}\ngranted by: {}", ways.summary());
    assert!(summary.acquired > ROUNDS, "there is something to judge");
    for model in models {
        history.judge(*model).assert_clean();
    }
    ways
}

/// Cuts connections now and then.
async fn rattle(proxies: &[Rope], until: Instant, mut random: Rng) {
    while Instant::now() < until {
        a_while(random.u64(20..300)).await;
        proxies[random.usize(..proxies.len())].0.cut_now();
    }
}

/// Keeps a session that holds from the servers until they have given it up.
async fn isolate((proxy, holding): &Rope, mut random: Rng) {
    a_while(random.u64(100..600)).await;
    let holds = async {
        while holding.load(Ordering::SeqCst) == 0 {
            next_look().await;
        }
    };
    // It may have done all its rounds.
    let _ = tokio::time::timeout(BRIEF, holds).await;
    proxy.refuse();
    proxy.cut_now();
    pass(BRIEF * 3 / 2).await;
    proxy.heal();
}

async fn a_while(millis: u64) {
    pass(Duration::from_millis(millis)).await;
}
