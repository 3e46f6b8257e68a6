//! Nodes that an operator deletes while the servers are out of reach, or while an event is under way.

use std::time::{Duration, Instant};

use futures_util::poll;
use testbed::frames::Op;
use testbed::proxy::Request;
use tokio::time::timeout;
use zookeeper_recipes::zookeeper_client::{Client, SessionState};
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, MutexGuard, RwLock};

use crate::support::{BRIEF, ROUND_TRIP, TIMEOUT, World, at_most, hosts, locking, soon, until};

/// Waits until the client has read all answers to the requests before this.
async fn answered(client: &Client) {
    soon("an answer", client.check_stat("/")).await.expect("answered");
}

async fn disconnected(client: &Client) {
    let mut states = client.state_watcher();
    soon("the end of the connection", async {
        while states.state() != SessionState::Disconnected {
            states.changed().await;
        }
    })
    .await;
}

/// No connection was lost, and the session is trusted.
#[tokio::test]
async fn node_deleted_before_a_late_answer_is_not_held() {
    let world = World::brief().await;
    world.make_path().await;
    // Later than T/8, so the answer alone grants nothing.
    world.proxy.hold_answers(BRIEF / 6);
    let locking = locking(world.mutex());
    let node = format!("{}/{}", world.path, world.wait_children(1).await[0]);
    world.admin.delete(&node, None).await.expect("deleted");
    let end = soon("an end", locking).await.expect("no panic");
    assert!(matches!(&end, Err(Error::Evicted { node: of }) if *of == node), "{end:?}");
}

/// Every answer is so late that its grant has to be checked.
#[tokio::test]
async fn lock_is_granted_by_servers_that_answer_late() {
    let world = World::at(&hosts(), 4 * BRIEF).await;
    world.make_path().await;
    let mutex = world.mutex();
    world.proxy.hold_answers(4 * BRIEF / 6);
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    assert!(world.count(Op::Multi) <= 4, "{:?}", world.ops());
    guard.release().await.expect("released");
}

/// Each of the nodes could show whose connection it is, if it was there.
#[tokio::test]
async fn hold_lives_on_over_a_reconnect_beside_deleted_nodes_whose_owners_do_not_look() {
    let limit = 3 * BRIEF;
    for count in [1, 8] {
        let world = World::at(&hosts(), limit).await;
        world.make_path().await;
        let _ahead = world.other_mutex().await.lock().await.expect("held");
        let mutex = world.mutex();
        let mut waiting = Vec::new();
        for _ in 0..count {
            waiting.push(mutex.enqueue().await.expect("queued"));
        }
        let path = format!("{}-held", world.path);
        let guard = Mutex::new(&world.session, &path).expect("a mutex").lock().await.expect("held");
        let nodes = world.wait_children(1 + count).await;
        let client = world.session.client().expect("a client");
        world.proxy.refuse();
        disconnected(&client).await;
        for node in &nodes[1..] {
            world.admin.delete(&format!("{}/{node}", world.path), None).await.expect("deleted");
        }
        world.proxy.reset();
        world.proxy.heal();
        // Longer than what was known before the reconnect is trusted.
        let lost = timeout(limit * 9 / 8, guard.lost()).await;
        assert!(lost.is_err(), "{lost:?} beside {count}");
        let questions: Vec<_> = world.proxy.requests();
        for node in &nodes[1..] {
            let asked =
                questions.iter().filter(|one| one.op == Op::GetEphemerals && one.path.ends_with(node)).count();
            assert!(asked <= 1, "asked {asked} times for a node that is gone");
        }
        guard.release().await.expect("still held");
        for waiting in waiting {
            assert!(matches!(soon("an end", waiting).await, Err(Error::Evicted { .. })));
        }
    }
}

/// Keeps all events back behind a late answer; the returned future waits for that.
async fn keep_events_back(world: &World, client: &Client) -> impl Future {
    world.proxy.hold_answers(Duration::from_secs(2));
    let client = client.clone();
    let held = tokio::spawn(async move { client.check_stat("/").await });
    soon("a request", world.proxy.wait_for(|one| one.op == Op::Exists && one.path == "/" && one.answer.is_some()))
        .await;
    world.proxy.hold_answers(Duration::ZERO);
    held
}

