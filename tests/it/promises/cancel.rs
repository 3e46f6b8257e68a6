//! A future may be dropped after any frame to or from the servers. Nothing is left, and the lock stays usable.

use std::pin::pin;
use std::time::Duration;

use zookeeper_recipes::{Error, LockGuard};

use crate::recipes::*;
use crate::support::{World, polled, soon, until_frame};
use crate::ways::{Scene, for_all_scenes};

/// The call that is cancelled.
#[derive(Clone, Copy, Debug)]
enum Call {
    Lock,
    TryLock,
    TryLockFor,
}

type Outcome = Result<Option<Box<dyn LockGuard>>, Error>;

async fn call(recipe: &Recipe, world: &World, call: Call) -> Outcome {
    let lock = (recipe.lock)(&world.session, &world.path);
    match call {
        Call::Lock => lock.lock().await.map(Some),
        Call::TryLock => lock.try_lock().await,
        Call::TryLockFor => lock.try_lock_for(Duration::from_secs(30)).await,
    }
}

/// Drops a call on an uncontended lock after 1, 2, 3… frames, until it completes.
async fn uncontended(recipe: &Recipe, how: Call) {
    let world = World::of(recipe).await;
    for frames in 1.. {
        let done = soon("frames", until_frame(&world.proxy, frames, call(recipe, &world, how))).await;
        let completed = done.is_some();
        drop(done);
        // Acquires at once, and again when nothing is under way.
        let lock = (recipe.lock)(&world.session, &world.path);
        let guard = soon("the next lock", lock.lock()).await.expect("held");
        guard.release().await.expect("released");
        world.wait_empty().await;
        if completed {
            assert!(frames > 1, "something was cancelled");
            return;
        }
    }
}

/// Drops a call on a held lock after 1, 2, 3… frames, until no more frames come; then releases under it.
async fn contended(recipe: &Recipe, how: Call) {
    let world = World::of(recipe).await;
    let holder = (recipe.other)(&world.other().await, &world.path);
    for frames in 1.. {
        let guard = holder.lock().await.expect("held");
        let mut cancelled = Box::pin(until_frame(&world.proxy, frames, call(recipe, &world, how)));
        // With fewer frames than that, it waits for the holder.
        let waiting = tokio::time::timeout(Duration::from_millis(300), &mut cancelled).await;
        let completed = match waiting {
            Ok(done) => done.is_some(),
            Err(_) => {
                guard.release().await.expect("released");
                let done = soon("the waiter's turn", cancelled.as_mut()).await;
                let completed = done.is_some();
                drop(done);
                drop(cancelled);
                finish(recipe, &world).await;
                if completed {
                    return;
                }
                continue;
            }
        };
        drop(cancelled);
        world.wait_children((recipe.nodes)(0)).await;
        guard.release().await.expect("released");
        finish(recipe, &world).await;
        if completed {
            return;
        }
    }
}

async fn finish(recipe: &Recipe, world: &World) {
    let lock = (recipe.lock)(&world.session, &world.path);
    let guard = soon("the next lock", lock.lock()).await.expect("held");
    guard.release().await.expect("released");
    world.wait_empty().await;
}

macro_rules! cancel_tests {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            #[tokio::test]
            async fn uncontended_lock() {
                uncontended(&$of, Call::Lock).await;
            }

            #[tokio::test]
            async fn uncontended_try_lock() {
                uncontended(&$of, Call::TryLock).await;
            }

            #[tokio::test]
            async fn uncontended_try_lock_for() {
                uncontended(&$of, Call::TryLockFor).await;
            }

            #[tokio::test]
            async fn contended_lock() {
                contended(&$of, Call::Lock).await;
            }

            #[tokio::test]
            async fn contended_try_lock() {
                contended(&$of, Call::TryLock).await;
            }

            #[tokio::test]
            async fn contended_try_lock_for() {
                contended(&$of, Call::TryLockFor).await;
            }
        }
    )*};
}

for_all_recipes!(cancel_tests);

/// Drops a call that would be granted without another listing after 1, 2, 3… frames, until it completes. Others queue behind it.
async fn fast(scene: Scene) {
    let stage = scene.stage().await;
    for frames in 1.. {
        let ahead = stage.set().await;
        let mut cancelled = Box::pin(until_frame(&stage.world.proxy, frames, stage.call()));
        let mut done = match ahead {
            None => Some(soon("frames", cancelled.as_mut()).await),
            Some(_) => tokio::select! {
                biased;
                done = cancelled.as_mut() => Some(done),
                () = stage.waits() => None,
            },
        };
        let others = stage.others();
        if let Some(ahead) = ahead {
            let release = ahead.end();
            match done {
                Some(_) => release.await,
                None => done = Some(tokio::join!(release, soon("its turn", cancelled.as_mut())).1),
            }
        }
        drop(cancelled);
        let completed = done.flatten();
        let is_last = completed.is_some();
        if let Some(turn) = completed {
            stage.assert_took_its_way(&turn);
            turn.end().await;
        }
        stage.end(others).await;
        if is_last {
            assert!(frames > 1, "something was cancelled");
            break;
        }
    }
    stage.judge();
}

