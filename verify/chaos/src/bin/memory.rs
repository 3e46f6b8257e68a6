//! Cuts the connections of sessions while threads look at their states, and closes, renews and drops the sessions meanwhile.
//!
//! It judges nothing itself. AddressSanitizer reports memory that is used after its end, and ends the process:
//!
//! ```console
//! $ export RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_stack_use_after_return=1:detect_leaks=0
//! $ cargo +nightly run -p chaos --bin memory --target x86_64-unknown-linux-gnu --target-dir target/memory -- 120
//! ```
//!
//! The second argument is the seed of the random choices, 1 by default. Leaks are not looked for: a wait for a state of the client
//! is leaked if its runtime ends before it does.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::{Error, HoldMonitor, Mutex, Session, SessionState};

/// Runtimes at once. One has a thread, the others have two.
const RUNTIMES: usize = 3;
/// Sessions of each runtime at once.
const SESSIONS: usize = 3;
/// Threads that look at the states of one session.
const LOOKERS: usize = 2;
/// The shortest that the servers grant, so that no end of a session takes long.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a runtime lasts.
const LIFE: Duration = Duration::from_secs(3);

static CUTS: AtomicU64 = AtomicU64::new(0);
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
static LOOKS: AtomicU64 = AtomicU64::new(0);
static LIVES: AtomicU64 = AtomicU64::new(0);
static ENDED_RUNTIMES: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<(), Error> {
    let argument = |at| std::env::args().nth(at).and_then(|argument| argument.parse().ok());
    let (seconds, mut random) = (argument(1).unwrap_or(10), Rng::with_seed(argument(2).unwrap_or(1)));
    let until = Instant::now() + Duration::from_secs(seconds);
    let servers = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let local = servers.block_on(Session::local())?;
    thread::scope(|scope| {
        for which in 0..RUNTIMES {
            let (local, mut random) = (&local, random.fork());
            scope.spawn(move || {
                while Instant::now() < until {
                    let mut builder =
                        if which == 0 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
                    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
                    runtime.block_on(all_lives(local, until.min(Instant::now() + LIFE), &mut random));
                    // The tasks are dropped wherever they are.
                    drop(runtime);
                    ENDED_RUNTIMES.fetch_add(1, Relaxed);
                }
            });
        }
    });
    println!(
        "{CUTS:?} cuts, {CONNECTIONS:?} reconnects, {LOOKS:?} looks, {LIVES:?} sessions, {ENDED_RUNTIMES:?} runtimes"
    );
    Ok(())
}

async fn all_lives(local: &LocalSession, until: Instant, random: &mut Rng) {
    let one = |mut random: Rng| async move {
        while Instant::now() < until {
            let another = local.another_with(|servers| servers.with_session_timeout(TIMEOUT));
            match timeout(TIMEOUT * 2, another).await {
                Ok(Ok(session)) => live(session, until, random.fork()).await,
                other => eprintln!("no session: {other:?}"),
            }
        }
    };
    let mut lives: Vec<_> = (0..SESSIONS).map(|_| Box::pin(one(random.fork()))).collect();
    poll_fn(|cx| {
        lives.retain_mut(|life| life.as_mut().poll(cx).is_pending());
        if lives.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A session from its first lock to one of the ends that it can have.
async fn live(session: LocalSession, until: Instant, mut random: Rng) {
    LIVES.fetch_add(1, Relaxed);
    let Ok(mutex) = Mutex::new(&session, &format!("/memory/{}", random.u8(..4))) else { return };
    let guard = timeout(TIMEOUT / 4, mutex.lock()).await.ok().and_then(Result::ok);
    // A second call waits.
    let mut waits = Box::pin(mutex.lock());
    let _ = timeout(Duration::from_millis(5), &mut waits).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let monitor = guard.as_ref().map(|guard| guard.monitor());
    let lookers: Vec<_> = (0..LOOKERS)
        .map(|_| {
            let (session, monitor, is_over) = (session.clone(), monitor.clone(), Arc::clone(&is_over));
            thread::spawn(move || look(&session, monitor.as_ref(), &is_over))
        })
        .collect();
    for _ in 0..random.u32(1..60) {
        if Instant::now() >= until {
            break;
        }
        session.disconnect();
        CUTS.fetch_add(1, Relaxed);
        sleep(Duration::from_millis(random.u64(..3))).await;
        session.reconnect();
        let connected = async { session.states().wait_for(SessionState::is_connected).await };
        if matches!(timeout(Duration::from_millis(random.u64(..300)), connected).await, Ok(Some(_))) {
            CONNECTIONS.fetch_add(1, Relaxed);
        }
    }
    match random.u8(..6) {
        0 => drop(timeout(TIMEOUT * 2, session.close()).await),
        1 => {
            session.expire();
            sleep(Duration::from_millis(random.u64(..50))).await;
        }
        2 => {
            session.disconnect();
            drop(guard);
        }
        3 => drop(timeout(Duration::from_millis(1), session.close()).await),
        4 => drop((waits, session)),
        _ => {}
    }
    is_over.store(true, Relaxed);
    for looker in lookers {
        looker.join().expect("a look does not panic");
    }
}

fn look(session: &LocalSession, monitor: Option<&HoldMonitor>, is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        for _ in 0..20 {
            let _ = session.state();
            let _ = monitor.map(HoldMonitor::state);
            LOOKS.fetch_add(2, Relaxed);
        }
        thread::yield_now();
    }
}
