//! Callers of one session that need the same listing at the same time share it, and its outcome.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, poll_immediate, try_join_all};
use testbed::frames::Op;
use testbed::proxy::{Cut, Request, Verdict};
use zookeeper_recipes::zookeeper_client::Permission;
use zookeeper_recipes::{Contender, Error, Mutex, MutexGuard, Result, Waiting};

use crate::support::{PATIENCE, UNHURRIED, World, connect_for, hosts, soon};
use crate::weather::restricted;

/// How many callers list at once. All do so before the first answer, since nothing else runs until each has been polled
/// once.
const CALLERS: usize = 8;

/// Four are sent at once, and one later for all remaining callers.
const LISTINGS: usize = 5;

async fn places(mutex: &Mutex) -> Result<Vec<Waiting<MutexGuard>>> {
    try_join_all((0..CALLERS).map(|_| mutex.enqueue())).await
}

#[tokio::test]
async fn waiters_of_one_session_share_their_listings() {
    // Nothing is sent to renew trust meanwhile.
    let world = World::at(&hosts(), UNHURRIED).await;
    let _ahead = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    let places = soon("all are queued", places(&world.mutex())).await.expect("enqueued");
    let counts = (world.count(Op::Create2), world.count(Op::GetChildren));
    assert_eq!(counts, (CALLERS, LISTINGS), "{:?}", world.proxy.requests());
    let mut positions: Vec<_> = places.iter().map(Waiting::position).collect();
    positions.sort_unstable();
    assert_eq!(positions, Vec::from_iter(1..=CALLERS), "each sees all contenders ahead");
}

