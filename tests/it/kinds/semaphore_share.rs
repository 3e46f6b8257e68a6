//! A share lends permits of a semaphore to the tasks of a process, and keeps them while they are needed.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use testbed::frames::Op;
use testbed::next_look;
use zookeeper_recipes::{Error, HoldState, Semaphore, SemaphoreShare};

use crate::support::{BRIEF, PATIENCE, ROUND_TRIP, World, at_most, exact_or, hosts, polled, soon, wait_children};

const PERMITS: u32 = 4;
/// Longer than a test.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(200);

fn semaphore(world: &World) -> Semaphore {
    Semaphore::new(&world.session, &world.path, PERMITS).expect("a semaphore")
}

fn share(world: &World, permits: u32, idle_time: Duration) -> SemaphoreShare {
    SemaphoreShare::with_idle_time(&semaphore(world), permits, idle_time).expect("a share")
}

async fn other(world: &World) -> Semaphore {
    Semaphore::new(&world.other().await, &world.path, PERMITS).expect("a semaphore")
}

async fn wait_leases(world: &World, count: usize) {
    wait_children(&world.admin, &format!("{}/leases", world.path), count).await;
}

async fn wait_turns(world: &World, count: usize) {
    wait_children(&world.admin, &format!("{}/locks", world.path), count).await;
}

#[tokio::test]
async fn share_has_at_least_one_permit_and_at_most_those_of_the_semaphore() {
    let world = World::new().await;
    for permits in [0, PERMITS + 1] {
        let refused = SemaphoreShare::new(&semaphore(&world), permits).err();
        assert!(matches!(refused, Some(Error::InvalidInput { .. })), "{refused:?}");
    }
    assert!(SemaphoreShare::new(&semaphore(&world), PERMITS).is_ok());
}

