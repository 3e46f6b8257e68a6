//! Sessions that expire, nodes that operators delete, and partitions.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testbed::Server;
use testbed::frames::Op;
use testbed::next_look;
use testbed::proxy::Verdict;
use tokio::time::timeout;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission, SessionState};
use zookeeper_recipes::{Error, HoldState, Loss};

use crate::support::{BRIEF, ROUND_TRIP, World, at_most, hosts, locking, pass, soon, stall};

/// The servers of the tests look for sessions that have ended once a tick.
const TICK: Duration = Duration::from_millis(500);

/// Just before it would be watched.
#[tokio::test]
async fn waiter_whose_node_is_deleted_before_it_waits_is_evicted_while_the_holder_stays() {
    let world = World::new().await;
    let guard = world.other_mutex().await.lock().await.expect("held");
    let is_held = std::sync::atomic::AtomicBool::new(false);
    world.proxy.on_request(move |one| {
        let is_next =
            one.op == Op::GetData && one.watch && !is_held.swap(true, std::sync::atomic::Ordering::Relaxed);
        if is_next { Verdict::Hold } else { Verdict::Forward }
    });
    let waiting = locking(world.mutex());
    let watched = soon("a watch", world.proxy.wait_for(|one| one.op == Op::GetData && one.watch)).await.path;
    world.admin.delete(&watched, None).await.expect("deleted");
    world.proxy.heal();
    match soon("the evicted waiter", waiting).await.expect("no panic") {
        Err(Error::Evicted { node }) => assert_eq!(node, watched),
        other => panic!("not {other:?}"),
    }
    guard.release().await.expect("released");
}

/// Not the next, it has no watch on its own node.
#[tokio::test]
async fn waiter_in_the_middle_whose_node_is_deleted_is_evicted_while_the_holder_stays() {
    let world = World::new().await;
    let _held = world.other_mutex().await.lock().await.expect("held");
    let second = locking(world.other_mutex().await);
    world.wait_children(2).await;
    let waiting = locking(world.mutex());
    soon("a watch", world.proxy.wait_for(|one| one.watch && one.answer.is_some())).await;
    let node = format!("{}/{}", world.path, world.wait_children(3).await[2]);
    world.admin.delete(&node, None).await.expect("deleted");
    match soon("the evicted waiter", waiting).await.expect("no panic") {
        Err(Error::Evicted { node: evicted }) => assert_eq!(evicted, node),
        other => panic!("not {other:?}"),
    }
    second.abort();
}

#[tokio::test]
async fn node_created_again_under_its_name_does_not_count_as_the_hold() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let node = &guard.nodes()[0];
    // Nothing watches it yet.
    world.admin.delete(node, None).await.expect("deleted");
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.admin.create(node, b"restored", &ephemeral).await.expect("created");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    assert_eq!(guard.state(), HoldState::Lost(Loss::Deleted));
    // The loss deletes the node by name, and so this one.
    world.wait_empty().await;
}

#[tokio::test]
async fn partition_longer_than_the_session_is_reported_before_the_next_grant() {
    let world = World::brief().await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    let next = world.other_mutex().await;
    let next = tokio::spawn(async move {
        let guard = next.lock().await.expect("held");
        (Instant::now(), guard)
    });
    world.wait_children(2).await;
    let lost = guard.lost();
    let lost = tokio::spawn(async move { (lost.await, Instant::now()) });
    world.proxy.black_hole();
    let (cut, trusted) = (Instant::now(), guard.valid_for());
    let (granted, next) = soon("the next grant", next).await.expect("no panic");
    assert_eq!(guard.state(), HoldState::Lost(Loss::TrustEnded));
    let (loss, reported) = soon("the loss", lost).await.expect("no panic");
    assert_eq!(loss, Loss::TrustEnded);
    assert!(reported < granted, "reported {:?} too late", reported.duration_since(granted));
    let (reported, granted) = (reported - cut, granted - cut);
    println!("trusted for {trusted:?}, reported after {reported:?}, granted after {granted:?}");
    assert!(reported >= trusted && reported <= at_most(trusted + Duration::from_millis(2)), "{reported:?}");
    // The servers end the session at a multiple of their tick of 500 ms.
    assert!(granted <= at_most(BRIEF + TICK + ROUND_TRIP), "{granted:?}");
    assert!(guard.fencing_token() < next.fencing_token());
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::TrustEnded))));
    next.release().await.expect("released");
    world.proxy.heal();
    world.wait_empty().await;
    let guard = soon("the renewed session", mutex.lock()).await.expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn hold_lost_while_its_session_lives_deletes_its_node() {
    // The disconnect is longer than trust lasts, but shorter than the session timeout.
    let world = World::at(&crate::support::hosts(), 4 * BRIEF).await;
    let guard = world.mutex().lock().await.expect("held");
    let before = world.session.id();
    world.proxy.refuse();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::TrustEnded);
    world.proxy.heal();
    world.wait_empty().await;
    assert_eq!(guard.state(), HoldState::Lost(Loss::TrustEnded), "for good");
    if world.session.id() == before {
        println!("the session lives");
    }
}

