//! The connection may be cut before and after any frame. Acquire and release still complete, one holder at a time, and
//! nothing is left.

use std::time::Duration;

use testbed::ledger::Ledger;
use testbed::proxy::{Closing, Cut};
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, LockGuard, Options};

use crate::recipes::*;
use crate::support::{World, locking, soon};
use crate::ways::{Scene, for_all_scenes};

/// Where the connection is cut, relative to the k-th request or answer.
type At = fn(usize) -> Cut;

const CUTS: [(&str, At); 4] = [
    ("before request", Cut::BeforeRequest),
    ("after request", Cut::AfterRequest),
    ("before answer", Cut::BeforeAnswer),
    ("after answer", Cut::AfterAnswer),
];

/// Runs one acquire and release with a cut at the k-th frame, for every k until there is no such frame. `by_count`: it may be
/// granted by the answer to its create.
async fn acquire_and_release(recipe: &Recipe, at: At, closing: Closing, contended: bool, by_count: bool) {
    let world = World::of(recipe).await;
    world.proxy.close_by(closing);
    let session = world.session.clone().with_lock_options(Options::new().with_one_request(by_count));
    let (lock, other) = ((recipe.lock)(&session, &world.path), (recipe.other)(&world.other().await, &world.path));
    let ledger = Ledger::new();
    for k in 1.. {
        let ahead = if contended { Some(soon("the other", other.lock()).await.expect("held")) } else { None };
        world.proxy.reset();
        world.proxy.cut(at(k));
        let acquire = async {
            let guard = soon("an acquire with a cut", lock.lock()).await.expect("held");
            ledger.enter("with a cut", guard.fencing_token().get()).leave();
            guard
        };
        let release_ahead = async {
            if let Some(guard) = ahead {
                // Our node is in the queue, or its create was cut.
                let _ =
                    tokio::time::timeout(Duration::from_millis(200), world.wait_children((recipe.nodes)(1))).await;
                ledger.enter("predecessor", guard.fencing_token().get()).leave();
                guard.release().await.expect("released");
            }
        };
        let (guard, ()) = tokio::join!(acquire, release_ahead);
        soon("a release with a cut", guard.release()).await.expect("released while it was trusted");
        // If there is a k-th frame, the cut has happened, or happens with this answer.
        let fired = world.proxy.requests().len() >= k;
        world.proxy.heal();
        world.wait_empty().await;
        let guard = soon("another", other.lock()).await.expect("held");
        ledger.enter("another", guard.fencing_token().get()).leave();
        guard.release().await.expect("released");
        if !fired {
            // A create and a delete, and a listing.
            assert!(k > 3 - usize::from(by_count && !contended), "frames were cut");
            break;
        }
    }
    ledger.assert_clean();
    world.wait_empty().await;
}

/// Drops the future of an acquire at the cut, so that only the background clean-up handles the node.
async fn cancel_acquire(recipe: &Recipe, at: At) {
    let world = World::of(recipe).await;
    for k in 1.. {
        let lock = (recipe.lock)(&world.session, &world.path);
        world.proxy.reset();
        world.proxy.cut(at(k));
        let acquire = async { soon("an acquire with a cut", lock.lock()).await.expect("held") };
        let cut = async {
            loop {
                tokio::task::yield_now().await;
                if world.proxy.cut_fired() {
                    break;
                }
            }
        };
        let held: Option<Box<dyn LockGuard>> = tokio::select! {
            () = cut => None,
            guard = acquire => Some(guard),
        };
        // A cut that can fall has fallen, or will with this very answer.
        let fired = world.proxy.requests().len() >= k;
        drop(held);
        world.proxy.heal();
        world.wait_empty().await;
        let guard = soon("the next", (recipe.lock)(&world.session, &world.path).lock()).await.expect("held");
        guard.release().await.expect("released");
        if !fired {
            return;
        }
    }
}

async fn try_and_release(recipe: &Recipe, at: At) {
    let world = World::of(recipe).await;
    for k in 1.. {
        let lock = (recipe.lock)(&world.session, &world.path);
        world.proxy.reset();
        world.proxy.cut(at(k));
        let guard = match soon("a try with a cut", lock.try_lock()).await {
            Ok(Some(guard)) => guard,
            Ok(None) => panic!("there is no other contender"),
            Err(error) => panic!("reconnects well within the time limit: {error}"),
        };
        match soon("a release with a cut", guard.release()).await {
            Ok(()) => {}
            Err(error) => panic!("released while it was trusted: {error}"),
        }
        // A cut that can fall has fallen, or will with this very answer.
        let fired = world.proxy.requests().len() >= k;
        world.proxy.heal();
        world.wait_empty().await;
        if !fired {
            return;
        }
    }
}

