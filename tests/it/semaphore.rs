//! Permits are never more than there are, and are given out in turn, all that one wants at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use testbed::ledger::Ledger;
use zookeeper_recipes::{Error, HoldState, Loss, Semaphore};

use crate::support::{TIMEOUT, World, soon};

const PERMITS: u32 = 7;

fn semaphore(world: &World, permits: u32) -> Semaphore {
    Semaphore::new(&world.session, &world.path, permits).expect("a semaphore")
}

async fn other(world: &World, permits: u32) -> Semaphore {
    Semaphore::new(&world.other().await, &world.path, permits).expect("a semaphore")
}

async fn wait_counts(world: &World, turns: usize, leases: usize) {
    crate::support::wait_children(&world.admin, &format!("{}/locks", world.path), turns).await;
    crate::support::wait_children(&world.admin, &format!("{}/leases", world.path), leases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_sessions_never_have_more_than_there_are() {
    let world = World::new().await;
    let ledger = Ledger::with_capacity_limit(PERMITS as usize);
    let most = Arc::new(AtomicUsize::new(0));
    let inside = Arc::new(AtomicUsize::new(0));
    let workers = (0..10).map(async |worker| {
        let semaphore = other(&world, PERMITS).await;
        let mut random = Rng::with_seed(worker);
        for _ in 0..20 {
            let count = random.u32(1..=PERMITS);
            let permit = match random.u8(0..4) {
                0 => match semaphore.try_acquire_many_for(count, Duration::from_millis(random.u64(0..50))).await {
                    Ok(Some(permit)) => permit,
                    Ok(None) | Err(Error::Unavailable { .. }) => continue,
                    Err(error) => panic!("{error}"),
                },
                _ => semaphore.acquire_many(count).await.expect("held"),
            };
            assert_eq!(permit.count(), count);
            let entries: Vec<_> = (0..count)
                .map(|_| ledger.enter(format!("worker {worker}"), permit.fencing_token().get()))
                .collect();
            let now = inside.fetch_add(count as usize, Ordering::SeqCst) + count as usize;
            most.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            inside.fetch_sub(count as usize, Ordering::SeqCst);
            drop(entries);
            match random.bool() {
                true => permit.release().await.expect("released"),
                false => drop(permit),
            }
        }
    });
    soon("200 acquires", futures_util::future::join_all(workers)).await;
    ledger.assert_clean();
    let most = most.load(Ordering::SeqCst);
    println!("most permits in use at once: {most} of {PERMITS}");
    assert!((2..=PERMITS as usize).contains(&most), "some were in use at once, never too many: {most}");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn two_callers_of_two_of_two_both_finish() {
    let world = World::new().await;
    let (one, two) = (semaphore(&world, 2), other(&world, 2).await);
    let work = async |semaphore: Semaphore| {
        for _ in 0..25 {
            semaphore.acquire_many(2).await.expect("held").release().await.expect("released");
        }
    };
    soon("both", async { tokio::join!(work(one), work(two)) }).await;
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn who_wants_many_is_not_overtaken_by_those_who_want_one() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 3);
    let held = semaphore.acquire().await.expect("held");
    let many = other(&world, 3).await;
    let many = tokio::spawn(async move { many.acquire_many(3).await });
    wait_counts(&world, 1, 4).await;
    let one = other(&world, 3).await;
    assert!(one.try_acquire().await.expect("asked").is_none(), "somebody is ahead");
    let one = tokio::spawn(async move { one.acquire().await });
    wait_counts(&world, 2, 4).await;
    assert_eq!(semaphore.available_permits().await.expect("asked"), 0, "the free two are spoken for");
    held.release().await.expect("released");
    let many = soon("all three", many).await.expect("no panic").expect("held");
    assert!(!one.is_finished(), "all three are in use");
    assert_eq!(semaphore.holders().await.expect("listed").len(), 3);
    many.release().await.expect("released");
    soon("the one", one).await.expect("no panic").expect("held").release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn who_gives_up_waiting_for_many_leaves_nothing() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 3);
    let held = semaphore.acquire().await.expect("held");
    let other = other(&world, 3).await;
    let none = other.try_acquire_many_for(3, Duration::from_millis(200)).await.expect("asked");
    assert!(none.is_none(), "one is in use");
    wait_counts(&world, 0, 1).await;
    assert_eq!(semaphore.available_permits().await.expect("asked"), 2);
    let two = other.try_acquire_many(2).await.expect("asked").expect("free");
    assert!(other.try_acquire().await.expect("asked").is_none(), "all are in use");
    two.release().await.expect("released");
    held.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn lease_deleted_by_hand_is_told_and_lets_the_next_in() {
    let world = World::new().await;
    let held = semaphore(&world, 2).acquire_many(2).await.expect("held");
    let waiting = other(&world, 2).await;
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    wait_counts(&world, 1, 3).await;
    let lost = held.lost();
    world.admin.delete(&held.nodes()[1], None).await.expect("deleted");
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
    // The loss of one is the loss of all: the other one is given back as well.
    soon("the next", waiting).await.expect("no panic").expect("held").release().await.expect("released");
    wait_counts(&world, 0, 0).await;
    assert_eq!(held.state(), HoldState::Lost(Loss::Deleted));
}

#[tokio::test]
async fn turn_deleted_by_hand_is_told_and_nobody_starves() {
    let world = World::new().await;
    let semaphore = semaphore(&world, 2);
    let held = semaphore.acquire().await.expect("held");
    let first = other(&world, 2).await;
    let first = tokio::spawn(async move { first.acquire_many(2).await });
    wait_counts(&world, 1, 3).await;
    let second = other(&world, 2).await;
    let second = tokio::spawn(async move { second.acquire().await });
    wait_counts(&world, 2, 3).await;
    let turns = semaphore.contenders().await.expect("listed");
    let turn = turns.iter().find(|one| one.path().ends_with("/locks")).expect("a turn");
    assert!(semaphore.break_lock(turn).await.expect("asked"), "it was there");
    // Who waited with that turn is told, gives up its leases, and the one behind it comes in.
    let error = soon("the eviction", first).await.expect("no panic").expect_err("its turn is gone");
    assert!(matches!(error, Error::Evicted { .. }), "{error}");
    let second = soon("the second", second).await.expect("no panic").expect("held");
    held.release().await.expect("released");
    second.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn lease_of_a_waiter_deleted_by_hand_is_told() {
    let world = World::new().await;
    let held = semaphore(&world, 1).acquire().await.expect("held");
    let waiting = other(&world, 1).await;
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    wait_counts(&world, 1, 2).await;
    let leases = semaphore(&world, 1).contenders().await.expect("listed");
    let lease = leases.iter().find(|one| one.path().ends_with("/leases") && !one.is_holder()).expect("a lease");
    world.admin.delete(&format!("{}/{}", lease.path(), lease.name()), None).await.expect("deleted");
    let error = soon("the eviction", waiting).await.expect("no panic").expect_err("its lease is gone");
    assert!(matches!(error, Error::Evicted { .. }), "{error}");
    held.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn client_that_allows_fewer_waits_and_nothing_breaks() {
    let world = World::new().await;
    let (many, few) = (semaphore(&world, 3), other(&world, 1).await);
    let one = many.acquire().await.expect("held");
    let two = many.acquire().await.expect("held");
    assert_eq!(few.available_permits().await.expect("asked"), 0, "two are in use, it allows one");
    assert!(few.try_acquire().await.expect("asked").is_none());
    let waiting = tokio::spawn(async move { few.acquire().await });
    wait_counts(&world, 1, 3).await;
    // It waits with its turn, and those behind it wait with it.
    assert!(many.try_acquire().await.expect("asked").is_none());
    one.release().await.expect("released");
    assert!(!waiting.is_finished(), "one is still in use");
    two.release().await.expect("released");
    let few = soon("the smaller", waiting).await.expect("no panic").expect("held");
    let one = many.try_acquire_many(2).await.expect("asked").expect("the larger has room");
    few.release().await.expect("released");
    one.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn holder_that_dies_gives_its_permits_back() {
    let world = World::new().await;
    let held = semaphore(&world, 2).acquire_many(2).await.expect("held");
    let waiting = other(&world, 2).await;
    let waiting = tokio::spawn(async move { waiting.acquire_many(2).await });
    wait_counts(&world, 1, 4).await;
    world.expire().await;
    soon("the next", waiting).await.expect("no panic").expect("held").release().await.expect("released");
    assert_eq!(soon("the loss", held.lost()).await, Loss::Expired);
    wait_counts(&world, 0, 0).await;
}

#[tokio::test]
async fn waiter_with_its_turn_whose_session_ends_queues_again() {
    let world = World::new().await;
    let held = other(&world, 1).await.acquire().await.expect("held");
    let waiting = semaphore(&world, 1);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    wait_counts(&world, 1, 2).await;
    world.expire().await;
    wait_counts(&world, 1, 2).await;
    held.release().await.expect("released");
    let held = soon("the waiter", waiting).await.expect("no panic").expect("held");
    assert!(held.valid_for() > TIMEOUT / 4);
    held.release().await.expect("released");
    wait_counts(&world, 0, 0).await;
}
