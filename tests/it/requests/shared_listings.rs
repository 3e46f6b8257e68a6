//! Callers of one session that need the same listing at the same time share it, and its outcome.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, poll_immediate, try_join_all};
use testbed::frames::Op;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::zookeeper_client::Permission;
use zookeeper_recipes::{Error, Mutex, MutexGuard, Result, Waiting};

use crate::support::{World, soon};

/// How many callers list at once. All do so before the first answer, since nothing else runs until each has been polled
/// once.
const CALLERS: usize = 8;

/// One is sent at once, and one later for all remaining callers.
const LISTINGS: usize = 2;

/// The error of a server that has no such node.
const NO_NODE: i32 = -101;

async fn places(mutex: &Mutex) -> Result<Vec<Waiting<MutexGuard>>> {
    try_join_all((0..CALLERS).map(|_| mutex.enqueue())).await
}

#[tokio::test]
async fn waiters_of_one_session_share_their_listings() {
    // Nothing is sent to renew trust meanwhile.
    let world = World::new().await;
    let _ahead = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    let places = soon("all are queued", places(&world.mutex())).await.expect("enqueued");
    let counts = (world.count(Op::Create2), world.listings());
    assert_eq!(counts, (CALLERS, LISTINGS), "{:?}", world.proxy.requests());
    let mut positions: Vec<_> = places.iter().map(Waiting::position).collect();
    positions.sort_unstable();
    assert_eq!(positions, Vec::from_iter(1..=CALLERS), "each sees all contenders ahead");
}

#[tokio::test]
async fn searches_after_a_cut_share_their_listings() {
    const MANY: usize = 300;
    // Usually about five, more if the callers are slow. It must not be one each.
    const AT_MOST: usize = MANY / 10;
    let world = World::new().await;
    let _ahead = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    world.proxy.on_request(|_| Verdict::Hold);
    let mutex = world.mutex();
    let places = tokio::spawn(async move { try_join_all((0..MANY).map(|_| mutex.enqueue())).await });
    soon("creates", world.proxy.wait_for_requests(MANY)).await;
    world.proxy.on_request(|_| Verdict::Forward);
    world.proxy.cut_now();
    world.proxy.heal();
    let places = soon("all are queued", places).await.expect("no panic").expect("enqueued");
    let listings = || world.listings();
    println!("{} listings for {MANY} waiters after a cut", listings());
    assert!(listings() <= AT_MOST, "{}", listings());
    world.proxy.reset();
    drop(places);
    world.wait_children(1).await;
    println!("{} listings for {MANY} dropped places", listings());
    assert!(listings() <= AT_MOST, "{}", listings());
}

/// A listing does not show the nodes of creates that were sent behind it. If these were read first, a quorum would be asked for each.
#[tokio::test]
async fn creates_that_were_sent_behind_a_listing_are_read_behind_it() {
    let world = World::new().await;
    let _ahead = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    world.proxy.on_request(|_| Verdict::Hold);
    let mutex = world.mutex();
    let waiting = tokio::spawn(async move { places(&mutex).await });
    soon("creates", world.proxy.wait_for_requests(CALLERS)).await;
    world.proxy.on_request(|_| Verdict::Forward);
    // All answers are there when the first is read.
    world.proxy.hold_answers(Duration::from_millis(100));
    world.proxy.cut_now();
    world.proxy.heal();
    let _places = soon("all are queued", waiting).await.expect("no panic").expect("enqueued");
    let is_proof = |request: &Request| {
        request.op == Op::Multi && request.parts.iter().all(|(op, path)| *op == Op::Check && path.contains("/_c_"))
    };
    let requests = world.proxy.requests();
    assert_eq!(requests.iter().filter(|request| is_proof(request)).count(), 0, "{requests:?}");
}

type Places = Vec<Result<Waiting<MutexGuard>>>;

/// A world whose proxy holds listings, and the callers that wait for them.
async fn held_listings() -> (World, BoxFuture<'static, Places>) {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.reset();
    world.proxy.on_request(|request| match request.op {
        Op::GetChildren2 => Verdict::Hold,
        _ => Verdict::Forward,
    });
    let mutex = world.mutex();
    let mut calls = async move { join_all((0..CALLERS).map(|_| mutex.enqueue())).await }.boxed();
    assert!(poll_immediate(&mut calls).await.is_none());
    // What comes behind the listing waits in the proxy.
    soon("a listing", world.proxy.wait_for(|one| one.op == Op::GetChildren2)).await;
    (world, calls)
}

#[tokio::test]
async fn nothing_is_listed_for_dropped_callers() {
    let (world, calls) = held_listings().await;
    drop(calls);
    world.let_pass();
    soon("an answer", world.proxy.wait_for(|one| world.is_listing(one) && one.answer.is_some())).await;
    // It is answered after that.
    assert!(world.session.client().expect("a client").check_stat("/").await.expect("asked").is_some());
    world.wait_empty().await;
    assert_eq!(world.listings(), 1, "for the dropped callers");
    drop(world.mutex().lock().await.expect("held"));
    assert!(world.listings() <= LISTINGS, "at most one for the later one");
}

#[tokio::test]
async fn callers_that_share_a_listing_share_a_refusal() {
    let world = World::new().await;
    world.restrict(Permission::CREATE | Permission::DELETE).await;
    let mutex = world.mutex();
    let refused = join_all((0..CALLERS).map(|_| mutex.enqueue()));
    for refused in soon("refusals", refused).await {
        let error = refused.expect_err("nobody may list");
        assert!(matches!(&error, Error::NoAuth { path } if *path == world.path), "{error:?}");
    }
}

/// Callers that do not queue look before they write, and find no path.
#[tokio::test]
async fn callers_that_share_a_listing_share_its_absence() {
    let world = World::new().await;
    let mutex = world.mutex();
    world.proxy.reset();
    let tried = soon("listings", try_join_all((0..CALLERS).map(|_| mutex.try_lock()))).await.expect("asked");
    assert_eq!(tried.iter().flatten().count(), 1, "one of them holds");
    let is_absent =
        |one: &&Request| world.is_listing(one) && one.answer.is_some_and(|answer| answer.err == NO_NODE);
    let absent = world.proxy.requests().iter().filter(is_absent).count();
    assert!((1..=LISTINGS).contains(&absent), "{:?}", world.proxy.requests());
}

#[tokio::test]
async fn caller_does_not_share_a_listing_that_was_sent_before_it_came() {
    let world = World::new().await;
    world.make_path().await;
    let other = world.other_mutex().await;
    world.proxy.reset();
    world.proxy.hold_answers(Duration::from_secs(1));
    let (mutex, same) = (world.mutex(), world.mutex());
    let (mut first, mut late) = (pin!(mutex.try_lock()), pin!(same.try_lock()));
    assert!(poll_immediate(&mut first).await.is_none());
    // It is on its way back.
    soon("the first listing", world.proxy.wait_for(|one| one.answer.is_some())).await;
    let waiting = other.enqueue().await.expect("enqueued");
    assert!(poll_immediate(&mut late).await.is_none());
    let (first, late) = soon("both", async { tokio::join!(first, late) }).await;
    assert!(first.expect("asked").is_none(), "another one is ahead of the node that it created");
    assert!(late.expect("asked").is_none(), "it is shown the other one");
    assert_eq!(world.creates(), 1, "of the first, whose listing was sent before: {:?}", world.proxy.requests());
    drop(waiting);
    world.wait_empty().await;
}
