//! A runtime that ends, or stands still, while the locks of its session are used elsewhere.

use std::sync::mpsc;
use std::thread;

use testbed::proxy::Proxy;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use uuid::Uuid;
use zookeeper_groups::KeptNode;
use zookeeper_recipes::{
    Election, Error, HoldMonitor, HoldState, Loss, Mutex, Semaphore, SemaphoreShare, Session,
};

use super::runtime;
use crate::support::{BRIEF, PATIENCE, World, connect, connect_for, hosts, locking, soon, until};

/// The output of a future that ran on a thread with a runtime of its own, both of which have ended.
fn in_ended_runtime<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    thread::spawn(|| runtime().block_on(future)).join().expect("no panic")
}

/// The first term of a candidate in a task.
async fn leading(session: &Session, path: &str) -> HoldMonitor {
    let election = Election::new(session, path).expect("an election");
    tokio::spawn(election.run(|term| async move { term.revoke_requested().await }));
    until("a term", || election.current_term().is_some()).await;
    election.current_term().expect("it leads")
}

/// A node that is there, and its path.
async fn kept(world: &World) -> (String, KeptNode) {
    let path = format!("{}-kept", world.path);
    let node = KeptNode::keep(&world.session, &path, b"there").expect("a valid path");
    soon("the node", node.created()).await.expect("created");
    (path, node)
}

#[tokio::test]
async fn guard_dropped_after_its_runtime_does_not_panic_and_is_lost() {
    let world = World::new().await;
    let path = world.path.clone();
    let guard = in_ended_runtime(async move {
        let session = connect_for(&hosts(), BRIEF).await;
        Mutex::new(&session, &path).expect("a mutex").lock().await.expect("held")
    });
    assert_eq!(guard.state(), HoldState::Lost(Loss::Expired), "nobody keeps its session alive");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Expired);
    drop(guard);
    let guard = soon("the next, by the end of the session", world.mutex().lock()).await.expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn lock_on_a_session_whose_runtime_is_gone_fails() {
    let path = World::new().await.path;
    let session = in_ended_runtime(async { connect(&hosts()).await });
    let mutex = Mutex::new(&session, &path).expect("a mutex");
    let error = soon("an answer", mutex.lock()).await.expect_err("no session");
    assert!(matches!(error, Error::SessionEnded { .. }), "{error:?}");
    assert!(soon("the end", session.close()).await.is_err(), "no answer");
}

#[tokio::test]
async fn runtime_dropped_under_a_waiter_elsewhere_ends_its_wait() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let sessions = runtime();
    let session = sessions.spawn(async { connect(&hosts()).await }).await.expect("no panic");
    let waiting = locking(Mutex::new(&session, &world.path).expect("a mutex"));
    world.wait_children(2).await;
    spawn_blocking(|| drop(sessions)).await.expect("ended");
    let error = soon("the end", waiting).await.expect("no panic").expect_err("no session");
    assert!(matches!(error, Error::SessionEnded { .. }), "{error:?}");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn client_of_a_session_whose_runtime_is_gone_returns_errors() {
    let path = World::new().await.path;
    let (session, guard) = in_ended_runtime(async move {
        let session = connect(&hosts()).await;
        let guard = Mutex::new(&session, &path).expect("a mutex").lock().await.expect("held");
        (session, guard)
    });
    assert_eq!(guard.state(), HoldState::Lost(Loss::Expired));
    let asked = soon("an answer", session.client().expect("a client").check_stat("/")).await;
    assert!(asked.is_err(), "{asked:?}");
    assert_eq!(guard.check_writer().err(), Some(Loss::Expired));
}

/// The runtime of the candidate stands still, so nothing but the clock can show the end of its leadership.
#[test]
fn candidate_is_no_leader_once_another_leads_although_its_runtime_is_blocked() {
    let (blocked, other) = (Builder::new_current_thread().enable_all().build().expect("a runtime"), runtime());
    let path = format!("/it-{}/leader", Uuid::new_v4().simple());
    let proxy = other.block_on(Proxy::start(&hosts())).expect("a proxy");
    let term = blocked.block_on(async { leading(&connect_for(&proxy.hosts(), BRIEF).await, &path).await });
    assert_eq!(term.state(), HoldState::Held);
    proxy.black_hole();
    other.block_on(async {
        let next = Election::new(&connect(&hosts()).await, &path).expect("an election");
        let next = soon("another term", next.campaign()).await.expect("leads");
        assert_eq!(term.state(), HoldState::Lost(Loss::TrustEnded), "while another leads");
        next.resign().await.expect("still leads");
    });
}

/// A task of another runtime waits.
#[test]
fn share_whose_runtime_is_gone_returns_an_error() {
    let (ends, ended) = mpsc::channel();
    // Not this thread, because it might not come back.
    thread::spawn(move || {
        let (sessions, users) = (runtime(), runtime());
        let share = sessions.block_on(async {
            let world = World::new().await;
            let semaphore = Semaphore::new(&world.session, &world.path, 4).expect("a semaphore");
            SemaphoreShare::new(&semaphore, 1).expect("a share")
        });
        drop(sessions);
        ends.send(users.block_on(share.acquire()).err()).expect("it waits");
    });
    let error = ended.recv_timeout(PATIENCE).expect("an answer");
    assert!(matches!(error, Some(Error::SessionEnded { .. })), "{error:?}");
}

#[test]
fn place_outlives_the_runtime_that_enqueued_it() {
    let (sessions, first, second) = (runtime(), runtime(), runtime());
    let world = sessions.block_on(World::new());
    let ahead = sessions.block_on(async { world.other_mutex().await.lock().await }).expect("held");
    let waiting = first.block_on(world.mutex().enqueue()).expect("queued");
    drop(first);
    sessions.block_on(ahead.release()).expect("released");
    let guard = second.block_on(soon("its turn", waiting)).expect("held");
    second.block_on(guard.release()).expect("released");
    sessions.block_on(world.wait_empty());
}

#[test]
fn kept_node_is_not_reported_as_created_after_the_runtime_of_its_session_ended() {
    let (sessions, users) = (runtime(), runtime());
    let world = sessions.block_on(World::new());
    let (_path, node) = users.block_on(kept(&world));
    drop(sessions);
    assert!(!node.is_created());
    let error = users.block_on(soon("an answer", node.created())).expect_err("nothing keeps it");
    assert!(matches!(error, Error::SessionEnded { .. }), "{error:?}");
    let error = users.block_on(soon("its end", node.remove())).expect_err("its session is over");
    assert!(matches!(error, Error::SessionEnded { .. }), "{error:?}");
}
