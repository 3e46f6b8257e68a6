//! Owners that lock again: which calls share a place and a hold, and which exclude each other.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use testbed::history::{Acquire, History, Model};
use tokio::sync::mpsc;
use zookeeper_recipes::{Error, HoldState, Loss, Owner, ReentrantMutex, ReentrantMutexGuard};

use crate::support::{BRIEF, World, pass, polled, soon, wait_children};

/// Longer than any undelayed call takes, on a busy machine, too.
const MOMENT: Duration = Duration::from_secs(2);

fn mutex(world: &World) -> ReentrantMutex {
    ReentrantMutex::new(&world.session, &world.path).expect("a mutex")
}

async fn other_mutex(world: &World) -> ReentrantMutex {
    ReentrantMutex::new(&world.other().await, &world.path).expect("a mutex")
}

/// Polls `call`, which has to wait, until the queue has `count` nodes.
async fn until_queued<T>(world: &World, count: usize, call: impl Future<Output = T> + Unpin) {
    tokio::select! {
        _ = call => panic!("somebody is ahead"),
        _ = world.wait_children(count) => {}
    }
}

#[tokio::test]
async fn owner_locks_ten_times_without_another_request() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let mut guards = vec![mutex.lock(&owner).await.expect("held")];
    world.proxy.reset();
    for depth in 1..10 {
        guards.push(match depth % 3 {
            0 => mutex.lock(&owner).await.expect("held"),
            1 => mutex.try_lock(&owner).await.expect("asked").expect("ours"),
            _ => mutex.try_lock_for(&owner, MOMENT).await.expect("asked").expect("ours"),
        });
    }
    let token = guards[0].fencing_token();
    assert!(guards.iter().all(|guard| guard.fencing_token() == token && guard.nodes() == guards[0].nodes()));
    while guards.len() > 1 {
        guards.pop().expect("a guard").release().await.expect("released");
    }
    assert!(world.proxy.requests().is_empty(), "{:?}", world.proxy.requests());
    world.wait_children(1).await;
    guards.pop().expect("a guard").release().await.expect("released");
    assert!(world.children().await.is_empty(), "the last release has waited for the delete");
}

