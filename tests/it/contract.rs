//! What every lock must do, written once and run for each.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use testbed::ledger::Ledger;
use zookeeper_recipes::{Error, HoldState, Loss};

use crate::recipes::*;
use crate::support::{TIMEOUT, World, soon};

macro_rules! contract {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn excludes() {
                super::excludes(&$of).await;
            }

            #[tokio::test]
            async fn queues_in_order() {
                super::queues_in_order(&$of).await;
            }

            #[tokio::test]
            async fn hands_over() {
                super::hands_over(&$of).await;
            }

            #[tokio::test]
            async fn tries() {
                super::tries(&$of).await;
            }

            #[tokio::test]
            async fn limits_time() {
                super::limits_time(&$of).await;
            }

            #[tokio::test]
            async fn releases_when_dropped() {
                super::releases_when_dropped(&$of).await;
            }

            #[tokio::test]
            async fn tells_of_its_hold() {
                super::tells_of_its_hold(&$of).await;
            }
        }
    )*};
}

for_all_recipes!(contract);

async fn excludes(recipe: &Recipe) {
    let world = World::of(recipe, TIMEOUT).await;
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

async fn queues_in_order(recipe: &Recipe) {
    let world = World::of(recipe, TIMEOUT).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let guard = lock.lock().await.expect("held");
    let order = Arc::new(StdMutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for waiter in 0..6 {
        let lock = if waiter % 2 == 0 { recipe.other } else { recipe.lock };
        let (lock, order) = (lock(&world.other().await, &world.path), order.clone());
        waiters.push(tokio::spawn(async move {
            let guard = lock.lock().await.expect("held");
            order.lock().expect("unpoisoned").push((waiter, guard.fencing_token()));
            guard.release().await.expect("released");
        }));
        // The next one joins when this one is in line.
        world.wait_children((recipe.nodes)(waiter + 1)).await;
    }
    guard.release().await.expect("released");
    for waiter in waiters {
        soon("a waiter's turn", waiter).await.expect("no panic");
    }
    let order = order.lock().expect("unpoisoned");
    assert!(order.is_sorted(), "in order of arrival, with growing tokens: {order:?}");
    assert_eq!(order.len(), 6);
}

async fn hands_over(recipe: &Recipe) {
    let world = World::of(recipe, TIMEOUT).await;
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
        // Its node is in line before the release.
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
    let world = World::of(recipe, TIMEOUT).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let other = (recipe.other)(&world.other().await, &world.path);
    let guard = lock.try_lock().await.expect("asked").expect("free, though the path did not exist");
    assert!(other.try_lock().await.expect("asked").is_none(), "held by another session");
    let same = (recipe.other)(&world.session, &world.path);
    assert!(same.try_lock().await.expect("asked").is_none(), "held by the same session");
    guard.release().await.expect("released");
    let guard = other.try_lock().await.expect("asked").expect("free again");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

async fn limits_time(recipe: &Recipe) {
    let world = World::of(recipe, TIMEOUT).await;
    let lock = (recipe.lock)(&world.session, &world.path);
    let other = (recipe.other)(&world.other().await, &world.path);
    let guard = lock.try_lock_for(Duration::MAX).await.expect("asked").expect("free");
    for limit in [Duration::ZERO, Duration::from_millis(500)] {
        assert!(other.try_lock_for(limit).await.expect("asked").is_none(), "held for longer than {limit:?}");
    }
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
    let world = World::of(recipe, TIMEOUT).await;
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

async fn tells_of_its_hold(recipe: &Recipe) {
    let world = World::of(recipe, TIMEOUT).await;
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