#[tokio::test]
async fn tasks_of_two_processes_never_use_more_than_the_semaphore_has() {
    let world = World::new().await;
    let inside = AtomicUsize::new(0);
    let shares = [
        share(&world, 3, SHORT),
        SemaphoreShare::with_idle_time(&other(&world).await, 3, SHORT).expect("a share"),
    ];
    let tasks = (0..16).map(|task| {
        let (share, inside) = (&shares[task % 2], &inside);
        async move {
            for _ in 0..20 {
                let permit = match task % 3 {
                    0 => match share.try_acquire().await.expect("asked") {
                        Some(permit) => permit,
                        None => continue,
                    },
                    // Cancelled at any of its steps.
                    1 => match polled(task, share.acquire()).await {
                        Some(permit) => permit.expect("held"),
                        None => continue,
                    },
                    _ => share.acquire().await.expect("held"),
                };
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(now <= PERMITS as usize, "{now} of {PERMITS}");
                assert_eq!(permit.state(), HoldState::Held);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        }
    });
    // They would have six: a share gets what the other leaves idle.
    soon("all tasks", join_all(tasks)).await;
    wait_leases(&world, 0).await;
    wait_turns(&world, 0).await;
}

#[tokio::test]
async fn permit_is_lent_again_without_a_request() {
    let world = World::with_path().await;
    let share = share(&world, 1, LONG);
    let first = soon("a permit", share.acquire()).await.expect("held");
    let node = first.nodes().to_vec();
    let next = share.acquire();
    tokio::pin!(next);
    assert!(next.as_mut().now_or_never().is_none(), "the share is in use");
    assert!(soon("asked", share.try_acquire()).await.expect("asked").is_none());
    // The share acquires in a task of its own, whose turn is still being given up.
    wait_turns(&world, 0).await;
    drop(first);
    let (creates, deletes) = (world.creates(), world.count(Op::Delete));
    for _ in 0..100 {
        // A waiter of the share comes first.
        let permit = soon("the permit", next.as_mut()).await.expect("held");
        assert_eq!(permit.nodes(), node);
        next.set(share.acquire());
    }
    assert_eq!((world.creates(), world.count(Op::Delete)), (creates, deletes));
}

#[tokio::test]
async fn idle_permits_are_released_after_the_idle_time_and_no_sooner() {
    let world = World::new().await;
    let share = share(&world, 3, SHORT);
    let permits = soon("permits", join_all((0..3).map(|_| share.acquire()))).await;
    wait_leases(&world, 3).await;
    let returned = Instant::now();
    let kept = permits.into_iter().next().expect("three").expect("held");
    wait_leases(&world, 1).await;
    let took = returned.elapsed();
    // Two deletions, one after the other, and the listings by which this test sees them.
    assert!(took >= SHORT && took <= at_most(SHORT + 4 * ROUND_TRIP), "after {took:?}");
    // The one that is used stays, and is idle from its return on.
    assert_eq!(kept.state(), HoldState::Held);
    drop(kept);
    wait_leases(&world, 0).await;
    // It grows again.
    drop(soon("a permit", share.acquire()).await.expect("held"));
}

#[tokio::test]
async fn permits_are_released_when_asked_back_idle_ones_at_once() {
    let world = World::new().await;
    let (share, other) = (share(&world, 2, LONG), other(&world).await);
    let (used, idle) = (
        soon("a permit", share.acquire()).await.expect("held"),
        soon("a permit", share.acquire()).await.expect("held"),
    );
    drop(idle);
    for holder in soon("the holders", other.holders()).await.expect("listed") {
        assert!(soon("asked", other.revoke(&holder)).await.expect("asked"));
    }
    wait_leases(&world, 1).await;
    soon("the request", used.revoke_requested()).await;
    assert_eq!(used.state(), HoldState::Held, "its task goes on");
    drop(used);
    wait_leases(&world, 0).await;
}

#[tokio::test]
async fn drain_waits_for_tasks_and_not_for_idle_permits() {
    let world = World::new().await;
    let share = share(&world, 2, LONG);
    let (used, idle) = (
        soon("a permit", share.acquire()).await.expect("held"),
        soon("a permit", share.acquire()).await.expect("held"),
    );
    drop(idle);
    let drained = tokio::spawn({
        let session = world.session.clone();
        async move { session.drain(PATIENCE).await }
    });
    soon("the request", used.revoke_requested()).await;
    wait_leases(&world, 1).await;
    drop(used);
    assert_eq!(soon("drained", drained).await.expect("no panic").expect("closed"), 0);
    assert!(soon("asked", share.acquire()).await.is_err(), "nothing is acquired any more");
}

#[tokio::test]
async fn lost_permits_are_not_lent() {
    let world = World::new().await;
    let share = share(&world, 2, LONG);
    let used = soon("a permit", share.acquire()).await.expect("held");
    let token = soon("a permit", share.acquire()).await.expect("held").fencing_token();
    world.expire().await;
    soon("the loss", used.lost()).await;
    drop(used);
    let after = soon("a permit of the next session", share.acquire()).await.expect("held");
    assert!(after.fencing_token() > token);
    let second = soon("another", share.acquire()).await.expect("held");
    assert!(second.fencing_token() > token);
    wait_leases(&world, 2).await;
}

#[tokio::test]
async fn suspended_permit_is_lent_when_it_is_held_again() {
    let world = World::new().await;
    let share = share(&world, 1, LONG);
    let permit = soon("a permit", share.acquire()).await.expect("held");
    world.proxy.refuse();
    soon("the outage", async {
        while permit.state() == HoldState::Held {
            permit.changed().await;
        }
    })
    .await;
    drop(permit);
    let mut next = Box::pin(share.acquire());
    assert!(polled(1, &mut next).await.is_none(), "in an outage nothing is certain");
    world.proxy.heal();
    assert_eq!(soon("the permit", next).await.expect("held").state(), HoldState::Held);
    wait_leases(&world, 1).await;
}

#[tokio::test]
async fn position_outlasts_the_task_and_is_left_when_it_is_not_needed() {
    let world = World::new().await;
    let (share, other) = (share(&world, 2, BRIEF), other(&world).await);
    let waits = || {
        let share = share.clone();
        tokio::spawn(async move { share.acquire().await.expect("held") })
    };
    let own = soon("a permit", share.acquire()).await.expect("held");
    let others = soon("the others", other.acquire_many(PERMITS - 1)).await.expect("held");
    let waiter = waits();
    wait_turns(&world, 1).await;
    // It gets the one that is returned, and the share stays in the queue for the next.
    drop(own);
    let own = soon("the one that is returned", waiter).await.expect("no panic");
    wait_turns(&world, 1).await;
    let waiter = waits();
    drop(others);
    let grown = soon("another", waiter).await.expect("no panic");
    assert_ne!(grown.nodes(), own.nodes());
    wait_turns(&world, 0).await;
    drop(grown);
    let others = soon("the others", other.acquire_many(PERMITS - 1)).await.expect("held");
    let waiter = waits();
    wait_turns(&world, 1).await;
    waiter.abort();
    wait_turns(&world, 0).await;
    drop((own, others));
    wait_leases(&world, 0).await;
}

#[tokio::test]
async fn dropping_the_share_releases_what_is_idle_and_later_what_is_used() {
    let world = World::new().await;
    let share = share(&world, 2, LONG);
    let (used, idle) = (
        soon("a permit", share.acquire()).await.expect("held"),
        soon("a permit", share.acquire()).await.expect("held"),
    );
    drop(idle);
    drop(share);
    wait_leases(&world, 1).await;
    assert_eq!(used.state(), HoldState::Held);
    drop(used);
    wait_leases(&world, 0).await;
}

/// How long a worker waits for a permit at most, from the death of a waiter on.
async fn stall_of_a_worker(timeout: Duration, with_share: bool) -> Duration {
    let world = World::at(&hosts(), timeout).await;
    let holder = other(&world).await;
    let semaphore = other(&world).await;
    let share = SemaphoreShare::with_idle_time(&semaphore, 2, LONG).expect("a share");
    if with_share {
        // Its permits are there before the other worker queues.
        soon("permits", join_all((0..2).map(|_| share.acquire()))).await;
    }
    let held = soon("a permit", holder.acquire()).await.expect("held");
    // It wants all, so it waits, and dies.
    let dying = self::semaphore(&world);
    let waits = tokio::spawn(async move { dying.acquire_many(PERMITS).await });
    wait_turns(&world, 1).await;
    world.proxy.refuse();
    let (died, mut longest) = (Instant::now(), Duration::ZERO);
    while died.elapsed() < timeout * 2 {
        let asked = Instant::now();
        if with_share {
            drop(soon("a permit of the share", share.acquire()).await.expect("held"));
        } else {
            drop(soon("a permit", semaphore.acquire()).await.expect("held"));
        }
        longest = longest.max(asked.elapsed());
        next_look().await;
    }
    waits.abort();
    drop(held);
    longest
}

#[tokio::test]
async fn dead_waiter_stops_nobody_in_a_process_that_has_its_share() {
    let timeout = 3 * BRIEF;
    let (without, with) = join(stall_of_a_worker(timeout, false), stall_of_a_worker(timeout, true)).await;
    println!(
        "a worker dies in the queue, T = {timeout:?}: another one stalls for {without:.2?}, with a share for {with:.2?}"
    );
    // The servers last heard from it up to a fifth of its timeout before, and end its session within a tick of 500 ms.
    assert!(without > timeout * 4 / 5 && without < at_most(timeout + BRIEF / 8 + 3 * ROUND_TRIP), "{without:?}");
    assert!(with < exact_or(Duration::from_millis(1), without / 4), "{with:?} of {without:?}");
}

/// A call that was given up has begun to acquire a permit.
#[tokio::test]
async fn share_never_has_more_permits_than_it_may() {
    let world = World::with_path().await;
    let share = share(&world, 1, LONG);
    assert!(polled(1, share.acquire()).await.is_none());
    let tried = soon("an answer", share.try_acquire()).await.expect("asked");
    let permit = soon("a permit", share.acquire());
    let permit = match tried {
        Some(permit) => permit,
        None => permit.await.expect("acquired"),
    };
    let contenders = semaphore(&world).contenders().await.expect("listed");
    assert_eq!(contenders.len(), 1, "{contenders:?}");
    drop(permit);
}

/// The other permit is acquired for a task that waits.
#[tokio::test]
async fn permit_is_tried_beside_one_that_is_being_acquired() {
    let world = World::with_path().await;
    let share = share(&world, 2, LONG);
    let mut waits = pin!(share.acquire());
    assert!(polled(1, &mut waits).await.is_none());
    let tried = soon("an answer", share.try_acquire()).await.expect("asked");
    assert!(tried.is_some());
    drop(soon("a permit", waits).await.expect("acquired"));
}

#[tokio::test]
async fn idle_permit_is_not_lent_once_a_drain_has_begun() {
    let world = World::new().await;
    let share = share(&world, 1, LONG);
    drop(soon("a permit", share.acquire()).await.expect("acquired"));
    let mut drain = Box::pin(world.session.drain(PATIENCE));
    assert!(polled(1, &mut drain).await.is_none());
    // The task that gives the permit back has not run.
    let tried = share.try_acquire().now_or_never();
    assert!(!matches!(tried, Some(Ok(Some(_)))), "{tried:?}");
    assert_eq!(soon("the drain", drain).await, Ok(0));
}

/// A call waits until an idle permit is held again, and is not polled any more.
#[tokio::test]
async fn idle_permit_is_not_taken_by_a_call_that_nobody_polls() {
    let world = World::new().await;
    let share = share(&world, 1, LONG);
    drop(soon("a permit", share.acquire()).await.expect("acquired"));
    let mut states = world.session.states();
    world.proxy.refuse();
    soon("the cut", states.wait_for(|state| !state.is_connected())).await.expect("not closed");
    let mut waits = pin!(share.acquire());
    assert!(polled(1, &mut waits).await.is_none());
    world.proxy.heal();
    soon("a connection", states.wait_for(|state| state.is_connected())).await.expect("not closed");
    assert_eq!(soon("the drain", world.session.drain(2 * PATIENCE)).await, Ok(0));
}

/// The first of two waiting calls is not polled any more.
#[tokio::test]
async fn returned_permit_is_taken_by_a_call_that_is_polled() {
    let world = World::new().await;
    let permits = other(&world).await;
    let _taken = soon("the others", permits.acquire_many(PERMITS - 1)).await.expect("acquired");
    let share = share(&world, PERMITS - 1, LONG);
    let permit = soon("a permit", share.acquire()).await.expect("acquired");
    let mut first = pin!(share.acquire());
    assert!(polled(1, &mut first).await.is_none());
    let mut second = pin!(share.acquire());
    assert!(polled(1, &mut second).await.is_none());
    drop(permit);
    soon("the permit", second).await.map(drop).expect("acquired");
}
