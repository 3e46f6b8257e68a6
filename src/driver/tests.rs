//! Tests of what callers cannot cause or see: panics, answers over an earlier connection, watches, timers, and how
//! often the session's state is locked.

use std::future::{poll_fn, ready};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::time::timeout;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zookeeper_client::SessionState;
use zookeeper_simulation::Server;

use crate::clock::now;
use crate::driver::core::Core;
use crate::driver::entry::{Next, Watching};
use crate::locked::locked;
use crate::machine::{Acquisition, Position, SESSION, Watch, WatchState};
use crate::testing::LocalSession;
use crate::{Error, HoldState, Loss, Mutex, RwLock, Session};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn panic_under_the_lock_ends_the_session() {
    let session = Session::local().await.expect("a session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.map(drop) }
    });
    let other = session.another().await.expect("another session");
    let core = Arc::clone(session.core());
    let panics = std::thread::spawn(move || {
        let _state = core.lock();
        panic!("on purpose");
    });
    panics.join().expect_err("it panics");
    assert_eq!(guard.state(), HoldState::Lost(Loss::Expired));
    let is_over = |error: &Error| matches!(error, Error::SessionEnded { reason } if reason.contains("panic"));
    let refused =
        timeout(SOON, waiter).await.expect("an answer").expect("no panic").expect_err("the session is over");
    assert!(is_over(&refused), "{refused:?}");
    let refused = timeout(SOON, mutex.lock()).await.expect("an answer").expect_err("the session is over");
    assert!(is_over(&refused), "{refused:?}");
    let released = timeout(SOON, guard.release()).await.expect("an answer");
    assert!(matches!(released, Err(Error::Lost(Loss::Expired))), "{released:?}");
    // The nodes go with the session.
    let next = Mutex::new(&other, "/locks/report").expect("a mutex");
    drop(timeout(SOON, next.lock()).await.expect("in time").expect("held"));
}

/// Whether the machine of a session has handled an event with these words.
fn has_handled(core: &Core, words: &str) -> bool {
    locked(&core.events).iter().any(|event| event.contains(words))
}

/// The client reports the end of its session to watches and to our session, one after the other. Here the watch comes first.
#[test]
fn event_of_a_watch_that_went_with_its_session_is_dropped() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Some of the threads wait for the session's lock.
        .worker_threads(8)
        .enable_all()
        .build()
        .expect("a runtime");
    let test = async move {
        let server = Server::start().expect("a port");
        let session = Session::connect(&server.address()).await.expect("a session");
        let guard = Mutex::new(&session, "/locks/report").expect("a mutex").lock().await.expect("held");
        let (client, id) = (session.client().expect("a client"), session.id().0);
        let fires = poll_fn(move |_| {
            // The session does not know of the end yet, because its state is locked during this poll.
            server.expire(id);
            let began = Instant::now();
            while client.state() != SessionState::Expired {
                assert!(began.elapsed() < SOON, "it does not expire");
                std::thread::yield_now();
            }
            Poll::Ready(false)
        });
        {
            let mut state = session.core().lock();
            let op = *state.entries.keys().find(|op| **op != SESSION).expect("an acquisition");
            let (path, name) = state.machine.op(op).expect("known").nodes()[0];
            let watch = Watch::Own(op, path, name);
            let entry = state.entries.get_mut(&op).expect("an entry");
            entry.watches.push(Watching { watch, fires: fires.boxed(), _reservation: None });
            state.deferred.unread.push_back(op);
        }
        while guard.state() != HoldState::Lost(Loss::Expired) {
            tokio::task::yield_now().await;
        }
        drop(guard);
        let has = |words: &str| has_handled(session.core(), words);
        while !has("Abandon") {
            tokio::task::yield_now().await;
        }
        assert!(has("Expired") && !has("Fired"), "{:?}", session.core().events);
    };
    runtime.block_on(async { timeout(SOON, runtime.spawn(test)).await }).expect("in time").expect("no panic");
}

/// The test raises the state's `epoch`, as if the connection had been lost and restored between a request and its answer.
#[tokio::test]
async fn grant_over_an_earlier_connection_is_confirmed() {
    let session = Session::local().await.expect("a session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    for reconnects in [0, 0, 1] {
        let mut call = mutex.lock().boxed();
        assert!((&mut call).now_or_never().is_none(), "the create is sent");
        session.core().lock().epoch += reconnects;
        timeout(SOON, call).await.expect("in time").expect("held").release().await.expect("released");
        let is_confirmed = has_handled(session.core(), "ask: Confirm");
        assert_eq!(is_confirmed, reconnects > 0, "{:?}", session.core().events);
    }
}

/// A request finds that the runtime is gone, and then the runtime drops the session's task.
#[test]
fn close_after_the_runtime_is_gone_does_not_say_that_all_is_released() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let gone = runtime();
    let session = gone.block_on(Session::local()).expect("a session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let guard = gone.block_on(mutex.lock()).expect("held");
    session.core().found_runtime_gone();
    drop(gone);
    assert_eq!(guard.state(), HoldState::Lost(Loss::Expired));
    let closed = runtime().block_on(session.close());
    assert!(matches!(closed, Err(Error::Unavailable { .. })), "{closed:?}");
}

