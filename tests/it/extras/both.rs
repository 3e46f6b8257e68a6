//! Two locks as one, beside holders of either.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zookeeper_recipes::{Both, DistributedLock, HoldState, Loss, Mutex, Options, Session};

use crate::support::{World, assert_took, soon};

/// The old lock of a session, the new one, and both.
fn locks(world: &World, session: &Session) -> [Arc<dyn DistributedLock>; 3] {
    let epoch = Options::new().with_token_epoch(1);
    let lock = |name, options: Options| -> Arc<dyn DistributedLock> {
        Arc::new(Mutex::with_options(session, &format!("{}/{name}", world.path), options).expect("a mutex"))
    };
    let [old, new] = [lock("old", Options::new()), lock("new", epoch)];
    [old.clone(), new.clone(), Arc::new(Both::new(old, new))]
}

async fn nodes(world: &World, name: &str) -> usize {
    let children = world.admin.list_children(&format!("{}/{name}", world.path)).await;
    children.map_or(0, |children| children.len())
}

#[tokio::test]
async fn excludes_holders_of_either_and_has_the_token_of_the_new_one() {
    let world = World::new().await;
    let [_, _, both] = locks(&world, &world.session);
    let [old, new, _] = locks(&world, &world.other().await);
    for one in [&old, &new] {
        let held = one.lock().await.expect("held");
        assert!(both.try_lock().await.expect("an answer").is_none());
        held.release().await.expect("released");
    }
    let guard = both.lock().await.expect("held");
    assert_eq!(guard.fencing_token().epoch(), 1);
    for one in [&old, &new] {
        assert!(one.try_lock().await.expect("an answer").is_none());
    }
    guard.release().await.expect("released");
    assert_eq!((nodes(&world, "old").await, nodes(&world, "new").await), (0, 0));
}

#[tokio::test]
async fn loss_of_either_is_the_loss_of_both() {
    let world = World::new().await;
    let [old, new, both] = locks(&world, &world.session);
    for one in [&old, &new] {
        let guard = both.lock().await.expect("held");
        let contender = one.contenders().await.expect("listed").remove(0);
        assert!(both.break_lock(&contender).await.expect("an answer"));
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
        assert_eq!((guard.state(), guard.valid_for()), (HoldState::Lost(Loss::Deleted), Duration::ZERO));
        drop(guard);
    }
    both.lock().await.expect("held").release().await.expect("released");
}

#[tokio::test]
async fn begins_again_when_the_old_one_is_lost_behind_the_new_one() {
    let world = World::new().await;
    let [old, _, both] = locks(&world, &world.session);
    let [_, new, _] = locks(&world, &world.other().await);
    let ahead = new.lock().await.expect("held");
    let waiting = tokio::spawn({
        let both = both.clone();
        async move { both.lock().await }
    });
    while nodes(&world, "new").await < 2 {
        testbed::next_look().await;
    }
    let before = old.contenders().await.expect("listed").remove(0);
    assert!(old.break_lock(&before).await.expect("an answer"));
    while old.contenders().await.expect("listed").first().is_none_or(|one| one.name() == before.name()) {
        testbed::next_look().await;
    }
    ahead.release().await.expect("released");
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    assert_eq!(guard.state(), HoldState::Held);
}

#[tokio::test]
async fn limit_is_of_both_and_a_call_that_ends_leaves_nothing() {
    let world = World::new().await;
    let [_, _, both] = locks(&world, &world.session);
    let [_, new, _] = locks(&world, &world.other().await);
    let ahead = new.lock().await.expect("held");
    let (began, limit) = (Instant::now(), Duration::from_secs(2));
    assert!(both.try_lock_for(limit).await.expect("an answer").is_none());
    assert_took(began, limit);
    let dropped = tokio::time::timeout(limit, both.lock()).await;
    assert!(dropped.is_err());
    while nodes(&world, "old").await > 0 || nodes(&world, "new").await > 1 {
        testbed::next_look().await;
    }
    drop(ahead);
}
