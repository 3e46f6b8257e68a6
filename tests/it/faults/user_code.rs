//! Code of the user's that the library runs: wakers, `tracing` subscribers and `metrics` recorders that call it back, block, or panic.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata as Meaning, Recorder, SharedString, Unit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_default;
use tracing::{Event, Level, Metadata, Subscriber};
use zookeeper_recipes::zookeeper_client::{Acl, AuthId, Permission};
use zookeeper_recipes::{Election, HoldMonitor, HoldState, Loss, MultiLock, Session};

use crate::support::{PATIENCE, World, at_most, connect, hosts, soon};
use crate::warnings::{Warnings, have_several_subscribers};

/// What a subscriber and a recorder do each time that they are called.
trait Meddle: Send + Sync + 'static {
    /// With everything down to this level of this target.
    fn level(&self) -> Level {
        Level::TRACE
    }

    fn meddle(&self);
}

struct Meddler<M>(Arc<M>);

impl<M> Clone for Meddler<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: Meddle> Meddler<M> {
    fn meddle(&self) {
        self.0.meddle();
    }
}

impl<M: Meddle> Subscriber for Meddler<M> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_wanted = *metadata.level() <= self.0.level() && metadata.target().starts_with("zookeeper_recipes");
        if is_wanted && self.0.level() == Level::TRACE {
            self.meddle();
        }
        is_wanted
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.meddle();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.meddle();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.meddle();
    }

    fn enter(&self, _: &Id) {
        self.meddle();
    }

    fn exit(&self, _: &Id) {
        self.meddle();
    }

    fn try_close(&self, _: Id) -> bool {
        self.meddle();
        true
    }
}

impl<M: Meddle> Recorder for Meddler<M> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Meaning<'_>) -> Counter {
        self.meddle();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Meaning<'_>) -> Gauge {
        self.meddle();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Meaning<'_>) -> Histogram {
        self.meddle();
        Histogram::noop()
    }
}

/// Calls everything of the library that does not wait.
#[derive(Default)]
struct CallsBack {
    session: Mutex<Option<Session>>,
    monitor: Mutex<Option<HoldMonitor>>,
    calls: AtomicUsize,
    /// Another thread has it while it calls the library.
    shared: Mutex<()>,
}

impl CallsBack {
    fn watch(&self, session: Option<&Session>, monitor: Option<HoldMonitor>) {
        let session = std::mem::replace(&mut *self.session.lock().expect("no panic"), session.cloned());
        let monitor = std::mem::replace(&mut *self.monitor.lock().expect("no panic"), monitor);
        // Not under these mutexes: a span is closed with the last monitor.
        drop((session, monitor));
    }