/// Whether anybody has looked at the node since the last reset, as a hold does after a while.
fn looked_at(world: &World, node: &str) -> bool {
    world.proxy.requests().iter().any(|one| one.path == node && one.op != Op::Delete)
}

#[tokio::test]
async fn hold_that_was_handed_over_is_lost_when_the_event_of_its_deletion_arrives() {
    let world = World::with_path().await;
    world.proxy.leave_out(|_| false);
    let client = world.session.client().expect("a client");
    let held = world.mutex().lock().await.expect("held");
    let next = locking(world.mutex());
    world.wait_children(2).await;
    let node = world.own_watch(1).await;
    answered(&client).await;
    world.proxy.reset();
    let events = keep_events_back(&world, &client).await;
    world.admin.delete(&node, None).await.expect("deleted");
    let release = tokio::spawn(held.release());
    let guard = soon("a turn", next).await.expect("no panic").expect("held");
    assert_eq!(guard.state(), HoldState::Held, "the event is under way");
    events.await;
    until("the loss", || guard.state() != HoldState::Held).await;
    assert_eq!(guard.state(), HoldState::Lost(Loss::Deleted));
    assert!(!looked_at(&world, &node), "it was found by a look: {:?}", world.proxy.requests());
    release.await.expect("no panic").expect("released");
    world.wait_empty().await;
}

/// Only a question to the servers before each hand-over could prevent it. See the limits of the crate.
#[tokio::test]
async fn waiter_deleted_by_hand_holds_beside_the_next_session_until_the_event_arrives() {
    let world = World::with_path().await;
    world.proxy.leave_out(|_| false);
    let client = world.session.client().expect("a client");
    let held = world.mutex().lock().await.expect("held");
    let next = locking(world.mutex());
    world.wait_children(2).await;
    let node = world.own_watch(1).await;
    answered(&client).await;
    let behind = locking(world.other_mutex().await);
    world.wait_children(3).await;
    world.proxy.reset();
    let events = keep_events_back(&world, &client).await;
    world.admin.delete(&node, None).await.expect("deleted");
    let release = tokio::spawn(held.release());
    let guard = soon("a turn", next).await.expect("no panic").expect("held");
    let behind = soon("the turn of the other session", behind).await.expect("no panic").expect("held");
    assert_eq!((guard.state(), behind.state()), (HoldState::Held, HoldState::Held), "the event is under way");
    assert!(behind.fencing_token() > guard.fencing_token(), "a store refuses the first");
    events.await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    assert_eq!(behind.state(), HoldState::Held);
    release.await.expect("no panic").expect("released");
    behind.release().await.expect("still held");
    world.wait_empty().await;
}

/// What the watch has seen first was not the deletion, and it sees no more.
#[tokio::test]
async fn hold_that_was_handed_over_is_lost_when_its_node_was_changed_and_then_deleted() {
    let world = World::with_path().await;
    let client = world.session.client().expect("a client");
    let held = world.mutex().lock().await.expect("held");
    let next = locking(world.mutex());
    world.wait_children(2).await;
    let node = world.own_watch(1).await;
    answered(&client).await;
    world.proxy.leave_out(|_| false);
    let events = keep_events_back(&world, &client).await;
    world.admin.set_data(&node, b"__REVOKE__", None).await.expect("written");
    world.admin.delete(&node, None).await.expect("deleted");
    let release = tokio::spawn(held.release());
    let guard = soon("a turn", next).await.expect("no panic").expect("held");
    let granted = Instant::now();
    events.await;
    let arrived = Instant::now();
    until("the loss", || guard.state() != HoldState::Held).await;
    assert_eq!(guard.state(), HoldState::Lost(Loss::Deleted));
    // A hold without such a watch looks for the first time after an eighth of its session timeout.
    let looks = world.proxy.wait_for(|one| one.op == Op::GetData && one.path == node && one.arrived > granted);
    soon("a look", looks).await;
    // The event, which follows the answer, and the look.
    assert!(arrived.elapsed() <= at_most(2 * ROUND_TRIP), "{:?}", arrived.elapsed());
    release.await.expect("no panic").expect("released");
}