/// The same, but a call is dropped when its turn has come, and others wait behind it.
async fn fast_and_late(scene: Scene) {
    let stage = scene.stage().await;
    for frames in 1.. {
        let ahead = stage.set().await;
        let mut call = stage.call();
        let done = {
            let mut polling = Box::pin(until_frame(&stage.world.proxy, frames, &mut call));
            match ahead {
                None => Some(soon("frames", polling).await),
                Some(_) => tokio::select! {
                    biased;
                    done = polling.as_mut() => Some(done),
                    () = stage.waits() => None,
                },
            }
        };
        let is_last = !matches!(done, Some(None));
        stage.round_trip().await;
        let nodes = usize::from(ahead.is_some()) + stage.world.creates();
        let others = stage.others();
        if nodes > 0 {
            stage.world.wait_children(nodes + others.len()).await;
        }
        if let Some(ahead) = ahead {
            ahead.end().await;
        }
        drop((call, done));
        stage.end(others).await;
        if is_last {
            assert!(frames > 1, "something was cancelled");
            break;
        }
    }
    stage.judge();
}

/// Drops the release of the predecessor after 0, 1, 2… frames, until it completes.
async fn fast_release(scene: Scene) {
    let stage = scene.stage().await;
    for frames in 0.. {
        let ahead = stage.set().await;
        let released = match ahead {
            // The node before was released by the same session, and is deleted.
            None => {
                let before = soon("the lock before", stage.call()).await;
                until_frame(&stage.world.proxy, frames, before.end()).await
            }
            Some(ahead) => {
                let mut call = Box::pin(stage.call());
                tokio::select! {
                    biased;
                    _ = call.as_mut() => panic!("there is another holder"),
                    () = stage.waits() => {}
                }
                let released = until_frame(&stage.world.proxy, frames, ahead.end()).await;
                let turn = soon("its turn", call).await;
                stage.assert_took_its_way(&turn);
                turn.end().await;
                released
            }
        };
        if stage.follows_itself() {
            let turn = soon("the lock", stage.call()).await;
            stage.assert_took_its_way(&turn);
            turn.end().await;
        }
        let others = stage.others();
        stage.end(others).await;
        if released.is_some() {
            assert!(frames > 0, "something was cancelled");
            break;
        }
    }
    stage.judge();
}

macro_rules! fast_tests {
    ($($scene:ident => $of:expr;)*) => {$(
        mod $scene {
            use super::*;

            #[tokio::test]
            async fn call() {
                fast($of).await;
            }

            #[tokio::test]
            async fn call_at_its_turn() {
                fast_and_late($of).await;
            }

            #[tokio::test]
            async fn release_before() {
                fast_release($of).await;
            }
        }
    )*};
}

mod without_a_listing {
    use super::*;

    for_all_scenes!(fast_tests);
}

#[tokio::test]
async fn two_hundred_cancelled_acquires_leave_nothing() {
    let world = World::new().await;
    let mut most = 0;
    for round in 0..200 {
        // Every possible number of frames, again and again.
        let frames = 1 + round % 8;
        if until_frame(&world.proxy, frames, call(&MUTEX, &world, Call::Lock)).await.is_none() {
            most = most.max(frames);
        }
    }
    assert!(most >= 2, "cancelled under way, after up to {most} frames");
    world.wait_empty().await;
    let guard = world.mutex().try_lock().await.expect("asked").expect("free");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn release_continues_when_its_future_is_dropped() {
    let world = World::new().await;
    for polls in 0..4 {
        let guard = world.mutex().lock().await.expect("held");
        let done = polled(polls, guard.release()).await;
        drop(done);
        world.wait_empty().await;
    }
}

#[tokio::test]
async fn abandoned_node_does_not_block_its_own_session() {
    let world = World::new().await;
    world.make_path().await;
    for round in 0..20 {
        {
            let mutex = world.mutex();
            let mut cancelled = pin!(mutex.lock());
            let _ = futures_util::poll!(&mut cancelled);
        }
        let guard = world.mutex().try_lock().await.expect("asked");
        let guard = guard.unwrap_or_else(|| panic!("round {round}: there is no other contender"));
        guard.release().await.expect("released");
    }
    world.wait_empty().await;
}