macro_rules! cut_tests {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            #[cfg(feature = "scenes")]
            #[tokio::test]
            async fn uncontended() {
                for (name, at) in CUTS {
                    for by_count in [true, false] {
                        println!("cut {name}, by count: {by_count}");
                        acquire_and_release(&$of, at, Closing::Fin, false, by_count).await;
                    }
                }
            }

            #[cfg(feature = "scenes")]
            #[tokio::test]
            async fn uncontended_by_reset() {
                for (name, at) in CUTS {
                    for by_count in [true, false] {
                        println!("cut {name}, by count: {by_count}");
                        acquire_and_release(&$of, at, Closing::Reset, false, by_count).await;
                    }
                }
            }

            #[tokio::test]
            async fn contended() {
                for (name, at) in CUTS {
                    println!("cut {name}");
                    acquire_and_release(&$of, at, Closing::Fin, true, true).await;
                }
            }

            #[cfg(feature = "scenes")]
            #[tokio::test]
            async fn cancelled_at_the_cut() {
                for (name, at) in CUTS {
                    println!("cut {name}");
                    cancel_acquire(&$of, at).await;
                }
            }

            #[cfg(feature = "scenes")]
            #[tokio::test]
            async fn try_lock() {
                for (name, at) in CUTS {
                    println!("cut {name}");
                    try_and_release(&$of, at).await;
                }
            }
        }
    )*};
}

for_all_recipes!(cut_tests);

/// Cuts at every frame of a call that is granted without another listing, and of the release before it.
async fn fast(scene: Scene, at: At, closing: Closing) {
    let stage = scene.stage().await;
    stage.world.proxy.close_by(closing);
    for k in 1.. {
        let ahead = stage.set().await;
        stage.world.proxy.cut(at(k));
        let call = soon("a call with a cut", stage.call());
        let (turn, others) = match ahead {
            None => (call.await, Vec::new()),
            Some(ahead) => {
                let release = async {
                    stage.waits().await;
                    let others = stage.others();
                    ahead.end().await;
                    others
                };
                tokio::join!(call, release)
            }
        };
        let is_last = stage.world.proxy.requests().len() < k;
        if is_last {
            stage.assert_took_its_way(&turn);
        }
        turn.end().await;
        stage.end(others).await;
        stage.world.proxy.heal();
        stage.world.wait_empty().await;
        stage.end(stage.others()).await;
        if is_last {
            assert!(k > 1, "frames were cut");
            break;
        }
    }
    stage.judge();
}

/// Drops the release, and cuts after it, so that only the background knows whether the node was deleted.
async fn fast_and_dropped(scene: Scene, at: At) {
    let stage = scene.stage().await;
    for k in 1.. {
        let ahead = match stage.set().await {
            Some(ahead) => ahead,
            None => soon("the lock before", stage.call()).await,
        };
        stage.world.proxy.reset();
        stage.world.proxy.cut(at(k));
        drop(ahead);
        let turn = soon("a call with a cut", stage.call()).await;
        let is_last = stage.world.proxy.requests().len() < k;
        turn.end().await;
        stage.world.proxy.heal();
        stage.end(stage.others()).await;
        if is_last {
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
            async fn by_fin() {
                for (name, at) in CUTS {
                    println!("cut {name}");
                    fast($of, at, Closing::Fin).await;
                }
            }

            #[tokio::test]
            async fn by_reset() {
                for (name, at) in CUTS {
                    println!("cut {name}");
                    fast($of, at, Closing::Reset).await;
                }
            }

            #[tokio::test]
            async fn behind_a_dropped_guard() {
                for (name, at) in CUTS {
                    println!("cut {name}");
                    fast_and_dropped($of, at).await;
                }
            }
        }
    )*};
}

#[cfg(feature = "scenes")]
mod without_a_listing {
    use super::*;

    for_all_scenes!(fast_tests);
}

#[cfg(feature = "scenes")]
#[tokio::test]
async fn delete_whose_answer_is_lost_counts_as_a_release() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.reset();
    world.proxy.cut(Cut::BeforeAnswer(1));
    soon("the release", guard.release()).await.expect("our own delete, whose answer was lost");
    assert!(world.proxy.cut_fired());
}

#[cfg(feature = "scenes")]
#[tokio::test]
async fn node_deleted_by_someone_else_is_not_a_release() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    let error = guard.release().await.expect_err("lost before");
    assert!(matches!(error, Error::Lost(zookeeper_recipes::Loss::Deleted)), "{error:?}");
}

/// The create of a lost connection may be applied after the search for it.
#[cfg(feature = "scenes")]
#[tokio::test]
async fn double_that_appears_late_is_not_waited_for() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    world.proxy.cut(Cut::AfterRequest(1));
    let waiting = locking(world.mutex());
    soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some())).await;
    assert!(world.proxy.cut_fired(), "its create has an unknown outcome");
    let names = world.wait_children(2).await;
    // It has the same session and guid, and a lower number.
    let (ours, _) = names[1].split_at(names[1].len() - 10);
    let double = format!("{}/{ours}{}", world.path, &names[0][names[0].len() - 10..]);
    let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
    world.session.client().expect("a client").create(&double, b"", &ephemeral).await.expect("created");
    ahead.release().await.expect("released");
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    assert_eq!(guard.nodes(), [format!("{}/{}", world.path, names[1])]);
    assert_eq!(world.wait_children(1).await, [names[1].as_str()]);
    guard.release().await.expect("released");
    world.wait_empty().await;
}
