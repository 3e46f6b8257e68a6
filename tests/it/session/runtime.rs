//! Threads outside tokio, runtimes without timers, and the end of the runtime of a client.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use testbed::free_port;
use testbed::proxy::Verdict;
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;
use zookeeper_recipes::zookeeper_client::SessionState;
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, Servers, Session, blocking};

use crate::support::{BRIEF, TIMEOUT, World, connect, connect_for, hosts, pass, soon};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls like an executor without tokio.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// The message of the panic in `executor`.
fn panic_in<T>(executor: impl FnOnce() -> T) -> String {
    let panic: Box<dyn Any + Send> = match catch_unwind(AssertUnwindSafe(executor)) {
        Ok(_) => return "no panic".to_owned(),
        Err(panic) => panic,
    };
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

#[test]
fn calls_outside_tokio_panic_with_its_message_and_leave_nothing() {
    let tokio = runtime();
    let world = tokio.block_on(World::new());
    let mutex = world.mutex();
    let guard = tokio.block_on(mutex.lock()).expect("held");
    for text in [
        panic_in(|| block_on(mutex.try_lock())),
        panic_in(|| block_on(mutex.contenders())),
        panic_in(|| block_on(guard.lost())),
    ] {
        assert!(text.contains("must be called from the context of a Tokio 1.x runtime"), "{text}");
    }
    assert_ne!(panic_in(|| block_on(Session::connect(&world.hosts))), "no panic");
    // It waits for nothing but the answer of the servers.
    block_on(guard.release()).expect("released");
    tokio.block_on(world.wait_empty());
}

#[test]
fn calls_on_a_runtime_without_timers_panic_with_its_message() {
    let tokio = runtime();
    let world = tokio.block_on(World::new());
    let timeless = Builder::new_current_thread().enable_io().build().expect("a runtime");
    let text = panic_in(|| timeless.block_on(world.mutex().try_lock()));
    assert!(text.contains("timers are disabled"), "{text}");
}

#[test]
fn guards_and_places_dropped_outside_tokio_are_released() {
    let tokio = runtime();
    let world = tokio.block_on(World::new());
    let session = tokio.block_on(world.other());
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    let guard = tokio.block_on(mutex.lock()).expect("held");
    let place = tokio.block_on(mutex.enqueue()).expect("queued");
    tokio.block_on(world.wait_children(2));
    drop(place);
    tokio.block_on(world.wait_children(1));
    drop(guard);
    tokio.block_on(world.wait_empty());
    let last = tokio.block_on(mutex.lock()).expect("held");
    drop((mutex, session, last));
    tokio.block_on(world.wait_empty());
}

#[test]
fn lazy_session_outside_tokio_is_an_error() {
    let error = Session::lazy(hosts()).expect_err("no runtime");
    assert!(error.to_string().starts_with("invalid runtime: there is none; connect the session on"), "{error}");
}

/// The async side of a blocking session, which lives on a thread of its own.
async fn on_own_thread(servers: Servers) -> Result<Session, Error> {
    let connected = spawn_blocking(|| blocking::Session::connect(servers)).await.expect("no panic");
    connected.map(|session| session.as_async().clone())
}

/// Nothing else of the service runs meanwhile.
#[tokio::test]
async fn session_on_its_own_thread_keeps_its_locks_while_the_runtime_is_blocked() {
    let world = World::brief().await;
    let servers = Servers::new(&world.hosts).with_session_timeout(TIMEOUT);
    let session = on_own_thread(servers).await.expect("connects");
    let held = Mutex::new(&session, &world.path).expect("a mutex").lock().await.expect("held");
    let other = Mutex::new(&world.session, &format!("{}-other", world.path)).expect("a mutex");
    let lost = other.lock().await.expect("held");
    block_for(2 * BRIEF);
    assert_eq!(held.state(), HoldState::Held);
    assert!(matches!(lost.state(), HoldState::Lost(_)), "it was served here");
    held.release().await.expect("still held");
    session.close().await.expect("closed");
}

#[tokio::test]
async fn session_on_its_own_thread_ends_with_its_last_handle() {
    let world = World::new().await;
    let session = on_own_thread(Servers::from(&world.hosts)).await.expect("connects");
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    let mut states = session.states();
    std::mem::forget(mutex.lock().await.expect("held").monitor());
    drop((session, mutex));
    world.wait_empty().await;
    while soon("the end", states.changed()).await.is_some() {}
    let nobody = format!("127.0.0.1:{}", free_port());
    let servers = Servers::new(&nobody).with_session_timeout(Duration::from_secs(1));
    let error = on_own_thread(servers).await.expect_err("no server");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// Blocks the thread.
fn block_for(time: Duration) {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _ = receiver.recv_timeout(time);
}

#[test]
fn runtime_of_the_client_dropped_under_a_hold_elsewhere_is_a_loss() {
    let (clients, holders) = (runtime(), Builder::new_current_thread().enable_all().build().expect("a runtime"));
    let world = holders.block_on(World::new());
    let session = clients.block_on(connect_for(&hosts(), BRIEF));
    let guard = holders.block_on(Mutex::new(&session, &world.path).expect("a mutex").lock()).expect("held");
    clients.shutdown_background();
    // The runtime of the hold runs on, although the client's has ended.
    assert_eq!(holders.block_on(soon("the loss", guard.lost())), Loss::Expired);
    holders.block_on(pass(BRIEF));
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    assert!(holders.block_on(soon("an answer", mutex.lock())).is_err());
}

#[test]
#[should_panic(expected = "timers are disabled")]
fn session_is_not_made_on_a_runtime_without_timers() {
    let timeless = Builder::new_current_thread().enable_io().build().expect("a runtime");
    timeless.block_on(async { Session::lazy(hosts()).map(drop) }).expect("panics");
}

#[test]
fn runtime_dropped_during_a_renewal_ends_the_session() {
    let (users, sessions) = (runtime(), runtime());
    let world = users.block_on(World::new());
    let session = sessions.block_on(connect(&world.proxy.hosts()));
    let password = world.proxy.session().expect("a session");
    world.proxy.refuse();
    users.block_on(testbed::expire::expire(&hosts(), password)).expect("expires");
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    // Of the expiring client: the session may have another a moment later.
    let mut state = session.client().expect("a client").state_watcher();
    let expired = async { while state.changed().await != SessionState::Expired {} };
    // It learns of the expiry, and then loses its connection.
    world.proxy.heal();
    users.block_on(soon("the end", expired));
    world.proxy.refuse();
    drop(sessions);
    match users.block_on(soon("an answer", mutex.lock())) {
        Err(Error::SessionEnded { .. }) => {}
        other => panic!("nothing can renew it: {other:?}"),
    }
}

/// The session has ended, and the task that would renew it does not know yet.
#[test]
fn runtime_dropped_at_any_moment_before_a_renewal_ends_the_session() {
    let users = runtime();
    for polls in 0..8 {
        // Between two polls of the main future it runs one task.
        let sessions =
            Builder::new_current_thread().event_interval(1).global_queue_interval(1).enable_all().build();
        let sessions = sessions.expect("a runtime");
        let world = users.block_on(World::new());
        let session = sessions.block_on(connect(&world.proxy.hosts()));
        let client = session.client().expect("a client");
        let password = world.proxy.session().expect("a session");
        world.proxy.refuse();
        users.block_on(testbed::expire::expire(&hosts(), password)).expect("expires");
        world.proxy.heal();
        let mut left = polls;
        sessions.block_on(poll_fn(|cx| {
            if client.state() == SessionState::Expired {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        world.proxy.refuse();
        drop(sessions);
        let mutex = Mutex::new(&session, &world.path).expect("a mutex");
        match users.block_on(soon("an answer", mutex.lock())) {
            Err(Error::SessionEnded { .. }) => {}
            other => panic!("nothing can renew it, {polls} polls later: {other:?}"),
        }
    }
}

#[test]
fn runtime_of_the_client_dropped_under_a_waiter_elsewhere_ends_the_session() {
    for away in [false, true] {
        let (clients, waiters) = (runtime(), runtime());
        let world = waiters.block_on(World::new());
        waiters.block_on(world.make_path());
        let session = clients.block_on(connect(&world.proxy.hosts()));
        let mutex = Mutex::new(&session, &world.path).expect("a mutex");
        world.proxy.reset();
        if away {
            let mut state = session.client().expect("a client").state_watcher();
            world.proxy.refuse();
            assert_eq!(waiters.block_on(soon("a disconnect", state.changed())), SessionState::Disconnected);
        } else {
            world.proxy.on_request(|_| Verdict::Hold);
        }
        let waiting = waiters.spawn(async move { mutex.lock().await.map(drop) });
        if !away {
            waiters.block_on(soon("requests", world.proxy.wait_for_requests(2)));
        }
        clients.shutdown_background();
        let error = waiters.block_on(soon("an answer", waiting)).expect("no panic").expect_err("nobody answers");
        assert!(matches!(error, Error::SessionEnded { .. }), "away: {away}: {error:?}");
    }
}
