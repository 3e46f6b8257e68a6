//! A share lends permits of a semaphore to the tasks of a process, and keeps them while they are needed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use testbed::frames::Op;
use testbed::next_look;
use zookeeper_recipes::{Error, HoldState, Semaphore, SemaphoreShare, SharePermit};

use crate::support::{
    BRIEF, PATIENCE, ROUND_TRIP, World, at_most, exact_or, hosts, pass, polled, soon, until, wait_children,
};

const PERMITS: u32 = 4;
/// Longer than a test.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(200);

fn semaphore(world: &World) -> Semaphore {
    Semaphore::new(&world.session, &world.path, PERMITS).expect("a semaphore")
}

fn share(world: &World, permits: u32, idle_time: Duration) -> SemaphoreShare {
    SemaphoreShare::new(&semaphore(world), permits).expect("a share").with_idle_time(idle_time)
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

/// A permit that is used, beside one that was given back.
async fn used_and_idle(share: &SemaphoreShare) -> SharePermit {
    let used = soon("a permit", share.acquire()).await.expect("held");
    drop(soon("another", share.acquire()).await.expect("held"));
    used
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
        SemaphoreShare::new(&other(&world).await, 3).expect("a share").with_idle_time(SHORT),
    ];
    let tasks = (0..16).map(|task| {
        let (share, inside) = (&shares[task % 2], &inside);
        async move {
            for _ in 0..20 {
                let permit = match task % 3 {
                    // Cancelled at any of its steps.
                    0 => match polled(task, share.acquire()).await {
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
    let used = used_and_idle(&share).await;
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
    let used = used_and_idle(&share).await;
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
async fn times_of_a_share_may_have_any_value() {
    let world = World::new().await;
    for time in [Duration::ZERO, Duration::MAX] {
        let share = share(&world, 1, time).with_turn(time);
        for _ in 0..3 {
            drop(soon("a permit", share.acquire()).await.expect("held"));
        }
    }
    wait_leases(&world, 0).await;
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
async fn position_outlasts_the_task_and_a_permit_that_nobody_needs_is_released() {
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
    drop(others);
    wait_turns(&world, 0).await;
    wait_leases(&world, 1).await;
    drop(own);
    wait_leases(&world, 0).await;
}

#[tokio::test]
async fn dropping_the_share_releases_what_is_idle_and_later_what_is_used() {
    let world = World::new().await;
    let share = share(&world, 2, LONG);
    let used = used_and_idle(&share).await;
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
    let share = SemaphoreShare::new(&semaphore, 2).expect("a share").with_idle_time(LONG);
    if with_share {
        // Its permits are there before the other worker queues.
        soon("permits", join_all((0..2).map(|_| share.acquire()))).await;
    }
    let held = soon("a permit", holder.acquire()).await.expect("held");
    // It waits, and dies. It wants one permit of the share, or all.
    let (dying, wanted) = (self::semaphore(&world), if with_share { 2 } else { PERMITS });
    let waits = tokio::spawn(async move { dying.acquire_many(wanted).await });
    wait_leases(&world, if with_share { 1 + 2 + 2 } else { 1 + PERMITS as usize }).await;
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
    // Both permits may be looked at for others that wait.
    assert!(with < exact_or(ROUND_TRIP, without / 4), "{with:?} of {without:?}");
}

/// A call that was given up has begun to acquire a permit.
#[tokio::test]
async fn share_never_has_more_permits_than_it_may() {
    let world = World::with_path().await;
    let share = share(&world, 1, LONG);
    assert!(polled(1, share.acquire()).await.is_none());
    let permit = soon("a permit", share.acquire()).await.expect("acquired");
    let contenders = semaphore(&world).contenders().await.expect("listed");
    assert_eq!(contenders.len(), 1, "{contenders:?}");
    drop(permit);
}

#[tokio::test]
async fn idle_permit_is_not_lent_once_a_drain_has_begun() {
    let world = World::new().await;
    let share = share(&world, 1, LONG);
    drop(soon("a permit", share.acquire()).await.expect("acquired"));
    let mut drain = Box::pin(world.session.drain(PATIENCE));
    assert!(polled(1, &mut drain).await.is_none());
    // The task that gives the permit back has not run.
    let acquired = share.acquire().now_or_never();
    assert!(!matches!(acquired, Some(Ok(_))), "{acquired:?}");
    assert_eq!(soon("the drain", drain).await, Ok(0));
}

/// Each has more to do than its permits allow.
#[tokio::test]
async fn processes_that_are_more_than_the_permits_take_turns() {
    let world = World::new().await;
    let began = Instant::now();
    let (first_calls, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let mut processes = Vec::new();
    for _ in 0..5 {
        let semaphore = Semaphore::new(&world.other().await, &world.path, 3).expect("a semaphore");
        let share = SemaphoreShare::new(&semaphore, 2).expect("a share");
        let (first_calls, calls, is_first) = (first_calls.clone(), calls.clone(), Arc::new(AtomicBool::new(true)));
        let tasks = (0..4).map(move |_| {
            let (share, first_calls, calls, is_first) =
                (share.clone(), first_calls.clone(), calls.clone(), is_first.clone());
            async move {
                loop {
                    let permit = share.acquire().await.expect("held");
                    if is_first.swap(false, Ordering::SeqCst) {
                        first_calls.lock().expect("no panic").push(began.elapsed());
                    }
                    pass(Duration::from_millis(40)).await;
                    calls.fetch_add(1, Ordering::SeqCst);
                    drop(permit);
                }
            }
        });
        processes.push(tokio::spawn(join_all(tasks).map(drop)));
    }
    until("the first call of each", || first_calls.lock().expect("no panic").len() == processes.len()).await;
    let last = first_calls.lock().expect("no panic").iter().max().copied().expect("one");
    pass(Duration::from_secs(5)).await;
    processes.iter().for_each(|process| process.abort());
    let rate = calls.load(Ordering::SeqCst) as f64 / began.elapsed().as_secs_f64();
    println!(
        "{} processes, 3 permits: last first call after {last:.2?}, {rate:.0} calls a second",
        processes.len()
    );
    assert!(last < at_most(Duration::from_millis(1_500)), "{last:?}");
    // Permits are used for 40 ms each.
    let ideal = 3.0 * 25.0;
    assert!(rate > exact_or(0.9, 0.1) * ideal, "{rate} calls a second");
}
