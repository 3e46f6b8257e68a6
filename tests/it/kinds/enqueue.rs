//! Places in the queue as values: their position, and what happens when a place is kept, dropped or awaited.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use testbed::frames::Op;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::{
    Error, HoldState, Loss, MultiLock, Mutex, MutexGuard, Options, RwLock, Semaphore, Waiting,
};

use crate::family::{FAMILY, Held, Kin, Queued};
use crate::support::{BRIEF, World, exact_or, pass, polled, soon};

/// The recipes with places: all but the reentrant mutex, whose calls share one.
fn with_places() -> impl Iterator<Item = &'static Kin> {
    FAMILY.iter().filter(|kin| kin.name != "reentrant mutex")
}

async fn enqueue(kin: &Kin, world: &World) -> Box<dyn Queued> {
    let lock = kin.lock(&world.session, &world.path);
    soon(kin.name, lock.enqueue()).await.expect("queued").expect("a recipe with places")
}

async fn turn(kin: &Kin, waiting: impl Future<Output = Result<Box<dyn Held>, Error>>) -> Box<dyn Held> {
    soon(kin.name, waiting).await.expect("held")
}

/// Polls the place until `count` contenders are ahead.
async fn until_position<G>(waiting: &mut Waiting<G>, count: usize) {
    let reached = poll_fn(|cx| match Pin::new(&mut *waiting).poll(cx) {
        Poll::Ready(_) => panic!("its turn has come, and {count} should be ahead"),
        Poll::Pending if waiting.position() == count => Poll::Ready(()),
        Poll::Pending => Poll::Pending,
    });
    soon(&format!("position {count}"), reached).await;
}

/// Polls the place until it only waits.
async fn until_idle(waiting: &mut (impl Future + Unpin)) {
    let early = tokio::time::timeout(Duration::from_millis(100), waiting).await;
    assert!(early.is_err(), "somebody is ahead");
}

#[tokio::test]
async fn position_in_the_queue_of_a_mutex_counts_down() {
    let world = World::new().await;
    let mutex = world.mutex();
    let free = mutex.enqueue().await.expect("queued");
    assert_eq!(free.position(), 0, "nobody is ahead");
    let first = free.await.expect("held");
    let (second, third) = (mutex.enqueue().await.expect("queued"), mutex.enqueue().await.expect("queued"));
    let mut last = world.other_mutex().await.enqueue().await.expect("queued");
    assert_eq!([second.position(), third.position(), last.position()], [1, 2, 3]);
    drop(third);
    until_position(&mut last, 2).await;
    drop(second);
    until_position(&mut last, 1).await;
    first.release().await.expect("released");
    soon("its turn", last).await.expect("held").release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn reader_counts_writers_and_a_writer_counts_all() {
    let world = World::new().await;
    let lock = RwLock::new(&world.session, &world.path).expect("a lock");
    let reading = lock.read().await.expect("held");
    assert_eq!(lock.enqueue_read().await.expect("queued").position(), 0);
    let one = lock.enqueue_write().await.expect("queued");
    let _behind = lock.enqueue_read().await.expect("queued");
    let other = lock.enqueue_write().await.expect("queued");
    assert_eq!([one.position(), other.position()], [1, 3]);
    let mut last = lock.enqueue_read().await.expect("queued");
    assert_eq!(last.position(), 2, "two writers");
    drop(other);
    until_position(&mut last, 1).await;
    drop(one);
    let last = soon("readers alone", last).await.expect("held");
    assert_eq!(reading.state(), HoldState::Held);
    drop((reading, last, _behind));
    world.wait_empty().await;
}

#[tokio::test]
async fn caller_for_permits_counts_callers_and_then_permits() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.session, &world.path, 3).expect("a semaphore");
    assert_eq!(semaphore.enqueue(3).await.expect("queued").position(), 0);
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(soon("a permit", semaphore.acquire()).await.expect("held"));
    }
    let mut next = semaphore.enqueue(2).await.expect("queued");
    assert_eq!(next.position(), 2, "two permits have to be released");
    let between = semaphore.enqueue(1).await.expect("queued");
    let mut last = semaphore.enqueue(3).await.expect("queued");
    assert_eq!([between.position(), last.position()], [1, 2], "callers");
    drop(between);
    until_position(&mut last, 1).await;
    drop(permits.pop());
    until_position(&mut next, 1).await;
    drop(permits.pop());
    let next = soon("two permits", next).await.expect("held");
    // Its turn has come, and three permits have to be released.
    until_position(&mut last, 3).await;
    drop(next);
    until_position(&mut last, 1).await;
    drop(permits.pop());
    let last = soon("three permits", last).await.expect("held");
    assert_eq!(last.count(), 3);
    last.release().await.expect("released");
    assert!(semaphore.contenders().await.expect("listed").is_empty());
}