/// The client ends a session by its own clock; the servers may keep it, and its nodes, for longer.
#[tokio::test]
async fn renewed_session_waits_behind_the_node_of_the_old_one() {
    let world = World::brief().await;
    let mutex = world.mutex();
    let guard = mutex.lock().await.expect("held");
    let client = world.session.client().expect("a client");
    let old = client.session().clone();
    world.proxy.black_hole();
    // Another client keeps the session alive without the library's knowledge.
    let keeper =
        Client::connector().with_session(old).with_detached().connect(&world.hosts).await.expect("attaches");
    let expired = async {
        while client.state() != SessionState::Expired {
            next_look().await;
        }
    };
    soon("the client's own end of the session", expired).await;
    assert_eq!(guard.state(), HoldState::Lost(Loss::TrustEnded));
    assert_eq!(world.children().await.len(), 1, "its node is there");
    world.proxy.heal();
    let mut next = mutex.enqueue().await.expect("queued");
    assert!(futures_util::poll!(&mut next).is_pending());
    assert_eq!((next.position(), world.children().await.len()), (1, 2), "its node is still there");
    // It detaches from the session without ending it, and the servers expire it.
    drop(keeper);
    let guard = soon("a lock in the renewed session", next).await.expect("held");
    assert_eq!(guard.nodes()[0], format!("{}/{}", world.path, world.wait_children(1).await[0]));
    guard.release().await.expect("released");
}

/// Its task is woken before that of the session, which has waited for longer.
#[tokio::test]
async fn call_that_begins_as_its_session_ends_is_granted_in_the_next() {
    let world = World::new().await;
    let client = world.session.client().expect("a client");
    world.expire_unseen(&world.session).await;
    while world.session.state().is_connected() {
        next_look().await;
    }
    let (mutex, mut state) = (world.mutex(), client.state_watcher());
    let call = tokio::spawn(async move {
        while state.changed().await != SessionState::Expired {}
        mutex.lock().await
    });
    world.proxy.heal();
    let guard = soon("a lock in the renewed session", call).await.expect("no panic").expect("held");
    assert_eq!(guard.nodes(), [format!("{}/{}", world.path, world.wait_children(1).await[0])]);
    guard.release().await.expect("released");
}

/// Servers from 3.8.4 and 3.9.2 on hide a node, even its existence, from clients without READ on it.
#[tokio::test]
async fn hold_stays_trusted_where_the_root_may_not_be_read() {
    let server =
        Server::builder().config("forceSync", "no").start().await.unwrap_or_else(|error| panic!("{error}"));
    let timeout = 2 * BRIEF;
    let world = World::at(&server.hosts(), timeout).await;
    world.make_path().await;
    let closed = [Acl::new(Permission::CREATE, AuthId::anyone())];
    world.admin.set_acl("/", &closed, None).await.expect("denied");
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.reset();
    let lost = tokio::time::timeout(3 * timeout, guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}, with the server there");
    let requests = world.proxy.requests().len();
    assert!(requests < 100, "{requests} requests to keep one hold trusted for three timeouts");
    guard.release().await.expect("still held");
}

/// After an outage the first answer is trusted for a moment only; a hold begins when it can last.
#[tokio::test]
async fn hold_that_begins_soon_after_an_outage_lives_on() {
    let limit = 3 * BRIEF;
    let world = World::at(&hosts(), limit).await;
    world.make_path().await;
    // Nothing but time ends the trust of a session that is idle.
    pass(limit + limit / 8).await;
    let before = world.session.id();
    let mut states = world.session.client().expect("a client").state_watcher();
    world.proxy.refuse();
    assert_eq!(soon("the disconnect", states.changed()).await, SessionState::Disconnected);
    pass(limit / 5).await;
    world.proxy.heal();
    let guard = soon("the lock", world.mutex().lock()).await.expect("held");
    let lost = timeout(limit * 9 / 8, guard.lost()).await;
    assert!(lost.is_err() || world.session.id() != before, "{lost:?}, though its session lives");
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
