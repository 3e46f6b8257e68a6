//! Threads outside tokio, and runtimes without timers.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use testbed::free_port;
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;
use zookeeper_recipes::{Error, HoldState, Mutex, Servers, Session, blocking};

use crate::support::{BRIEF, TIMEOUT, World, soon};

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
fn attach_outside_tokio_is_an_error() {
    let tokio = runtime();
    let world = tokio.block_on(World::new());
    let client = world.session.client().expect("a client");
    let error = Session::attach(client).expect_err("no runtime");
    assert!(error.to_string().starts_with("invalid runtime: there is none; attach the session on"), "{error}");
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