#[tokio::test]
async fn waiter_in_several_queues_counts_the_longest() {
    let world = World::new().await;
    let path = |name: &str| format!("{}/{name}", world.path);
    let (a, b) = (Mutex::new(&world.session, &path("a")), Mutex::new(&world.session, &path("b")));
    let (a, b) = (a.expect("a mutex"), b.expect("a mutex"));
    let both = MultiLock::new(&world.session, [path("a"), path("b")]).expect("a multi-lock");
    assert_eq!(both.enqueue().await.expect("queued").position(), 0);
    let (in_a, in_b) = (a.lock().await.expect("held"), b.lock().await.expect("held"));
    let behind = b.enqueue().await.expect("queued");
    let mut waiting = both.enqueue().await.expect("queued");
    assert_eq!(waiting.position(), 2);
    // Its turn has come in the shorter queue; in the longer one it advances.
    in_a.release().await.expect("released");
    drop(behind);
    until_position(&mut waiting, 1).await;
    in_b.release().await.expect("released");
    soon("both", waiting).await.expect("held").release().await.expect("released");
    crate::support::wait_children(&world.admin, &path("a"), 0).await;
    crate::support::wait_children(&world.admin, &path("b"), 0).await;
}

#[tokio::test]
async fn uncontended_place_is_the_hold() {
    for kin in with_places() {
        let world = World::new().await;
        let waiting = enqueue(kin, &world).await;
        assert_eq!(waiting.position(), 0, "{}", kin.name);
        // It excludes others although it has not been awaited.
        let rival = kin.rival(&world.other().await, &world.path);
        assert!(rival.try_hold().await.expect("asked").is_none(), "{}", kin.name);
        let guard = turn(kin, waiting).await;
        assert_eq!(guard.state(), HoldState::Held, "{}", kin.name);
        guard.release().await.expect("released");
        drop(enqueue(kin, &world).await);
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn place_that_is_awaited_by_reference_is_kept() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let mut waiting = world.mutex().enqueue().await.expect("queued");
    let behind = world.other_mutex().await.enqueue().await.expect("queued");
    let names = world.wait_children(3).await;
    for _ in 0..10 {
        tokio::select! {
            _ = &mut waiting => panic!("somebody is ahead"),
            () = tokio::task::yield_now() => {}
        }
        until_idle(&mut waiting).await;
    }
    assert_eq!(world.children().await, names);
    ahead.release().await.expect("released");
    let guard = soon("its turn", &mut waiting).await.expect("held");
    assert_eq!(guard.nodes(), [format!("{}/{}", world.path, names[1])]);
    drop(waiting);
    assert_eq!(guard.state(), HoldState::Held, "the guard is independent of the place");
    guard.release().await.expect("released");
    soon("the waiter behind", behind).await.expect("held").release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn place_keeps_its_turn_until_it_is_awaited() {
    for kin in with_places() {
        let world = World::new().await;
        let rival = kin.rival(&world.other().await, &world.path);
        let guard = rival.hold().await.expect("held");
        let waiting = enqueue(kin, &world).await;
        guard.release().await.expect("released");
        assert!(rival.try_hold().await.expect("asked").is_none(), "{}: it is ahead", kin.name);
        let guard = turn(kin, waiting).await;
        guard.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}

/// Nothing renews the trust in a session without holds.
#[tokio::test]
async fn place_awaited_late_becomes_a_trusted_hold() {
    let world = World::brief().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let waiting = world.mutex().enqueue().await.expect("queued");
    ahead.release().await.expect("released");
    pass(BRIEF * 3 / 2).await;
    let guard = soon("its turn", waiting).await.expect("held");
    assert_eq!(guard.state(), HoldState::Held);
    assert!(guard.valid_for() > exact_or(BRIEF / 3, BRIEF / 8), "trusted for {:?}", guard.valid_for());
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn place_whose_session_ends_queues_again_in_the_next() {
    for kin in with_places() {
        for awaited in [true, false] {
            let world = World::new().await;
            let rival = kin.rival(&world.other().await, &world.path);
            let guard = rival.hold().await.expect("held");
            // Behind the rival's turn, which goes now, the waiter would be in the queue without its permits.
            kin.wait_nodes(&world, guard.nodes().len()).await;
            let mut waiting = enqueue(kin, &world).await;
            kin.wait_nodes(&world, guard.nodes().len() + kin.waiting).await;
            let before = world.session.id();
            if awaited {
                tokio::select! {
                    _ = &mut waiting => panic!("{}: somebody is ahead", kin.name),
                    () = world.expire() => {}
                }
            } else {
                world.expire().await;
            }
            guard.release().await.expect("released");
            let guard = turn(kin, waiting).await;
            assert_ne!(world.session.id(), before, "{}", kin.name);
            assert_eq!(guard.state(), HoldState::Held, "{}", kin.name);
            guard.release().await.expect("released");
            kin.wait_empty(&world).await;
        }
    }
}

#[tokio::test]
async fn hold_lost_before_it_was_awaited_reports_its_loss() {
    // Its node is not watched yet, so the loss is noticed after it was awaited.
    let world = World::new().await;
    let waiting = world.mutex().enqueue().await.expect("queued");
    let node = world.wait_children(1).await.remove(0);
    world.admin.delete(&format!("{}/{node}", world.path), None).await.expect("deleted");
    let guard = soon("its turn", waiting).await.expect("it was held");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Deleted))));
}