    fn call(&self) {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(session) = session {
            let _ = (session.state(), session.id(), session.client().is_some());
        }
        if let Some(monitor) = monitor {
            let _ = (monitor.state(), monitor.valid_for(), monitor.fencing_token());
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// This thread has the subscriber's mutex. A span that it closes meanwhile calls the subscriber again.
    static HAS_SHARED: Cell<bool> = const { Cell::new(false) };
}

impl Meddle for CallsBack {
    fn meddle(&self) {
        if HAS_SHARED.replace(true) {
            return self.call();
        }
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        self.call();
        drop(shared);
        HAS_SHARED.set(false);
    }
}

/// Runs a test in a thread of its own, because a thread that waits for itself cannot time out.
fn in_a_thread(what: &str, test: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = ended.send(());
    });
    match end.recv_timeout(2 * PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: a call blocks for ever"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Takes away permissions for a lock's path.
async fn allow(world: &World, permissions: Permission) {
    let acls = [Acl::new(permissions, AuthId::anyone())];
    world.admin.set_acl(&world.path, &acls, None).await.expect("restricted");
}

/// Everything that logs or counts: grants, waiters, refused deletes and watches, a full session, loss, renewal, close.
async fn play(world: &World, calls: &CallsBack) {
    calls.watch(Some(&world.session), None);
    let mutex = world.mutex();
    for _ in 0..20 {
        let guard = soon("a lock", mutex.lock()).await.expect("held");
        calls.watch(Some(&world.session), Some(guard.monitor()));
        assert!(soon("an answer", mutex.try_lock()).await.expect("asked").is_none());
        let waiter = soon("a place", mutex.enqueue()).await.expect("queued");
        soon("the release", guard.release()).await.expect("released");
        drop(soon("the next", waiter).await.expect("held"));
    }
    world.wait_empty().await;
    // Neither deleted nor, where a guard asks for its end, watched.
    allow(world, Permission::CREATE | Permission::READ | Permission::ADMIN).await;
    soon("a refusal", soon("a lock", mutex.lock()).await.expect("held").release()).await.expect_err("refused");
    drop(soon("a lock", mutex.lock()).await.expect("held"));
    allow(world, Permission::ALL).await;
    let guard = soon("a lock", mutex.lock()).await.expect("held");
    calls.watch(Some(&world.session), Some(guard.monitor()));
    world.expire().await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    let guard = soon("a lock", mutex.lock()).await.expect("held");
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    fill(world).await;
    calls.watch(None, None);
    soon("the end", world.session.close()).await.expect("closed");
}

/// Fills the session with nodes, until it is refused another.
async fn fill(world: &World) {
    let path = format!("{}/{}", world.path, "x".repeat(15_000));
    let mutex = zookeeper_recipes::Semaphore::new(&world.session, &path, 1_000).expect("a semaphore");
    let mut held = Vec::new();
    while let Ok(permit) = soon("an answer", mutex.acquire()).await {
        held.push(permit);
    }
}

#[test]
fn recorder_that_calls_back_never_blocks() {
    in_a_thread("a recorder", || {
        runtime().block_on(async {
            let world = World::new().await;
            let meddler = Box::leak(Box::new(Meddler(Arc::<CallsBack>::default())));
            let _records = metrics::set_default_local_recorder(&*meddler);
            play(&world, &meddler.0).await;
            println!("called back {} times", meddler.0.calls.load(Ordering::Relaxed));
            assert!(meddler.0.calls.load(Ordering::Relaxed) > 100);
        });
    });
}

/// A thread has the subscriber's mutex and calls the library, while a thread that is in the library calls the subscriber.
#[test]
fn subscriber_whose_mutex_another_thread_has_never_blocks() {
    in_a_thread("a subscriber with a mutex", || {
        runtime().block_on(async {
            have_several_subscribers();
            let world = World::new().await;
            let meddler = Meddler(Arc::<CallsBack>::default());
            let calls = Arc::clone(&meddler.0);
            let (stop, stopped) = mpsc::channel::<()>();
            let other = std::thread::spawn(move || {
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    calls.meddle();
                }
            });
            let _listening = set_default(meddler.clone());
            play(&world, &meddler.0).await;
            drop(stop);
            other.join().expect("no panic");
        });
    });
}

/// Asks for the term of an election.
#[derive(Default)]
struct AsksForTheTerm(OnceLock<Election>, AtomicUsize);

impl Meddle for AsksForTheTerm {
    fn meddle(&self) {
        if let Some(election) = self.0.get() {
            let _ = election.current_term();
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn subscriber_that_asks_for_the_term_never_blocks() {
    in_a_thread("a subscriber", || {
        runtime().block_on(async {
            have_several_subscribers();
            let world = World::new().await;
            let meddler = Meddler(Arc::<AsksForTheTerm>::default());
            let _listening = set_default(meddler.clone());
            let election = Election::new(&world.session, &world.path).expect("an election");
            assert!(meddler.0.0.set(election.clone()).is_ok());
            for _ in 0..5 {
                soon("a term", election.campaign()).await.expect("leads").resign().await.expect("resigned");
            }
            assert!(meddler.0.1.load(Ordering::Relaxed) > 0);
        });
    });
}

/// Blocks until its gate is opened.
#[derive(Default)]
struct Blocks {
    is_open: Mutex<bool>,
    opened: Condvar,
    blocked: AtomicUsize,
}

impl Blocks {
    fn open(&self, is_open: bool) {
        *self.is_open.lock().expect("no panic") = is_open;
        self.opened.notify_all();
    }
}

impl Meddle for Blocks {
    fn level(&self) -> Level {
        Level::DEBUG
    }

    fn meddle(&self) {
        let is_open = self.is_open.lock().expect("no panic");
        self.blocked.fetch_add(1, Ordering::Relaxed);
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).expect("no panic"));
    }
}

/// A log collector stands still while the servers are cut off: losses are reported all the same, before the next grant.
#[test]
fn subscriber_that_blocks_delays_neither_a_loss_nor_a_look() {
    have_several_subscribers();
    let blocks = Meddler(Arc::<Blocks>::default());
    let (listens, gate) = (blocks.clone(), Arc::clone(&blocks.0));
    gate.open(true);
    let holders = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || std::mem::forget(set_default(listens.clone())))
        .build()
        .expect("a runtime");
    in_a_thread("a subscriber that blocks", move || {
        let (holds, proxy, path) = holders.block_on(async {
            let world = World::brief().await;
            let mut holds = Vec::new();
            for number in 0..8 {
                let path = format!("{}/{number}", world.path);
                let mutex = zookeeper_recipes::Mutex::new(&world.session, &path).expect("a mutex");
                holds.push(soon("a lock", mutex.lock()).await.expect("held"));
            }
            (holds, world.proxy, world.path)
        });
        let (monitors, lost): (Vec<_>, Vec<_>) = holds
            .into_iter()
            .map(|guard| {
                let monitor = guard.monitor();
                let lost = holders.spawn(async move {
                    guard.lost().await;
                    (Instant::now(), guard)
                });
                (monitor, lost)
            })
            .unzip();
        gate.open(false);
        proxy.black_hole();
        runtime().block_on(async {
            let next = connect(&hosts()).await;
            let mutexes = (0..8)
                .map(|number| zookeeper_recipes::Mutex::new(&next, &format!("{path}/{number}")).expect("a mutex"));
            let mutexes: Vec<_> = mutexes.collect();
            for (mutex, monitor) in mutexes.iter().zip(&monitors) {
                let guard = soon("the next grant", mutex.lock()).await.expect("held");
                let granted = Instant::now();
                assert!(matches!(monitor.state(), HoldState::Lost(_)), "at the next grant");
                assert!(
                    granted.elapsed() < at_most(Duration::from_secs(1)),
                    "a look takes {:?}",
                    granted.elapsed()
                );
                drop(guard);
            }
            let granted = Instant::now();
            for lost in lost {
                let (at, guard) = soon("a loss", lost).await.expect("no panic");
                assert!(at < granted, "a loss was reported {:?} after the last grant", at - granted);
                drop(guard);
            }
        });
        println!("{} calls were blocked", gate.blocked.load(Ordering::Relaxed));
        assert!(gate.blocked.load(Ordering::Relaxed) > 0);
        gate.open(true);
        drop(holders);
    });
}

/// It costs what it was to log, and nothing else.
#[tokio::test]
async fn subscriber_that_panics_costs_its_events_alone() {
    let world = World::new().await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    for text in ["session's task is woken", "lock is lost", "session is made"] {
        let panics = Warnings::that_panic_at(text).listen();
        world.expire().await;
        soon("a connection", world.session.states().wait_for(|state| state.is_connected())).await;
        drop(panics);
    }
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    soon("the next", mutex.lock()).await.expect("held").release().await.expect("released");
}

/// Panics whenever a number is recorded, once it is armed.
#[derive(Default)]
struct Panics(AtomicUsize);

impl Meddle for Panics {
    fn meddle(&self) {
        assert_eq!(self.0.load(Ordering::Relaxed), 0, "on purpose");
    }
}

#[tokio::test]
async fn recorder_that_panics_in_the_drop_of_a_guard_leaves_no_node() {
    let world = World::new().await;
    let meddler = Box::leak(Box::new(Meddler(Arc::<Panics>::default())));
    let records = metrics::set_default_local_recorder(&*meddler);
    let guard = world.mutex().lock().await.expect("held");
    meddler.0.0.store(1, Ordering::Relaxed);
    catch_unwind(AssertUnwindSafe(|| drop(guard))).expect_err("the recorder panics");
    drop(records);
    world.wait_empty().await;
}

/// Looks at the session from another thread each time that it is woken, and notes whether that took long.
struct Looks {
    session: Session,
    waker: Waker,
    is_late: Arc<AtomicBool>,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        let (done, looked) = mpsc::channel();
        let session = self.session.clone();
        std::thread::spawn(move || done.send(session.client().is_some()));
        let is_late = looked.recv_timeout(Duration::from_secs(5)).is_err();
        self.is_late.fetch_or(is_late, Ordering::Relaxed);
        self.waker.wake_by_ref();
    }
}

/// So many paths, of which none exists, are looked at in one burst.
#[tokio::test]
async fn waker_is_not_called_under_the_lock_of_the_session() {
    let world = World::new().await;
    let paths: Vec<_> = (0..40).map(|path| format!("{}/{path}", world.path)).collect();
    let lock = MultiLock::new(&world.session, &paths).expect("a lock");
    let is_late = Arc::<AtomicBool>::default();
    let mut call = pin!(lock.lock());
    let held = poll_fn(|cx| {
        let (session, waker, is_late) = (world.session.clone(), cx.waker().clone(), Arc::clone(&is_late));
        let looks = Waker::from(Arc::new(Looks { session, waker, is_late }));
        call.as_mut().poll(&mut Context::from_waker(&looks))
    });
    soon("the locks", held).await.expect("held").release().await.expect("released");
    assert!(!is_late.load(Ordering::Relaxed));
}
