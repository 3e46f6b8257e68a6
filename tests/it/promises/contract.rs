//! The contract of every lock, written once and run for each.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::Server;
use testbed::ledger::Ledger;
use testbed::proxy::{Proxy, Request, Verdict};
use tokio::task::JoinHandle;
use zookeeper_recipes::{DistributedLock, Error, FencingToken, HoldState, Loss, Options};

use crate::recipes::*;
use crate::support::{ROUND_TRIP, World, assert_took, at_most, children, connect, ends_at, exact_or, soon};

macro_rules! contract {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn excludes() {
                super::excludes(&$of).await;
            }

            rows!($of =>
                queues_in_order, hands_over, tries, limits_time, releases_when_dropped, reports_its_loss,
                loses_it_when_its_work_stands_still, grants_the_second_lock_of_a_killed_session_in_the_next,
                notices_a_release_between_its_listing_and_its_watch, passes_over_a_dead_waiter_in_the_middle,
                is_granted_to_the_next_when_its_holder_dies,
                queues_again_at_the_tail_when_its_session_ends, is_lost_when_a_node_is_deleted
            );
        }
    )*};
}

for_all_recipes!(contract);
contract! { both => BOTH; }

async fn excludes(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let ledger = Ledger::new();
    let workers = (0..5).map(async |worker| {
        let session = world.other().await;
        let lock = if worker == 0 { recipe.lock } else { recipe.other }(&session, &world.path);
        for _ in 0..10 {
            let guard = lock.lock().await.expect("held");
            let entry = ledger.enter(format!("worker {worker}"), guard.fencing_token().get());
            tokio::task::yield_now().await;
            entry.leave();
            guard.release().await.expect("released");
        }
        session.close().await.expect("closed");
    });
    soon("50 holds", futures_util::future::join_all(workers)).await;
    ledger.assert_clean();
    assert_eq!(ledger.grants().len(), 50);
    world.wait_empty().await;
}

/// Waiters in the order of their arrival, who note when they are granted the lock.
#[derive(Default)]
struct Waiters {
    granted: Arc<StdMutex<Vec<(usize, FencingToken)>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Waiters {
    /// Comes back when the new waiter is in the queue.
    async fn join(&mut self, world: &World, recipe: &Recipe, lock: Arc<dyn DistributedLock>) {
        let (waiter, granted) = (self.tasks.len(), self.granted.clone());
        self.tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.expect("held");
            granted.lock().expect("unpoisoned").push((waiter, guard.fencing_token()));
            guard.release().await.expect("released");
        }));
        world.wait_children((recipe.nodes)(waiter + 1)).await;
    }

    async fn granted(self) -> Vec<(usize, FencingToken)> {
        for waiter in self.tasks {
            soon("a waiter's turn", waiter).await.expect("no panic");
        }
        self.granted.lock().expect("unpoisoned").clone()
    }
}

async fn queues_in_order(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let guard = (recipe.lock)(&world.session, &world.path).lock().await.expect("held");
    let mut waiters = Waiters::default();
    for waiter in 0..6 {
        let lock = if waiter % 2 == 0 { recipe.other } else { recipe.lock };
        waiters.join(&world, recipe, lock(&world.other().await, &world.path)).await;
    }
    guard.release().await.expect("released");
    let granted = waiters.granted().await;
    assert!(granted.is_sorted(), "in order of arrival, with growing tokens: {granted:?}");
    assert_eq!(granted.len(), 6);
}

async fn hands_over(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let other = (recipe.other)(&world.other().await, &world.path);
    let mut token = None;
    let mut guard = lock.lock().await.expect("held");
    for turn in 0..10 {
        let (from, to) = if turn % 2 == 0 { (&guard, &other) } else { (&guard, &lock) };
        assert!(token < Some(from.fencing_token()), "tokens grow");
        token = Some(from.fencing_token());
        let mut next = std::pin::pin!(to.lock());
        assert!(futures_util::poll!(&mut next).is_pending());
        // Its node is in the queue before the release.
        tokio::select! {
            _ = &mut next => panic!("two holders"),
            _ = world.wait_children((recipe.nodes)(1)) => {}
        }
        guard.release().await.expect("released");
        guard = soon("the next turn", next).await.expect("held");
    }
    drop(guard);
    world.wait_empty().await;
}

