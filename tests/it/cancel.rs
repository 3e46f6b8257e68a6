//! A future may be dropped at any poll: nothing is left, and the lock stays usable.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use zookeeper_recipes::{Error, LockGuard};

use crate::recipes::*;
use crate::support::{TIMEOUT, World, soon};

/// Polls a future a number of times at most, as its wakers ask for it; `None` if it is not done by then.
pub(crate) struct Polls<F> {
    pub(crate) future: Pin<Box<F>>,
    pub(crate) left: usize,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// How a call on a lock that is cancelled is made.
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

/// Drops a call on a free lock after 1, 2, 3… polls, until it completes.
async fn free(recipe: &Recipe, how: Call) {
    let world = World::of(recipe, TIMEOUT).await;
    for polls in 1.. {
        let cancelled = Polls { future: Box::pin(call(recipe, &world, how)), left: polls };
        let done = soon("polls", cancelled).await;
        let completed = done.is_some();
        drop(done);
        // Straight away, and again when it is quiet.
        let lock = (recipe.lock)(&world.session, &world.path);
        let guard = soon("the next lock", lock.lock()).await.expect("held");
        guard.release().await.expect("released");
        world.wait_empty().await;
        if completed {
            assert!(polls > 1, "something was cancelled");
            return;
        }
    }
}

/// Drops a call on a lock that is held after 1, 2, 3… polls, until no more polls come; then releases under it.
async fn contended(recipe: &Recipe, how: Call) {
    let world = World::of(recipe, TIMEOUT).await;
    let holder = (recipe.other)(&world.other().await, &world.path);
    for polls in 1.. {
        let guard = holder.lock().await.expect("held");
        let mut cancelled = pin!(Polls { future: Box::pin(call(recipe, &world, how)), left: polls });
        // It waits for the holder when it has been polled as often as it will be.
        let waiting = tokio::time::timeout(Duration::from_millis(300), &mut cancelled).await;
        let completed = match waiting {
            Ok(done) => done.is_some(),
            Err(_) => {
                guard.release().await.expect("released");
                let done = soon("the waiter's turn", cancelled.as_mut()).await;
                let completed = done.is_some();
                drop(done);
                cancelled.set(Polls { future: Box::pin(call(recipe, &world, how)), left: 0 });
                finish(recipe, &world).await;
                if completed {
                    return;
                }
                continue;
            }
        };
        cancelled.set(Polls { future: Box::pin(call(recipe, &world, how)), left: 0 });
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

macro_rules! sweep {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            #[tokio::test]
            async fn lock_of_a_free_lock() {
                free(&$of, Call::Lock).await;
            }

            #[tokio::test]
            async fn try_lock_of_a_free_lock() {
                free(&$of, Call::TryLock).await;
            }

            #[tokio::test]
            async fn try_lock_for_of_a_free_lock() {
                free(&$of, Call::TryLockFor).await;
            }

            #[tokio::test]
            async fn lock_of_a_held_lock() {
                contended(&$of, Call::Lock).await;
            }

            #[tokio::test]
            async fn try_lock_of_a_held_lock() {
                contended(&$of, Call::TryLock).await;
            }

            #[tokio::test]
            async fn try_lock_for_of_a_held_lock() {
                contended(&$of, Call::TryLockFor).await;
            }
        }
    )*};
}

for_all_recipes!(sweep);

#[tokio::test]
async fn two_hundred_cancelled_acquires_leave_nothing() {
    let world = World::new().await;
    let mut most = 0;
    for round in 0..200 {
        // Every possible number of polls, over and over.
        let polls = 1 + round % 8;
        let done = Polls { future: Box::pin(call(&MUTEX, &world, Call::Lock)), left: polls }.await;
        if done.is_none() {
            most = most.max(polls);
        }
    }
    assert!(most >= 2, "cancelled under way, at up to {most} polls");
    world.wait_empty().await;
    let guard = world.mutex().try_lock().await.expect("asked").expect("free");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn release_goes_on_when_its_future_is_dropped() {
    let world = World::new().await;
    for polls in 0..4 {
        let guard = world.mutex().lock().await.expect("held");
        let done = Polls { future: Box::pin(guard.release()), left: polls }.await;
        drop(done);
        world.wait_empty().await;
    }
}