/// A hold that was granted by the answer to its create, whose node was deleted before anybody saw that.
async fn counted_and_deleted(world: &World) -> MutexGuard {
    let mutex = world.mutex();
    // It sees that the path has no data, and nobody else there.
    mutex.lock().await.expect("held").release().await.expect("released");
    let client = world.session.client().expect("a client");
    world.proxy.reset();
    let mut locking = Box::pin(mutex.lock());
    assert!(poll!(&mut locking).is_pending(), "the create is under way");
    let node = format!("{}/{}", world.path, world.wait_children(1).await[0]);
    answered(&client).await;
    let ops = world.ops();
    assert!(ops.contains(&Op::Multi) && !ops.contains(&Op::GetChildren2), "it is granted by its create: {ops:?}");
    world.admin.delete(&node, None).await.expect("deleted");
    world.proxy.reset();
    let guard = soon("the lock", locking).await.expect("held");
    assert_eq!(guard.state(), HoldState::Held, "nobody has looked");
    guard
}

#[tokio::test]
async fn counted_hold_is_lost_as_soon_as_somebody_wants_to_know() {
    let world = World::with_path().await;
    world.proxy.leave_out(|_| false);
    let guard = counted_and_deleted(&world).await;
    let granted = Instant::now();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    // By itself it looks after a sixteenth of its session timeout, at the earliest.
    assert!(granted.elapsed() <= at_most(ROUND_TRIP), "{:?}", granted.elapsed());
    assert_eq!(guard.state(), HoldState::Lost(Loss::Deleted));
    // And what is lost is deleted, as far as it is there.
    let looks: Vec<_> = world.ops().into_iter().filter(|op| *op != Op::Delete).collect();
    assert_eq!(looks, [Op::GetData], "one look at its node");
}

#[tokio::test]
async fn counted_hold_is_lost_with_its_first_look_at_its_node() {
    let world = World::with_path().await;
    let guard = counted_and_deleted(&world).await;
    let granted = Instant::now();
    until("the loss", || guard.state() != HoldState::Held).await;
    let took = granted.elapsed();
    assert!(took >= TIMEOUT / 16 && took <= at_most(TIMEOUT / 8 + ROUND_TRIP), "{took:?}");
    assert_eq!(guard.state(), HoldState::Lost(Loss::Deleted));
    // And what is lost is deleted, as far as it is there.
    let looks: Vec<_> = world.ops().into_iter().filter(|op| *op != Op::Delete).collect();
    assert_eq!(looks, [Op::GetData], "one look at its node");
}

#[tokio::test]
async fn writer_behind_a_downgraded_reader_of_its_session_watches_it_at_once() {
    let world = World::with_path().await;
    let lock = RwLock::new(&world.session, &world.path).expect("a lock");
    let reader = lock.write().await.expect("held").downgrade().await.expect("downgraded");
    let (node, downgraded) = (format!("{}/{}", world.path, world.wait_children(1).await[0]), Instant::now());
    let next = tokio::spawn(async move { lock.write().await });
    let watches = |one: &Request| one.watch && one.path == node && one.answer.is_some();
    let watch = soon("a watch on the reader", world.proxy.wait_for(watches)).await;
    // The hold of the reader watches its own node, too, after an eighth of its session timeout.
    assert!(watch.arrived - downgraded <= at_most(2 * ROUND_TRIP), "{:?}", watch.arrived - downgraded);
    world.admin.delete(&node, None).await.expect("deleted");
    let writer = soon("a turn", next).await.expect("no panic").expect("held");
    drop(reader);
    writer.release().await.expect("released");
    world.wait_empty().await;
}