#[tokio::test]
async fn guards_may_be_released_in_any_order() {
    let world = World::new().await;
    let (mutex, owner, other) = (mutex(&world), Owner::new(), Owner::new());
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(Some(mutex.lock(&owner).await.expect("held")));
        }
        let mut waiting = pin!(mutex.lock(&other));
        until_queued(&world, 2, waiting.as_mut()).await;
        for (count, &index) in order.iter().enumerate() {
            assert!(futures_util::poll!(waiting.as_mut()).is_pending(), "{count} of {order:?}");
            let guard = guards[index].take().expect("a guard");
            if count % 2 == 0 { guard.release().await.expect("released") } else { drop(guard) }
        }
        let guard = soon("another owner's turn", waiting).await.expect("held");
        guard.release().await.expect("released");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn another_owner_waits_for_the_last_guard() {
    let world = World::new().await;
    let (here, there) = (mutex(&world), other_mutex(&world).await);
    for next in [&here, &there] {
        let (owner, other) = (Owner::new(), Owner::new());
        let outer = here.lock(&owner).await.expect("held");
        let inner = here.lock(&owner).await.expect("held");
        let token = outer.fencing_token();
        assert!(next.try_lock(&other).await.expect("asked").is_none());
        let mut waiting = pin!(next.lock(&other));
        until_queued(&world, 2, waiting.as_mut()).await;
        outer.release().await.expect("released");
        let early = tokio::time::timeout(MOMENT, waiting.as_mut()).await;
        assert!(early.is_err(), "the inner guard is there");
        assert_eq!(inner.state(), HoldState::Held);
        inner.release().await.expect("released");
        let guard = soon("the last guard", waiting).await.expect("held");
        assert!(guard.fencing_token() > token);
        guard.release().await.expect("released");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn handles_of_one_session_know_each_others_owners() {
    let world = World::new().await;
    let owner = Owner::new();
    let clone = world.session.clone();
    let handles = [mutex(&world), mutex(&world), ReentrantMutex::new(&clone, &world.path).expect("a mutex")];
    let outer = handles[0].clone().lock(&owner).await.expect("held");
    for handle in &handles {
        let inner = handle.try_lock(&owner.clone()).await.expect("asked").expect("ours");
        assert_eq!(inner.fencing_token(), outer.fencing_token());
        assert!(handle.try_lock(&Owner::new()).await.expect("asked").is_none(), "another owner");
    }
    world.wait_children(1).await;
    outer.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn guard_outlives_its_handle_and_its_owner() {
    let world = World::new().await;
    let mutex = mutex(&world);
    let guard = {
        let (handle, owner) = (mutex.clone(), Owner::new());
        let inner = handle.lock(&owner).await.expect("held");
        drop(handle.lock(&owner).await.expect("held"));
        inner
    };
    assert!(mutex.try_lock(&Owner::new()).await.expect("asked").is_none());
    guard.release().await.expect("released");
    world.wait_empty().await;
    let guard = mutex.lock(&Owner::new()).await.expect("held");
    drop(mutex);
    drop(guard);
    world.wait_empty().await;
}

#[tokio::test]
async fn calls_of_one_owner_share_a_place() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    let (mut first, mut second) = (pin!(mutex.lock(&owner)), pin!(mutex.lock(&owner)));
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    assert!(futures_util::poll!(second.as_mut()).is_pending());
    let mut third = pin!(mutex.try_lock_for(&owner, Duration::MAX));
    assert!(futures_util::poll!(third.as_mut()).is_pending());
    until_queued(&world, 2, first.as_mut()).await;
    let early =
        tokio::time::timeout(MOMENT, async { tokio::join!(first.as_mut(), second.as_mut(), third.as_mut()) });
    assert!(early.await.is_err(), "somebody is ahead");
    assert_eq!(world.children().await.len(), 2, "one node for all three");
    ahead.release().await.expect("released");
    let shared = async { tokio::join!(first, second, third) };
    let (first, second, third) = soon("all three", shared).await;
    let (first, second) = (first.expect("held"), second.expect("held"));
    let third = third.expect("asked").expect("held");
    assert!([&second, &third].iter().all(|guard| guard.fencing_token() == first.fencing_token()));
    first.release().await.expect("released");
    third.release().await.expect("released");
    world.wait_children(1).await;
    second.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn place_without_waiting_calls_is_abandoned() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    {
        let (mut first, mut second) = (pin!(mutex.lock(&owner)), pin!(mutex.lock(&owner)));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        until_queued(&world, 2, first.as_mut()).await;
    }
    world.wait_children(1).await;
    // It can queue again.
    let mut waiting = pin!(mutex.lock(&owner));
    until_queued(&world, 2, waiting.as_mut()).await;
    ahead.release().await.expect("released");
    soon("its turn", waiting).await.expect("held").release().await.expect("released");
    world.wait_empty().await;
}

/// Releases the guards of all calls that were not dropped.
async fn release_all(guards: impl IntoIterator<Item = ReentrantMutexGuard>) {
    for guard in guards {
        guard.release().await.expect("released");
    }
}

#[tokio::test]
async fn call_that_shares_survives_the_drop_of_the_other_at_any_poll() {
    let world = World::new().await;
    let mutex = mutex(&world);
    for dropped_first in [true, false] {
        for polls in 1.. {
            let owner = Owner::new();
            let cancelled = polled(polls, mutex.lock(&owner));
            let shared = mutex.lock(&owner);
            let both = async {
                if dropped_first {
                    tokio::join!(cancelled, shared)
                } else {
                    let (shared, cancelled) = tokio::join!(shared, cancelled);
                    (cancelled, shared)
                }
            };
            let (cancelled, shared) = soon("the lock", both).await;
            let completed = cancelled.is_some();
            release_all(cancelled.map(|guard| guard.expect("held")).into_iter().chain([shared.expect("held")]))
                .await;
            world.wait_empty().await;
            if completed {
                break;
            }
        }
    }
}

#[tokio::test]
async fn call_that_waits_survives_the_drop_of_the_other_at_any_poll() {
    let world = World::new().await;
    let (mutex, there) = (mutex(&world), other_mutex(&world).await);
    for polls in 1.. {
        let owner = Owner::new();
        let ahead = there.lock(&Owner::new()).await.expect("held");
        let cancelled = async {
            // After enough polls its node is in the queue when it is dropped.
            let call = polled(polls, mutex.lock(&owner));
            tokio::time::timeout(MOMENT, call).await.map(|done| done.map(|guard| guard.expect("held")))
        };
        let shared = mutex.lock(&owner);
        let release = async {
            world.wait_children(2).await;
            ahead.release().await.expect("released");
        };
        let (cancelled, shared, ()) = soon("the lock", async { tokio::join!(cancelled, shared, release) }).await;
        let last = matches!(cancelled, Ok(Some(_)) | Err(_));
        release_all(cancelled.ok().flatten().into_iter().chain([shared.expect("held")])).await;
        world.wait_empty().await;
        if last {
            assert!(polls > 2, "something was dropped under way");
            break;
        }
    }
}

#[tokio::test]
async fn try_of_an_owner_that_waits_elsewhere_returns_none() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    let mut waiting = pin!(mutex.lock(&owner));
    until_queued(&world, 2, waiting.as_mut()).await;
    for limit in [Duration::ZERO, MOMENT] {
        let tried = async {
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("it is held"),
                tried = async { tokio::join!(mutex.try_lock(&owner), mutex.try_lock_for(&owner, limit)) } => tried,
            }
        };
        let (tried, timed) = soon("an answer", tried).await;
        assert!(tried.expect("asked").is_none() && timed.expect("asked").is_none());
        assert_eq!(world.children().await.len(), 2, "the place is kept");
    }
    ahead.release().await.expect("released");
    let guard = soon("its turn", waiting).await.expect("held");
    assert!(mutex.try_lock(&owner).await.expect("asked").is_some());
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn try_that_is_under_way_is_shared_by_a_lock() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    // Uncontended, `lock` shares its hold. Contended, the try ends, and `lock` continues to wait. Another try does not wait.
    let all = async { tokio::join!(mutex.try_lock(&owner), mutex.lock(&owner), mutex.try_lock(&owner)) };
    let (first, second, third) = soon("an answer", all).await;
    assert!(third.expect("not asked").is_none());
    let guards = [first.expect("asked").expect("free"), second.expect("held")];
    assert_eq!(world.children().await.len(), 1);
    release_all(guards).await;
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    let mut tried = pin!(mutex.try_lock(&owner));
    assert!(futures_util::poll!(tried.as_mut()).is_pending());
    let mut waiting = pin!(mutex.lock(&owner));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    assert!(soon("an answer", tried).await.expect("asked").is_none());
    until_queued(&world, 2, waiting.as_mut()).await;
    ahead.release().await.expect("released");
    soon("its turn", waiting).await.expect("held").release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn lock_that_shares_a_try_waits_on_without_an_answer() {
    let world = World::brief().await;
    world.make_path().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    world.proxy.black_hole();
    let mut waiting = Box::pin({
        let (mutex, owner) = (mutex.clone(), owner.clone());
        async move { mutex.lock(&owner).await }
    });
    let mut tried = pin!(mutex.try_lock(&owner));
    assert!(futures_util::poll!(tried.as_mut()).is_pending());
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    let waiting = tokio::spawn(waiting);
    let error = soon("an answer", tried).await.expect_err("no answer");
    assert!(matches!(error, Error::Unavailable { after, .. } if after == BRIEF), "{error:?}");
    world.proxy.heal();
    let guard = soon("the servers", waiting).await.expect("no panic").expect("a lost connection is no error");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn lost_hold_cannot_be_locked_again_until_its_guards_are_gone() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let outer = mutex.lock(&owner).await.expect("held");
    let inner = mutex.lock(&owner).await.expect("held");
    let token = outer.fencing_token();
    world.admin.delete(&outer.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", inner.lost()).await, Loss::Deleted);
    for error in [
        mutex.lock(&owner).await.expect_err("lost"),
        mutex.try_lock(&owner).await.expect_err("lost"),
        mutex.try_lock_for(&owner, MOMENT).await.expect_err("lost"),
        outer.release().await.expect_err("lost"),
        mutex.lock(&owner).await.expect_err("the inner guard is there"),
        inner.release().await.expect_err("lost"),
    ] {
        assert!(matches!(error, Error::Lost(Loss::Deleted)), "{error:?}");
    }
    let guard = mutex.lock(&owner).await.expect("held again");
    assert!(guard.fencing_token() > token);
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn call_that_waits_for_another_returns_the_loss_in_the_meantime() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    let (early, same) = (mutex.clone(), owner.clone());
    let early = tokio::spawn(async move { early.lock(&same).await });
    world.wait_children(2).await;
    let (mut late, mut limited) = (pin!(mutex.lock(&owner)), pin!(mutex.try_lock_for(&owner, Duration::MAX)));
    assert!(futures_util::poll!(late.as_mut()).is_pending());
    assert!(futures_util::poll!(limited.as_mut()).is_pending());
    ahead.release().await.expect("released");
    let early = soon("its turn", early).await.expect("no panic").expect("held");
    world.admin.delete(&early.nodes()[0], None).await.expect("deleted");
    assert_eq!(soon("the loss", early.lost()).await, Loss::Deleted);
    for error in
        [soon("an answer", late).await.expect_err("lost"), soon("an answer", limited).await.expect_err("lost")]
    {
        assert!(matches!(error, Error::Lost(Loss::Deleted)), "{error:?}");
    }
    drop(early);
    let guard = soon("a lock", mutex.lock(&owner)).await.expect("held again");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn calls_that_share_queue_again_together_after_the_end_of_the_session() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    let (sender, mut tokens) = mpsc::unbounded_channel();
    let both = tokio::spawn(async move {
        let (first, second) = tokio::join!(mutex.lock(&owner), mutex.lock(&owner));
        for guard in [first.expect("held"), second.expect("held")] {
            sender.send(guard.fencing_token()).expect("received");
            guard.release().await.expect("released");
        }
    });
    let old = world.wait_children(2).await.remove(1);
    world.expire().await;
    let again = async { while world.wait_children(2).await[1] == old {} };
    soon("its place in the renewed session", again).await;
    ahead.release().await.expect("released");
    soon("both", both).await.expect("no panic");
    assert_eq!(tokens.recv().await, tokens.recv().await);
    world.wait_empty().await;
}

#[tokio::test]
async fn owner_holds_several_paths_in_several_sessions() {
    let world = World::new().await;
    let owner = Owner::new();
    let elsewhere = format!("{}-elsewhere", world.path);
    let other = world.other().await;
    let here = mutex(&world).lock(&owner).await.expect("held");
    let there = ReentrantMutex::new(&world.session, &elsewhere).expect("a mutex");
    let there = there.lock(&owner).await.expect("another path is another lock");
    assert_ne!(here.fencing_token(), there.fencing_token());
    let over = ReentrantMutex::new(&other, &world.path).expect("a mutex");
    assert!(over.try_lock(&owner).await.expect("asked").is_none(), "another session is another contender");
    let mut waiting = pin!(over.lock(&owner));
    until_queued(&world, 2, waiting.as_mut()).await;
    drop(mutex(&world).try_lock(&owner).await.expect("asked").expect("ours"));
    here.release().await.expect("released");
    let over = soon("the other session", waiting).await.expect("held");
    assert_eq!(over.path(), world.path);
    there.release().await.expect("released");
    over.release().await.expect("released");
    world.wait_empty().await;
    wait_children(&world.admin, &elsewhere, 0).await;
}

#[tokio::test]
async fn calls_that_wait_for_one_that_fails_queue_themselves() {
    let world = World::new().await;
    let (mutex, owner) = (mutex(&world), Owner::new());
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    let all = async { tokio::join!(mutex.lock(&owner), mutex.try_lock_for(&owner, Duration::from_secs(50))) };
    let evict = async {
        let names = world.wait_children(2).await;
        world.admin.delete(&format!("{}/{}", world.path, names[1]), None).await.expect("deleted");
        ahead.release().await.expect("released");
    };
    let ((first, second), ()) = soon("an end", async { tokio::join!(all, evict) }).await;
    assert!(matches!(first, Err(Error::Evicted { .. })), "{first:?}");
    second.expect("asked").expect("free").release().await.expect("released");
    let ahead = other_mutex(&world).await.lock(&Owner::new()).await.expect("held");
    let all = async { tokio::join!(mutex.lock(&owner), mutex.lock(&owner)) };
    let close = async {
        world.wait_children(2).await;
        world.session.close().await.expect("closed");
    };
    let ((first, second), ()) = soon("an end", async { tokio::join!(all, close) }).await;
    for error in [
        first.expect_err("closed"),
        second.expect_err("closed"),
        mutex.lock(&owner).await.expect_err("closed"),
        mutex.try_lock(&owner).await.expect_err("closed"),
    ] {
        assert!(matches!(error, Error::Closed), "{error:?}");
    }
    ahead.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn owners_of_many_tasks_exclude_each_other_and_not_themselves() {
    let world = World::new().await;
    let history = History::new();
    let (mutex, owners) = (mutex(&world), [Owner::new(), Owner::new(), Owner::new()]);
    let mut tasks = Vec::new();
    for task in 0..9 {
        let (mutex, owner, process) = (mutex.clone(), owners[task % 3].clone(), history.process("the process"));
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let guard = mutex.lock(&owner).await.expect("held");
                let inner = mutex.lock(&owner).await.expect("held");
                assert_eq!(inner.fencing_token(), guard.fencing_token());
                assert_eq!(inner.state(), HoldState::Held);
                let acquire = Acquire::exclusive("the lock").with_owner(format!("owner {}", task % 3));
                let held = process.acquire(acquire).ok(guard.fencing_token().get());
                pass(Duration::from_millis(1)).await;
                held.release().ok();
                drop(inner);
                if task % 2 == 0 { guard.release().await.expect("released") } else { drop(guard) }
            }
        }));
    }
    for task in tasks {
        soon("a task", task).await.expect("no panic");
    }
    history.judge(Model::ReentrantMutex).assert_clean();
    assert_eq!(history.summary().acquired, 180);
    world.wait_empty().await;
}