/// Another hold of the same session. The place learns of every event before it does.
async fn bystander(world: &World, options: Options) -> MutexGuard {
    let path = format!("{}-beside", world.path);
    Mutex::with_options(&world.session, &path, options).expect("a mutex").lock().await.expect("held")
}

#[tokio::test]
async fn hold_whose_session_ended_before_it_was_awaited_returns_its_loss() {
    for (kin, loss) in with_places().flat_map(|kin| [(kin, Loss::Expired), (kin, Loss::Closed)]) {
        let world = World::new().await;
        let waiting = enqueue(kin, &world).await;
        assert_eq!(waiting.position(), 0, "{}", kin.name);
        let bystander = bystander(&world, Options::new()).await;
        match loss {
            Loss::Closed => world.session.close().await.expect("closed"),
            _ => world.expire().await,
        }
        assert_eq!(soon(kin.name, bystander.lost()).await, loss);
        assert_eq!(soon(kin.name, waiting).await.err(), Some(Error::Lost(loss)), "{}", kin.name);
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn limit_of_a_hold_begins_before_it_is_awaited() {
    let world = World::new().await;
    let options = Options::new().with_stall_limit(BRIEF / 10);
    let mutex = Mutex::with_options(&world.session, &world.path, options.clone()).expect("a mutex");
    let waiting = mutex.enqueue().await.expect("queued");
    assert_eq!(soon("the loss", bystander(&world, options).await.lost()).await, Loss::Stalled);
    let error = soon("the loss", waiting).await.expect_err("its limit began with the grant");
    assert!(matches!(error, Error::Lost(Loss::Stalled)), "{error:?}");
    world.wait_empty().await;
}

#[tokio::test]
async fn place_at_a_free_lock_whose_node_was_deleted_returns_its_loss() {
    let world = World::new().await;
    let waiting = world.mutex().enqueue().await.expect("queued");
    let node = format!("{}/{}", world.path, world.wait_children(1).await.remove(0));
    let bystander = bystander(&world, Options::new()).await;
    for node in [&node, &bystander.nodes()[0]] {
        // It is watched without a listener for its loss.
        let watched = |request: &Request| request.watch && request.path == *node && request.answer.is_some();
        soon("the watch", world.proxy.wait_for(watched)).await;
    }
    world.admin.delete(&node, None).await.expect("deleted");
    world.admin.delete(&bystander.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", bystander.lost()).await, Loss::Deleted);
    let error = soon("an end", waiting).await.expect_err("its node is gone");
    assert!(matches!(error, Error::Lost(Loss::Deleted)), "{error:?}");
    world.wait_empty().await;
}

/// It was granted while nobody polled the call.
#[tokio::test]
async fn hold_that_was_lost_while_nobody_polled_its_call_is_acquired_again() {
    let world = World::new().await;
    let (semaphore, leases) = (Semaphore::new(&world.session, &world.path, 2), format!("{}/leases", world.path));
    let semaphore = semaphore.expect("a semaphore");
    let is_listing = |request: &Request| request.op == Op::GetChildren2 && request.path.ends_with("/leases");
    world.proxy.on_request(move |request| if is_listing(request) { Verdict::Hold } else { Verdict::Forward });
    let mut acquiring = Box::pin(semaphore.acquire_many(2));
    tokio::select! {
        _ = &mut acquiring => panic!("it is not listed yet"),
        _ = world.proxy.wait_for(is_listing) => {}
    }
    world.let_pass();
    let second = format!("{leases}/{}", crate::support::wait_children(&world.admin, &leases, 2).await[1]);
    let watched = |request: &Request| request.watch && request.path == second && request.answer.is_some();
    soon("the watch", world.proxy.wait_for(watched)).await;
    world.admin.delete(&second, None).await.expect("deleted");
    // All events have arrived before this answer.
    world.session.client().expect("a client").check_stat("/").await.expect("asked");
    let permits = soon("others", acquiring).await.expect("held");
    assert!(!permits.nodes().contains(&second));
    assert_eq!(permits.state(), HoldState::Held);
}

#[tokio::test]
async fn place_in_a_closed_session_returns_closed() {
    for kin in with_places() {
        let world = World::new().await;
        let rival = kin.rival(&world.other().await, &world.path);
        let guard = rival.hold().await.expect("held");
        let waiting = enqueue(kin, &world).await;
        let (waited, ended) = soon(kin.name, async { tokio::join!(waiting, world.session.close()) }).await;
        ended.expect("closed");
        let error = waited.expect_err("closed");
        assert!(matches!(error, Error::Closed), "{}: {error:?}", kin.name);
        let again = kin.lock(&world.session, &world.path).enqueue().await;
        assert!(matches!(again, Err(Error::Closed)), "{}", kin.name);
        guard.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
#[should_panic(expected = "resumed after completion")]
async fn place_awaited_after_its_end_panics() {
    let world = World::new().await;
    let mut waiting = world.mutex().enqueue().await.expect("queued");
    let guard = (&mut waiting).await.expect("held");
    guard.release().await.expect("released");
    let _ = waiting.await;
}

#[tokio::test]
async fn enqueue_dropped_at_any_poll_leaves_nothing() {
    for kin in with_places() {
        let world = World::new().await;
        let lock = kin.lock(&world.session, &world.path);
        let rival = kin.rival(&world.other().await, &world.path);
        for held in [false, true] {
            for polls in 1.. {
                let guard = match held {
                    true => Some(rival.hold().await.expect("held")),
                    false => None,
                };
                let waiting = soon(kin.name, polled(polls, lock.enqueue())).await;
                let completed = waiting.is_some();
                drop(waiting);
                kin.wait_nodes(&world, guard.as_ref().map_or(0, |guard| guard.nodes().len())).await;
                if let Some(guard) = guard {
                    guard.release().await.expect("released");
                }
                if completed {
                    assert!(polls > 1, "{}: something was dropped under way", kin.name);
                    break;
                }
            }
        }
        let guard = lock.try_hold().await.expect("asked").expect(kin.name);
        guard.release().await.expect("released");
        kin.wait_empty(&world).await;
    }
}
