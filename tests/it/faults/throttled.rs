//! Servers that throttle: they answer a request with an error and do not do it, because it has waited too long (ZOOKEEPER-3683).
//! Some answer so to each create of a session that has too many nodes for them (ZOOKEEPER-3614).

use std::time::{Duration, Instant};

use testbed::frames::Op;
use testbed::proxy::Request;
use zookeeper_groups::KeptNode;
use zookeeper_recipes::zookeeper_client::Error as ZkError;
use zookeeper_recipes::{Error, Loss};

use crate::support::{ROUND_TRIP, World, at_most, soon, throttle};

/// How often a request is sent before it fails.
const TRIES: usize = 11;

/// Whether the request creates the node of a lock, alone or in a transaction that counts.
fn creates(request: &Request) -> bool {
    request.op == Op::Create2 || request.parts.iter().any(|(op, _)| *op == Op::Create2)
}

fn creates_answered(requests: &[Request]) -> usize {
    requests.iter().filter(|request| creates(request) && request.answer.is_some()).count()
}

fn answered(requests: &[Request], op: Op) -> usize {
    requests.iter().filter(|request| request.op == op && request.answer.is_some()).count()
}

/// The action that was throttled, as the error has it.
fn action(error: Error) -> &'static str {
    assert!(error.is_transient(), "{error:?}");
    match error {
        Error::Client { action, source: ZkError::Throttled, .. } => action,
        error => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn lock_fails_where_every_create_is_throttled() {
    let world = World::with_path().await;
    world.proxy.reset();
    throttle(&world.proxy, creates);
    let error = soon("an error", world.mutex().lock()).await.expect_err("no node is known");
    assert_eq!(action(error), "create a node (the servers throttle it, or the session has too many) under");
    assert_eq!(creates_answered(&world.proxy.requests()), TRIES);
    world.wait_empty().await;
}

#[tokio::test]
async fn lock_fails_where_everything_is_throttled_and_leaves_no_node_behind() {
    let world = World::with_path().await;
    world.proxy.leave_out(|_| false);
    throttle(&world.proxy, |_| true);
    let error = soon("an error", world.mutex().lock()).await.expect_err("no node is known");
    assert!(action(error).starts_with("create a node"));
    throttle(&world.proxy, |_| false);
    world.wait_empty().await;
    let guard = soon("the lock", world.mutex().lock()).await.expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn kept_node_that_is_dropped_is_deleted_however_long_the_servers_throttle() {
    let world = World::with_path().await;
    let path = format!("{}/member", world.path);
    let node = KeptNode::keep(&world.session, &path, b"").expect("a valid path");
    soon("the node", node.created()).await.expect("created");
    world.proxy.reset();
    // What goes ahead of the delete.
    throttle(&world.proxy, |request| request.op == Op::Sync);
    drop(node);
    soon("another request", world.proxy.wait_until(|requests| answered(requests, Op::Sync) > TRIES)).await;
    throttle(&world.proxy, |_| false);
    world.wait_empty().await;
}

#[tokio::test]
async fn lock_fails_where_every_listing_is_throttled() {
    // A session lists a path that it has not seen.
    let world = World::brief().await;
    world.make_path().await;
    world.proxy.reset();
    throttle(&world.proxy, |request| request.op == Op::GetChildren2);
    let began = Instant::now();
    let error = soon("an error", world.mutex().lock()).await.expect_err("its position is not known");
    // Each try after a pause of 20 ms.
    let tries = (Duration::from_millis(20) + ROUND_TRIP) * u32::try_from(TRIES).expect("few");
    assert!(began.elapsed() <= at_most(tries), "{:?}", began.elapsed());
    assert_eq!(action(error), "list");
    assert_eq!(answered(&world.proxy.requests(), Op::GetChildren2), TRIES);
    world.wait_empty().await;
}

#[tokio::test]
async fn request_of_a_user_returns_that_it_is_throttled() {
    let world = World::with_path().await;
    world.proxy.reset();
    throttle(&world.proxy, |request| request.op == Op::GetData);
    let path = world.path.as_str();
    let read = world.session.request(None, |client| async move { client.get_data(path).await });
    assert_eq!(soon("an answer", read).await.expect("answered").err(), Some(ZkError::Throttled));
    assert_eq!(answered(&world.proxy.requests(), Op::GetData), TRIES);
}

#[tokio::test]
async fn release_goes_on_until_throttling_is_over() {
    let world = World::with_path().await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.reset();
    throttle(&world.proxy, |request| request.op == Op::Delete);
    let releasing = tokio::spawn(guard.release());
    soon("many tries", world.proxy.wait_until(|all| answered(all, Op::Delete) > TRIES)).await;
    assert!(!releasing.is_finished());
    throttle(&world.proxy, |_| false);
    soon("the release", releasing).await.expect("no panic").expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn hold_watches_its_node_once_throttling_is_over() {
    let world = World::with_path().await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.reset();
    throttle(&world.proxy, |request| request.op == Op::GetData);
    let losing = tokio::spawn(guard.lost());
    soon("many tries", world.proxy.wait_until(|all| answered(all, Op::GetData) > TRIES)).await;
    assert!(!losing.is_finished());
    throttle(&world.proxy, |_| false);
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", losing).await.expect("no panic"), Loss::Deleted);
}

/// It is asked for again, and a server that throttles is no reason to give a session up.
#[tokio::test]
async fn hold_survives_a_reconnect_on_which_the_listing_of_its_nodes_is_throttled() {
    let world = World::with_path().await;
    let guard = world.mutex().lock().await.expect("held");
    let session = world.session.id();
    throttle(&world.proxy, |request| request.op == Op::GetEphemerals);
    world.proxy.reset();
    world.proxy.cut_now();
    let asked = world.proxy.wait_until(|requests| answered(requests, Op::GetEphemerals) > 2 * TRIES);
    soon("many listings", asked).await;
    world.proxy.rewrite_answers(|_, _| {});
    assert_eq!(world.session.id(), session);
    guard.release().await.expect("still held");
}