async fn tries(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let other = (recipe.other)(&world.other().await, &world.path);
    let guard = lock.try_lock().await.expect("asked").expect("free, though the path did not exist");
    let asked = Instant::now();
    assert!(other.try_lock().await.expect("asked").is_none(), "held by another session");
    assert!(asked.elapsed() <= at_most(ROUND_TRIP / 2), "{:?}, not one round trip", asked.elapsed());
    let same = (recipe.other)(&world.session, &world.path);
    assert!(same.try_lock().await.expect("asked").is_none(), "held by the same session");
    guard.release().await.expect("released");
    let guard = other.try_lock().await.expect("asked").expect("free again");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

async fn limits_time(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let other = (recipe.other)(&world.other().await, &world.path);
    let guard = lock.try_lock_for(Duration::MAX).await.expect("asked").expect("free");
    let asked = Instant::now();
    assert!(other.try_lock_for(Duration::ZERO).await.expect("asked").is_none(), "held");
    assert!(asked.elapsed() <= at_most(ROUND_TRIP / 2), "{:?}, not one round trip", asked.elapsed());
    let limit = exact_or(Duration::from_millis(500), Duration::from_secs(2));
    assert!(ends_at(limit, other.try_lock_for(limit)).await.expect("asked").is_none(), "held for longer");
    world.wait_children((recipe.nodes)(0)).await;
    let waiting = tokio::spawn(async move { other.try_lock_for(Duration::from_secs(50)).await });
    world.wait_children((recipe.nodes)(1)).await;
    guard.release().await.expect("released");
    let guard = soon("the wait", waiting).await.expect("no panic").expect("asked").expect("in time");
    guard.release().await.expect("released");
    let guard = lock.try_lock_for(Duration::ZERO).await.expect("asked").expect("free");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

async fn releases_when_dropped(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    drop(lock.lock().await.expect("held"));
    // The delete was sent before this create.
    let guard = lock.try_lock().await.expect("asked").expect("free");
    let waiting = (recipe.other)(&world.other().await, &world.path);
    let waiting = tokio::spawn(async move { waiting.lock().await.map(|guard| guard.fencing_token()) });
    world.wait_children((recipe.nodes)(1)).await;
    drop(guard);
    soon("the waiter", waiting).await.expect("no panic").expect("held");
    world.wait_empty().await;
}

async fn reports_its_loss(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let guard = lock.lock().await.expect("held");
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(guard.run_until_lost(async { 7 }).await, Ok(7));
    let lost = guard.lost();
    world.expire().await;
    assert_eq!(soon("the loss", lost).await, Loss::Expired);
    assert_eq!(guard.state(), HoldState::Lost(Loss::Expired));
    assert_eq!(guard.run_until_lost(std::future::pending::<()>()).await, Err(Loss::Expired));
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Expired))));
    let guard = soon("a new session", lock.lock()).await.expect("held in the renewed session");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

async fn loses_it_when_its_work_stands_still(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let limited = Options::new().with_stall_limit(Duration::from_secs(1));
    let lock = (recipe.lock)(&world.session.clone().with_lock_options(limited), &world.path);
    let other = (recipe.other)(&world.other().await, &world.path);
    let guard = lock.lock().await.expect("held");
    let waiting = tokio::spawn(async move { other.lock().await });
    let (lost, began) = (guard.lost(), Instant::now());
    guard.progress();
    assert_eq!(soon("the loss", lost).await, Loss::Stalled);
    assert_took(began, Duration::from_secs(1));
    let next = soon("its turn", waiting).await.expect("no panic").expect("held");
    assert!(next.fencing_token() > guard.fencing_token());
    guard.progress();
    assert_eq!(guard.state(), HoldState::Lost(Loss::Stalled));
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Stalled))));
    next.release().await.expect("released");
    world.wait_empty().await;
}

async fn grants_the_second_lock_of_a_killed_session_in_the_next(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let first = (recipe.lock)(&world.session, &world.path);
    let second = (recipe.other)(&world.session, &world.path);
    let guard = first.lock().await.expect("held");
    let waiting = tokio::spawn(async move { second.lock().await });
    world.wait_children((recipe.nodes)(1)).await;
    world.expire().await;
    let next = soon("the second", waiting).await.expect("no panic").expect("held in the renewed session");
    assert_eq!(guard.state(), HoldState::Lost(Loss::Expired));
    assert!(guard.fencing_token() < next.fencing_token());
    let again = tokio::spawn(async move { first.lock().await });
    world.wait_children((recipe.nodes)(1)).await;
    next.release().await.expect("released");
    let again = soon("the first, again", again).await.expect("no panic").expect("held");
    again.release().await.expect("released");
    world.wait_empty().await;
}