/// Panics where the span of a hold begins.
struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "lock.hold"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("on purpose");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn lock_whose_hold_is_not_made_for_a_panic_is_released() {
    let session = Session::local().await.expect("a session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    // With one subscriber, `tracing` asks only the default of the thread that comes first, which may be another test's.
    let _others = [(); 2].map(|()| tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new()));
    let panics = tracing::subscriber::set_default(Panics);
    AssertUnwindSafe(mutex.lock()).catch_unwind().await.expect_err("it panics");
    drop(panics);
    drop(timeout(SOON, mutex.lock()).await.expect("released").expect("held"));
}

/// The watch on the own node fires after its first poll, and before the poll of the other watch.
#[tokio::test]
async fn event_of_the_own_node_is_read_first() {
    let session = Session::local().await.expect("a session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let _guard = mutex.lock().await.expect("held");
    let mut state = session.core().lock();
    let op = *state.entries.keys().find(|op| **op != SESSION).expect("an acquisition");
    let (path, name) = state.machine.op(op).expect("known").nodes()[0];
    let entry = state.entries.get_mut(&op).expect("an entry");
    entry.watches.clear();
    let mut polls = 0;
    let own = poll_fn(move |_| {
        polls += 1;
        if polls == 1 { Poll::Pending } else { Poll::Ready(true) }
    });
    for (watch, fires) in
        [(Watch::Own(op, path, name), own.boxed()), (Watch::Predecessor(op, path, name), ready(true).boxed())]
    {
        entry.watches.push(Watching { watch, fires, _reservation: None });
    }
    let mut read = || match entry.next() {
        Some(Next::Fired(watch, true)) => watch,
        _ => panic!("both have fired"),
    };
    assert_eq!([read(), read()], [Watch::Own(op, path, name), Watch::Predecessor(op, path, name)]);
}

/// Connects two sessions to the same servers, with a timeout so long that no timer fires.
async fn patient_sessions() -> [LocalSession; 2] {
    let local = Session::local().await.expect("a session");
    let patient = || local.another_with(|servers| servers.with_session_timeout(Duration::from_secs(60)));
    [patient().await.expect("a session"), patient().await.expect("a session")]
}

/// Returns the number of watches of a session whose events have not been read.
fn watches(session: &Session) -> usize {
    session.core().lock().entries.values().map(|entry| entry.watches.len()).sum()
}

#[tokio::test]
async fn waiter_that_leaves_removes_its_watches() {
    let [session, other] = patient_sessions().await;
    let holder = Mutex::new(&other, "/locks/report").expect("a mutex");
    let _guard = holder.lock().await.expect("held");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let mut waiting = mutex.lock().boxed();
    let has_watches = async {
        while watches(&session) < 2 {
            assert!((&mut waiting).now_or_never().is_none(), "it is held");
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, has_watches).await.expect("watches on the predecessor and on its own node");
    drop(waiting);
    // The own node's watch fires when the node is deleted.
    assert_eq!(watches(&session), 1);
}

/// The session has no room for the watch on the predecessor.
#[tokio::test]
async fn request_that_cannot_be_sent_is_answered_at_once() {
    let [session, other] = patient_sessions().await;
    let lock = |session| RwLock::new(session, "/locks/report").expect("a lock");
    let _guard = lock(&other).write().await.expect("held");
    let _full = session.core().lock().budget.path_watch(200 * 1024);
    let readers = lock(&session);
    let mut caller = readers.read().boxed();
    assert!((&mut caller).now_or_never().is_none(), "it is held");
    let is_unwatched = || {
        let state = session.core().lock();
        let op = state.entries.keys().find(|op| **op != SESSION).copied().expect("an acquisition");
        let queue = state.machine.op(op).and_then(Acquisition::single).map(|queue| queue.position);
        matches!(queue, Some(Position::Watching { watch: WatchState::Refused, .. }))
    };
    let answered = async {
        while !is_unwatched() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, answered).await.expect("in time");
}

#[tokio::test]
async fn timers_fire_when_they_are_due() {
    let session = Session::local().await.expect("a session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let _guard = mutex.lock().await.expect("held");
    let due = session.core().lock().machine.next_deadline().expect("a timer");
    // The session's task does not run meanwhile.
    while now() < due {
        std::thread::sleep(Duration::from_millis(1));
    }
    let core = session.core();
    let mut state = core.lock_current();
    core.fire_timers(&mut state);
    assert!(state.wakes_at > due);
}

/// Returns how often `work` locks the state of a session: the least of a hundred runs, because the session's task also locks it.
async fn locks<F: Future<Output = ()>>(session: &Session, work: impl Fn() -> F) -> usize {
    let mut least = usize::MAX;
    for _ in 0..100 {
        let before = session.core().locks.load(Ordering::Relaxed);
        work().await;
        least = least.min(session.core().locks.load(Ordering::Relaxed) - before);
    }
    least
}

#[tokio::test]
async fn lock_and_its_release_lock_the_session_a_few_times() {
    let session = Session::local().await.expect("a session");
    let other = session.another().await.expect("another session");
    let mutex = Mutex::new(&session, "/locks/report").expect("a mutex");
    let rival = Mutex::new(&other, "/locks/report").expect("a mutex");
    let alone = locks(&session, async || {
        mutex.lock().await.expect("held").release().await.expect("released");
    });
    let alone = alone.await;
    let handed_over = locks(&session, async || {
        let guard = rival.lock().await.expect("held");
        let waiting = mutex.enqueue().await.expect("queued");
        guard.release().await.expect("released");
        waiting.await.expect("held").release().await.expect("released");
    });
    let handed_over = handed_over.await;
    println!("locks of the session: {alone} for a free lock and its release, {handed_over} behind another");
    assert!(alone <= 7 && handed_over <= 16, "{alone} and {handed_over} times");
}