#[tokio::test]
async fn callers_that_share_a_listing_share_the_loss_of_the_connection() {
    // These are all frames. Each has a world of its own, because the nodes of a lost create are searched for again
    // later.
    let rounds = (1..=CALLERS + LISTINGS).flat_map(|k| [Cut::AfterRequest(k), Cut::BeforeAnswer(k)]);
    let rounds = rounds.map(|cut| async move {
        let world = World::at(&hosts(), UNHURRIED).await;
        let other = connect_for(&world.hosts, UNHURRIED).await;
        let _ahead = Mutex::new(&other, &world.path).expect("a mutex").lock().await.expect("held");
        world.proxy.reset();
        world.proxy.cut(cut);
        let places = soon("all are queued", places(&world.mutex())).await.expect("enqueued");
        assert!(world.proxy.cut_fired(), "{cut:?}");
        world.wait_children(1 + CALLERS).await;
        drop(places);
        world.wait_children(1).await;
    });
    join_all(rounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_after_a_cut_share_their_listings() {
    const MANY: usize = 300;
    // Usually about 25, more if the callers are slow. It must not be one each.
    const AT_MOST: usize = MANY / 2;
    let world = World::at(&hosts(), UNHURRIED).await;
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
    let listings = || world.count(Op::GetChildren);
    println!("{} listings for {MANY} waiters after a cut", listings());
    assert!(listings() <= AT_MOST, "{}", listings());
    world.proxy.reset();
    drop(places);
    world.wait_children(1).await;
    println!("{} listings for {MANY} dropped places", listings());
    assert!(listings() <= AT_MOST, "{}", listings());
}

#[tokio::test]
async fn callers_that_share_a_listing_share_the_end_of_the_session() {
    for k in [CALLERS, CALLERS + LISTINGS - 1] {
        let world = World::new().await;
        let _ahead = world.other_mutex().await.lock().await.expect("held");
        let mutex = world.mutex();
        world.proxy.reset();
        // A caller that is queued before the black hole would lose its place with the session, and is not polled any
        // more.
        world.proxy.hold_answers(PATIENCE);
        world.proxy.black_hole_after_request(k);
        let asked = tokio::spawn({
            let mutex = mutex.clone();
            async move { places(&mutex).await }
        });
        soon("requests", world.proxy.wait_for_requests(k)).await;
        world.proxy.hold_answers(Duration::ZERO);
        world.expire().await;
        let places = soon("all are queued again", asked).await.expect("no panic").expect("enqueued");
        world.wait_children(1 + CALLERS).await;
        drop(places);
        world.wait_children(1).await;
    }
}

type Seen = Vec<Result<Vec<Contender>>>;

/// A world whose proxy holds listings, and the callers that wait for them.
async fn held_listings() -> (World, BoxFuture<'static, Seen>) {
    let world = World::at(&hosts(), UNHURRIED).await;
    world.make_path().await;
    world.proxy.reset();
    world.proxy.on_request(|request| match request.op {
        Op::GetChildren => Verdict::Hold,
        _ => Verdict::Forward,
    });
    let mutex = world.mutex();
    let mut calls = async move { join_all((0..CALLERS).map(|_| mutex.contenders())).await }.boxed();
    assert!(poll_immediate(&mut calls).await.is_none());
    soon("all that are sent", world.proxy.wait_for_requests(LISTINGS - 1)).await;
    (world, calls)
}

#[tokio::test]
async fn nothing_is_listed_for_dropped_callers() {
    let (world, calls) = held_listings().await;
    drop(calls);
    world.proxy.on_request(|_| Verdict::Forward);
    world.proxy.heal();
    soon("answers", world.proxy.wait_for(|request| request.number == LISTINGS - 1 && request.answer.is_some()))
        .await;
    // It is answered after them.
    assert!(world.session.client().expect("a client").check_stat("/").await.expect("asked").is_some());
    assert!(world.mutex().contenders().await.expect("listed").is_empty());
    assert_eq!(world.count(Op::GetChildren), LISTINGS, "four for the dropped callers, and one for the later one");
}

#[tokio::test]
async fn callers_that_share_a_listing_share_a_refusal() {
    let world = World::new().await;
    restricted(&world, Permission::CREATE | Permission::DELETE).await;
    let mutex = world.mutex();
    let refused = join_all((0..CALLERS).map(|_| mutex.enqueue()));
    for refused in soon("refusals", refused).await {
        let error = refused.expect_err("nobody may list");
        assert!(matches!(&error, Error::NoAuth { path } if *path == world.path), "{error:?}");
    }
}

#[tokio::test]
async fn callers_that_share_a_listing_share_its_absence() {
    let world = World::new().await;
    let mutex = world.mutex();
    world.proxy.reset();
    let seen = soon("listings", try_join_all((0..CALLERS).map(|_| mutex.contenders()))).await.expect("listed");
    assert!(seen.iter().all(Vec::is_empty), "{seen:?}");
    assert_eq!(world.proxy.requests().len(), LISTINGS, "{:?}", world.proxy.requests());
}

#[tokio::test]
async fn callers_that_wait_for_a_listing_end_with_the_session() {
    let (world, calls) = held_listings().await;
    let session = world.session.clone();
    let closed = tokio::spawn(async move { session.close().await });
    for seen in soon("the end", calls).await {
        assert!(matches!(seen, Err(Error::Closed)), "{seen:?}");
    }
    world.proxy.on_request(|_| Verdict::Forward);
    world.proxy.heal();
    soon("closed", closed).await.expect("no panic").expect("closed");
    assert_eq!(world.count(Op::GetChildren), LISTINGS - 1, "nothing is listed for ended calls");
}

#[tokio::test]
async fn caller_does_not_share_a_listing_that_was_sent_before_it_came() {
    let world = World::at(&hosts(), UNHURRIED).await;
    world.make_path().await;
    let other = world.other_mutex().await;
    world.proxy.reset();
    let mutex = world.mutex();
    let call = || {
        let mutex = mutex.clone();
        async move { mutex.contenders().await }.boxed()
    };
    let (mut calls, mut shared) = ((1..LISTINGS).map(|_| call()).collect::<Vec<_>>(), call());
    for call in calls.iter_mut().chain([&mut shared]) {
        assert!(poll_immediate(call).await.is_none());
    }
    let answered = |number| move |one: &Request| one.number == number && one.answer.is_some();
    soon("the first", world.proxy.wait_for(answered(LISTINGS - 1))).await;
    // The next answer waits in the proxy, which cannot be asked meanwhile.
    let (arrived, mut arrives) = tokio::sync::mpsc::unbounded_channel();
    let (goes_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    world.proxy.rewrite_answers(move |one, _| {
        if one.number == LISTINGS {
            let _ = arrived.send(());
            let _ = wait.lock().expect("no panic").recv();
        }
    });
    // A listing that is dropped makes room for the shared one.
    drop(calls.pop());
    soon("the shared one", arrives.recv()).await;
    let waiting = other.enqueue().await.expect("enqueued");
    let mut late = call();
    assert!(poll_immediate(&mut late).await.is_none());
    goes_on.send(()).expect("the proxy waits");
    drop(calls);
    assert_eq!(soon("the shared one", shared).await.expect("listed").len(), 0, "it was sent before");
    assert_eq!(soon("the next", late).await.expect("listed").len(), 1, "its caller came later");
    drop(waiting);
}