async fn notices_a_release_between_its_listing_and_its_watch(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let ahead = (recipe.lock)(&world.other().await, &world.path).lock().await.expect("held");
    let lock = (recipe.other)(&world.session, &world.path);
    world.proxy.on_request(|request| if request.watch { Verdict::Hold } else { Verdict::Forward });
    let waiting = tokio::spawn(async move { lock.lock().await });
    soon("the watch", world.proxy.wait_for(|request| request.watch)).await;
    ahead.release().await.expect("released");
    world.let_pass();
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

async fn passes_over_a_dead_waiter_in_the_middle(recipe: &Recipe) {
    let (world, dead) = (World::of(recipe).await, World::of(recipe).await);
    let guard = (recipe.lock)(&world.session, &world.path).lock().await.expect("held");
    let mut waiting = Vec::new();
    for (index, lock) in [
        (recipe.other)(&world.other().await, &world.path),
        (recipe.lock)(&dead.session, &world.path),
        (recipe.other)(&world.other().await, &world.path),
    ]
    .into_iter()
    .enumerate()
    {
        waiting.push(tokio::spawn(async move { lock.lock().await }));
        world.wait_children((recipe.nodes)(index + 1)).await;
    }
    dead.kill().await;
    world.wait_children((recipe.nodes)(2)).await;
    guard.release().await.expect("released");
    let [first, dead, last] = waiting.try_into().expect("three");
    let first = soon("the first", first).await.expect("no panic").expect("held");
    assert!(!last.is_finished(), "one at a time");
    let token = first.fencing_token();
    first.release().await.expect("released");
    let last = soon("the last", last).await.expect("no panic").expect("held");
    assert!(token < last.fencing_token());
    last.release().await.expect("released");
    assert!(!dead.is_finished(), "it has learned nothing");
    world.wait_empty().await;
    dead.abort();
}

async fn is_granted_to_the_next_when_its_holder_dies(recipe: &Recipe) {
    let (world, dead) = (World::of(recipe).await, World::of(recipe).await);
    let guard = (recipe.lock)(&dead.session, &world.path).lock().await.expect("held");
    let next = (recipe.other)(&world.session, &world.path);
    let next = tokio::spawn(async move { next.lock().await });
    world.wait_children((recipe.nodes)(1)).await;
    dead.kill().await;
    let next = soon("the next", next).await.expect("no panic").expect("held");
    assert!(guard.fencing_token() < next.fencing_token());
    next.release().await.expect("released");
    world.wait_empty().await;
}

async fn queues_again_at_the_tail_when_its_session_ends(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let guard = (recipe.lock)(&world.other().await, &world.path).lock().await.expect("held");
    let mut waiters = Waiters::default();
    for session in [world.session.clone(), world.other().await] {
        waiters.join(&world, recipe, (recipe.other)(&session, &world.path)).await;
    }
    let before = world.session.id();
    world.expire().await;
    // Its nodes are gone by now, and the new ones are at the tail.
    world.wait_children((recipe.nodes)(2)).await;
    assert_ne!(world.session.id(), before);
    assert_eq!(guard.state(), HoldState::Held);
    guard.release().await.expect("released");
    let granted = waiters.granted().await;
    assert!(matches!(granted[..], [(1, first), (0, second)] if first < second), "{granted:?}");
    world.wait_empty().await;
}

async fn is_lost_when_a_node_is_deleted(recipe: &Recipe) {
    let world = World::of(recipe).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let guard = lock.lock().await.expect("held");
    let lost = guard.lost();
    // The semaphore's leases come last.
    let parent = format!("{}{}", world.path, recipe.dirs.last().expect("a folder"));
    let node = format!("{parent}/{}", children(&world.admin, &parent).await[0]);
    world.admin.delete(&node, None).await.expect("deleted");
    assert_eq!(soon("the loss", lost).await, Loss::Deleted);
    assert_eq!((guard.state(), guard.valid_for()), (HoldState::Lost(Loss::Deleted), Duration::ZERO));
    assert!(matches!(guard.release().await, Err(Error::Lost(Loss::Deleted))));
    // It has given up its other nodes, too.
    world.wait_empty().await;
    lock.lock().await.expect("held").release().await.expect("released");
}

macro_rules! named_recipes {
    ($($recipe:ident => $of:expr;)*) => { [$((stringify!($recipe), &$of)),*] };
}

/// Uses a server of its own, which reports its watches for all sessions together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_that_time_out_leave_no_watch() {
    let server = Server::start().await.expect("a server");
    let (holds, waits) = (Proxy::start(&server.hosts()).await, Proxy::start(&server.hosts()).await);
    let (holds, waits) = (holds.expect("a proxy"), waits.expect("a proxy"));
    let (holder, waiter) = (connect(&holds.hosts()).await, connect(&waits.hosts()).await);
    let set = |request: &Request| request.watch && request.answer.is_some_and(|answer| answer.err == 0);
    let tried = for_all_recipes!(named_recipes).map(async |(name, recipe)| {
        let path = format!("/{name}");
        let guard = (recipe.lock)(&holder, &path).lock().await.expect("held");
        let (other, below) = ((recipe.other)(&waiter, &path), format!("{path}/"));
        let has_watched =
            || waits.requests().iter().any(|request| set(request) && request.path.starts_with(&below));
        // On a machine that stalls, the limit may have passed before it waits.
        while !has_watched() {
            match other.try_lock_for(Duration::from_secs(3)).await {
                Ok(None) | Err(Error::Unavailable { .. }) => {}
                tried => panic!("{name} is held: {:?}", tried.err()),
            }
        }
        guard
    });
    let guards = soon("all time limits", join_all(tried)).await;
    // A hold watches its own nodes after a while.
    let own = || holds.requests().iter().filter(|request| set(request)).count();
    let count = async || {
        let counts = server.four_letter_word("mntr").await.expect("it answers");
        let count = counts.lines().find_map(|line| line.strip_prefix("zk_watch_count")).expect("a count");
        count.trim().parse::<usize>().expect("a number")
    };
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    soon("the end of all watches but the holders'", async {
        while count().await != own() {
            beat.tick().await;
        }
    })
    .await;
    for guard in guards {
        guard.release().await.expect("released");
    }
}
