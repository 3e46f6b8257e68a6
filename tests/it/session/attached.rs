//! Sessions made from a given client, and futures that are kept or dropped at unusual moments.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::frames::Op;
use testbed::next_look;
use testbed::proxy::{Cut, Verdict};
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode, SessionState};
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, Session};

use crate::support::{BRIEF, TIMEOUT, World, at_most, connect, hosts, pass, soon, stall};

async fn client(hosts: &str) -> Client {
    client_for(hosts, TIMEOUT).await
}

async fn client_for(hosts: &str, timeout: Duration) -> Client {
    Client::connector().with_session_timeout(timeout).connect(hosts).await.expect("connects")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_dropped_while_disconnected_leaves_nothing_without_other_handles() {
    let world = World::new().await;
    world.make_path().await;
    let client = client_for(&world.proxy.hosts(), BRIEF).await;
    let session = Session::attach(client.clone()).expect("in a runtime");
    let guard = Mutex::new(&session, &world.path).expect("a mutex").lock().await.expect("held");
    let mut state = client.state_watcher();
    world.proxy.refuse();
    assert_eq!(soon("a disconnect", state.changed()).await, SessionState::Disconnected);
    drop(guard);
    drop(session);
    // Longer than any call waits for an answer, but in time for the session.
    pass(BRIEF * 15 / 16).await;
    world.proxy.heal();
    world.wait_empty().await;
}

#[tokio::test]
async fn first_lock_of_a_given_client_may_come_late() {
    let world = World::new().await;
    world.make_path().await;
    let timeout = 3 * BRIEF;
    let client = client_for(&hosts(), timeout).await;
    let session = Session::attach(client).expect("in a runtime");
    pass(timeout / 2).await;
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    let guard = mutex.try_lock_for(at_most(timeout / 4)).await.expect("asked").expect("free");
    guard.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_of_a_given_client_cancels_unpolled_futures() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let client = client(&hosts()).await;
    let session = Session::attach(client.clone()).expect("in a runtime");
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    let waiting = soon("a place", mutex.enqueue()).await.expect("enqueued");
    let mut kept = pin!(mutex.lock());
    assert!(futures_util::poll!(&mut kept).is_pending());
    soon("the end", session.close()).await.expect("closed");
    assert_eq!(world.children().await.len(), 1, "only the node of the holder is left");
    assert_eq!(client.state(), SessionState::SyncConnected);
    ahead.release().await.expect("released");
    soon("the next", world.mutex().lock()).await.expect("held").release().await.expect("released");
    for error in [waiting.await.expect_err("closed"), kept.await.expect_err("closed")] {
        assert!(matches!(error, Error::Closed), "{error:?}");
    }
    world.wait_empty().await;
}

/// The create of a lost connection may be applied after the first search, which was that of the lock.
#[tokio::test]
async fn close_of_a_given_client_finds_a_double_that_appears_late() {
    let world = World::new().await;
    world.make_path().await;
    let client = client(&world.proxy.hosts()).await;
    let session = Session::attach(client.clone()).expect("in a runtime");
    let mutex = Mutex::new(&session, &world.path).expect("a mutex");
    world.proxy.reset();
    world.proxy.cut(Cut::BeforeAnswer(1));
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    assert!(world.proxy.cut_fired(), "its create has an unknown outcome");
    let node = guard.nodes()[0].clone();
    let double = format!("{}9", &node[..node.len() - 1]);
    // The second search is a second later, and nothing is sent before this task waits.
    world.proxy.on_request(|one| if one.op == Op::GetChildren2 { Verdict::Hold } else { Verdict::Forward });
    world.proxy.reset();
    drop(guard);
    let closing = tokio::spawn(async move { session.close().await });
    soon("the second search", world.proxy.wait_for(|one| one.op == Op::GetChildren2)).await;
    assert!(!closing.is_finished(), "its node may turn up");
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(&double, b"", &ephemeral).await.expect("created");
    world.proxy.on_request(|_| Verdict::Forward);
    world.proxy.heal();
    soon("the end", closing).await.expect("no panic").expect("closed");
    assert!(world.children().await.is_empty(), "nothing is left when it returns");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_cancels_unpolled_futures_beside_a_clone_of_the_client() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let client = world.session.client().expect("a client");
    let waiting = soon("a place", world.mutex().enqueue()).await.expect("enqueued");
    let error = soon("the end", world.session.close()).await.expect_err("not closed");
    assert!(matches!(error, Error::SessionKept { .. }), "{error:?}");
    assert_eq!(world.children().await.len(), 1, "only the node of the holder is left");
    assert_eq!(client.state(), SessionState::SyncConnected, "the clone keeps it");
    assert!(matches!(waiting.await, Err(Error::Closed)));
    ahead.release().await.expect("released");
    world.wait_empty().await;
}

/// The usual way to stop: the future is pinned outside of `select!`, and kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn future_that_is_kept_does_not_keep_the_session() {
    for polls in 1..6 {
        let world = World::new().await;
        world.make_path().await;
        let mutex = world.mutex();
        let mut kept = pin!(mutex.lock());
        for _ in 0..polls {
            if futures_util::poll!(&mut kept).is_ready() {
                break;
            }
            next_look().await;
        }
        soon("the end", world.session.close()).await.expect("closed");
        let guard = soon("another", world.other_mutex().await.lock()).await.expect("held");
        guard.release().await.expect("released");
        world.wait_empty().await;
    }
}

#[tokio::test]
async fn loss_signal_of_a_released_guard_stays_pending() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let (lost, polls) = (guard.lost(), Arc::new(AtomicUsize::new(0)));
    let count = polls.clone();
    let signal = tokio::spawn(async move {
        let mut lost = pin!(lost);
        std::future::poll_fn(|cx| {
            count.fetch_add(1, Ordering::Relaxed);
            lost.as_mut().poll(cx)
        })
        .await
    });
    tokio::task::yield_now().await;
    guard.release().await.expect("released");
    pass(2 * BRIEF).await;
    assert!(!signal.is_finished(), "it was released, not lost");
    assert!(polls.load(Ordering::Relaxed) < 10, "{} polls", polls.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holds_leave_room_for_a_waiter() {
    // Answered in time for its holds to be fresh on a busy machine, too.
    let timeout = 6 * BRIEF;
    let world = World::at(&hosts(), timeout).await;
    let path = |number: usize| format!("{}/{}{number}", world.path, "x".repeat(600));
    // It holds meanwhile, however long a busy machine takes.
    let other = connect(&world.hosts).await;
    let ahead = Mutex::new(&other, &path(1000)).expect("a mutex").lock().await.expect("held");
    let mut holds = Vec::new();
    for number in 0..170 {
        holds.push(Mutex::new(&world.session, &path(number)).expect("a mutex").lock().await.expect("held"));
    }
    // By now all of them watch their nodes, or check them otherwise.
    pass(timeout / 2).await;
    let mutex = Mutex::new(&world.session, &path(1000)).expect("a mutex");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    crate::support::wait_children(&world.admin, &path(1000), 2).await;
    ahead.release().await.expect("released");
    let guard = soon("a turn", waiting).await.expect("no panic").expect("held");
    assert!(holds.iter().all(|hold| hold.state() == HoldState::Held));
    let last = holds.pop().expect("a hold");
    world.admin.delete(&last.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss of a hold without a watch", last.lost()).await, Loss::Deleted);
    guard.release().await.expect("released");
    world.session.close().await.expect("closed");
}

#[tokio::test]
async fn abandoned_node_does_not_block_its_own_session() {
    let world = World::new().await;
    world.make_path().await;
    for round in 0..20 {
        {
            let mutex = world.mutex();
            let mut cancelled = pin!(mutex.lock());
            let _ = futures_util::poll!(&mut cancelled);
        }
        let guard = world.mutex().try_lock().await.expect("asked");
        let guard = guard.unwrap_or_else(|| panic!("round {round}: there is no other contender"));
        guard.release().await.expect("released");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn node_of_the_same_name_is_not_the_one_that_was_created() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let [node] = guard.nodes() else { panic!("one node") };
    world.admin.delete(node, None).await.expect("deleted");
    let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(node, b"", &mode).await.expect("created");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    assert!(guard.release().await.is_err());
}

/// A thread that stalls for longer than the first write of a session is trusted.
#[tokio::test]
async fn guard_that_is_returned_after_a_stall_is_held() {
    // With more room than the machine itself stalls for.
    let timeout = 3 * BRIEF;
    let world = World::at(&hosts(), timeout).await;
    world.make_path().await;
    stall(timeout / 3);
    let guard = soon("a hold", world.mutex().lock()).await.expect("held");
    assert_eq!(guard.state(), HoldState::Held);
    assert!(guard.valid_for() > timeout / 4, "trusted for {:?}", guard.valid_for());
    guard.release().await.expect("released");
}
