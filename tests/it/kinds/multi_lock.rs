//! Several locks are acquired together or not at all, in any order of their names.

use std::time::Duration;

use futures_util::future::try_join_all;
use testbed::frames::Op;
use testbed::next_look;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, Permission};
use zookeeper_recipes::{Error, HoldState, Loss, MultiLock, Mutex, Options, RwLock, Session};

use crate::support::{World, children, make_paths, soon, wait_children};

fn paths(world: &World, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{}/{name}", world.path)).collect()
}

fn multi_lock(session: &Session, world: &World, names: &[&str]) -> MultiLock {
    MultiLock::new(session, paths(world, names)).expect("a lock")
}

async fn wait_empty(world: &World, names: &[&str]) {
    for path in paths(world, names) {
        wait_children(&world.admin, &path, 0).await;
    }
}

#[tokio::test]
async fn held_member_keeps_the_places_in_the_other_queues() {
    let world = World::new().await;
    let single = Mutex::new(&world.other().await, &paths(&world, &["b"])[0]).expect("a lock");
    let held = single.lock().await.expect("held");
    let multi = multi_lock(&world.session, &world, &["a", "b", "c"]);
    assert!(multi.try_lock().await.expect("asked").is_none(), "one is held");
    wait_empty(&world, &["a", "c"]).await;
    let waiting = tokio::spawn(async move { multi.lock().await });
    for path in paths(&world, &["a", "c"]) {
        wait_children(&world.admin, &path, 1).await;
    }
    // It is first in the other queues, so nobody else can acquire those locks.
    let other = Mutex::new(&world.other().await, &paths(&world, &["a"])[0]).expect("a lock");
    assert!(other.try_lock().await.expect("asked").is_none());
    held.release().await.expect("released");
    let guard = soon("all", waiting).await.expect("no panic").expect("held");
    let members = paths(&world, &["a", "b", "c"]);
    assert_eq!((guard.path(), guard.nodes().len()), (&*members[0], 3));
    for (node, path) in guard.nodes().iter().zip(&members) {
        assert!(node.starts_with(&format!("{path}/")), "{node} is not in {path}");
        let created = world.admin.check_stat(node).await.expect("asked").expect("there").czxid;
        assert_eq!(created, guard.fencing_token().get(), "one transaction");
    }
    guard.release().await.expect("released");
    wait_empty(&world, &["a", "b", "c"]).await;
}

#[tokio::test]
async fn release_after_one_member_was_deleted_returns_lost_and_leaves_nothing() {
    let world = World::new().await;
    for which in 0..3 {
        let guard = multi_lock(&world.session, &world, &["a", "b", "c"]).lock().await.expect("held");
        world.admin.delete(&guard.nodes()[which], None).await.expect("deleted");
        let error = guard.release().await.expect_err("one was gone");
        assert!(matches!(error, Error::Lost(Loss::Deleted)), "{error}");
        wait_empty(&world, &["a", "b", "c"]).await;
    }
}

#[tokio::test]
async fn member_lost_while_waiting_makes_it_queue_again_in_all() {
    let world = World::new().await;
    let single = Mutex::new(&world.other().await, &paths(&world, &["c"])[0]).expect("a lock");
    let held = single.lock().await.expect("held");
    let multi = multi_lock(&world.session, &world, &["a", "b", "c"]);
    let waiting = tokio::spawn(async move { multi.lock().await });
    let b = &paths(&world, &["b"])[0];
    let name = wait_children(&world.admin, b, 1).await.remove(0);
    let before = children(&world.admin, &paths(&world, &["a"])[0]).await;
    world.admin.delete(&format!("{b}/{name}"), None).await.expect("deleted");
    // While it still waits for the third, all three are new.
    let replaced = async {
        loop {
            let now = wait_children(&world.admin, b, 1).await;
            if now[0] != name {
                break;
            }
        }
        loop {
            let now = wait_children(&world.admin, &paths(&world, &["a"])[0], 1).await;
            if now != before {
                break;
            }
        }
    };
    soon("new nodes", replaced).await;
    assert!(!waiting.is_finished());
    held.release().await.expect("released");
    soon("all", waiting).await.expect("no panic").expect("held").release().await.expect("released");
    wait_empty(&world, &["a", "b", "c"]).await;
}

#[tokio::test]
async fn shared_members_are_shared_and_exclusive_ones_are_not() {
    let world = World::new().await;
    let [a, b] = ["a", "b"].map(|name| format!("{}/{name}", world.path));
    let build = |session: &Session, write: &str, read: &str| {
        MultiLock::builder(session).write(write).read(read).build().expect("a lock")
    };
    let other = world.other().await;
    let one = build(&world.session, &a, &b).lock().await.expect("held");
    let reader = RwLock::new(&other, &b).expect("a lock");
    let two = soon("a reader beside it", reader.read()).await.expect("held");
    assert!(reader.try_write().await.expect("asked").is_none(), "two read");
    assert!(RwLock::new(&other, &a).expect("a lock").try_read().await.expect("asked").is_none(), "one writes");
    let crossed = build(&other, &b, &a);
    let crossed = tokio::spawn(async move { crossed.lock().await });
    wait_children(&world.admin, &b, 3).await;
    one.release().await.expect("released");
    assert!(!crossed.is_finished(), "one reads");
    two.release().await.expect("released");
    soon("the other way round", crossed)
        .await
        .expect("no panic")
        .expect("held")
        .release()
        .await
        .expect("released");
    wait_empty(&world, &["a", "b"]).await;
}

#[tokio::test]
async fn multi_lock_and_caller_that_locks_one_by_one_wait_for_each_other() {
    let world = World::new().await;
    let other = world.other().await;
    let [a, b] = ["a", "b"].map(|name| format!("{}/{name}", world.path));
    // They lock a, and then b, as Curator's multi-lock does.
    let (first, second) = (Mutex::new(&other, &a).expect("a lock"), Mutex::new(&other, &b).expect("a lock"));
    let at_once = MultiLock::new(&world.session, [&b, &a]).expect("a lock");
    // They wait for us in the second queue, and we for them in the first.
    let theirs = first.lock().await.expect("held");
    let ours = soon("our places", at_once.enqueue()).await.expect("enqueued");
    let circle = second.try_lock_for(Duration::from_secs(2)).await.expect("asked");
    assert!(circle.is_none(), "we are ahead of them in the second");
    let mut ours = std::pin::pin!(ours);
    assert!(futures_util::poll!(&mut ours).is_pending(), "they hold the first");
    theirs.release().await.expect("released");
    soon("ours, after their release", ours).await.expect("held").release().await.expect("released");
    wait_empty(&world, &["a", "b"]).await;
}

#[tokio::test]
async fn first_node_deleted_before_its_transaction_is_known_blocks_nobody() {
    let world = World::new().await;
    let a = paths(&world, &["a"]).remove(0);
    let lock = multi_lock(&world.session, &world, &["a", "b"]);
    lock.lock().await.expect("held").release().await.expect("released");
    world.proxy.reset();
    // Some servers do not return the transaction that created several nodes, and are asked for it.
    let below = format!("{}/", world.path);
    let asks = move |request: &Request| request.op == Op::Exists && request.path.starts_with(&below);
    let held_up = asks.clone();
    world.proxy.on_request(move |request| if held_up(request) { Verdict::Hold } else { Verdict::Forward });
    let locking = tokio::spawn(async move { lock.lock().await });
    let name = wait_children(&world.admin, &a, 1).await.remove(0);
    let known = async {
        while !locking.is_finished() && !world.proxy.requests().iter().any(&asks) {
            next_look().await;
        }
    };
    soon("the transaction", known).await;
    world.admin.delete(&format!("{a}/{name}"), None).await.expect("deleted");
    world.let_pass();
    let guard = soon("it does not wait for itself", locking).await.expect("no panic").expect("held");
    let released = guard.release().await;
    assert!(matches!(released, Ok(()) | Err(Error::Lost(Loss::Deleted))), "{released:?}");
    wait_empty(&world, &["a", "b"]).await;
}

#[tokio::test]
async fn nodes_that_nobody_may_read_are_held_and_released() {
    let world = World::new().await;
    let b = paths(&world, &["b"]).remove(0);
    let other = world.other().await;
    // The paths can be listed, and are not removed between two locks.
    make_paths(&world.admin, &paths(&world, &["a", "b"])).await;
    let no_read = [Acl::new(Permission::CREATE | Permission::WRITE | Permission::DELETE, AuthId::anyone())];
    let lock = paths(&world, &["a", "b"])
        .iter()
        .fold(MultiLock::builder(&world.session), |builder, path| builder.lock(path))
        .options(Options::new().with_acls(Acls::new(&no_read)))
        .build()
        .expect("a lock");
    let guard = soon("uncontended locks", lock.lock()).await.expect("held");
    assert_eq!((guard.nodes().len(), guard.state()), (2, HoldState::Held));
    guard.release().await.expect("released");
    wait_empty(&world, &["a", "b"]).await;
    let held = Mutex::new(&other, &b).expect("a lock").lock().await.expect("held");
    let waiting = tokio::spawn(async move { lock.lock().await });
    wait_children(&world.admin, &b, 2).await;
    held.release().await.expect("released");
    let guard = soon("all", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
    wait_empty(&world, &["a", "b"]).await;
}

/// A lock of a, b and c, where anyone has only this permission for b.
async fn make_b_restricted(world: &World, permission: Permission) -> MultiLock {
    let ours = paths(world, &["a", "b", "c"]);
    make_paths(&world.admin, &ours).await;
    world.admin.set_acl(&ours[1], &[Acl::new(permission, AuthId::anyone())], None).await.expect("set");
    MultiLock::new(&world.session, ours).expect("a lock")
}

#[tokio::test]
async fn member_that_may_not_be_created_leaves_nothing_of_the_others() {
    let world = World::new().await;
    let lock = make_b_restricted(&world, Permission::READ).await;
    let limit = Duration::from_secs(30);
    let refused = &paths(&world, &["b"])[0];
    for error in [
        soon("a refusal", lock.lock()).await.expect_err("not allowed"),
        soon("a refusal", lock.try_lock()).await.expect_err("not allowed"),
        soon("a refusal", lock.try_lock_for(limit)).await.expect_err("not allowed"),
    ] {
        assert!(matches!(&error, Error::NoAuth { path } if path.starts_with(refused)), "{error:?}");
    }
    wait_empty(&world, &["a", "b", "c"]).await;
    let others = multi_lock(&world.session, &world, &["a", "c"]);
    let guard = others.try_lock().await.expect("asked").expect("free");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn member_that_may_not_be_deleted_leaves_nothing_of_the_others() {
    for release in [true, false] {
        let world = World::new().await;
        let lock = make_b_restricted(&world, Permission::READ | Permission::CREATE).await;
        let guard = soon("all", lock.lock()).await.expect("held");
        if release {
            let error = soon("a refusal", guard.release()).await.expect_err("not allowed");
            assert!(matches!(&error, Error::NoAuth { path } if *path == paths(&world, &["b"])[0]), "{error:?}");
        } else {
            drop(guard);
        }
        wait_empty(&world, &["a", "c"]).await;
        let others = multi_lock(&world.other().await, &world, &["a", "c"]);
        let guard = others.try_lock().await.expect("asked").expect("free");
        guard.release().await.expect("released");
        // This node goes with its session.
        wait_children(&world.admin, &paths(&world, &["b"])[0], 1).await;
        soon("the end", world.session.close()).await.expect("closed");
        wait_empty(&world, &["a", "b", "c"]).await;
    }
}

#[tokio::test]
async fn contenders_of_many_locks_are_listed_in_a_few_round_trips() {
    let world = World::new().await;
    let all: Vec<_> = (0..50).map(|member| format!("{}/{member}", world.path)).collect();
    let lock = MultiLock::new(&world.session, &all).expect("a lock");
    let guard = lock.lock().await.expect("held");
    // Delayed, so that each wait for an answer shows as a round trip of its own.
    world.proxy.hold_answers(Duration::from_millis(500));
    world.proxy.reset();
    let listed = lock.contenders().await.expect("listed");
    assert_eq!(listed.len(), all.len());
    assert!(listed.iter().all(|one| one.is_holder() && one.token() == guard.fencing_token()));
    let trips = world.proxy.round_trips();
    assert!(trips <= 3, "{trips} round trips for the contenders of {} locks", all.len());
    world.proxy.hold_answers(Duration::ZERO);
    guard.release().await.expect("released");
    for path in &all {
        wait_children(&world.admin, path, 0).await;
    }
}

/// Each of them follows its predecessor in all queues.
#[tokio::test]
async fn three_tasks_of_a_session_take_a_thousand_locks_in_turn() {
    let world = World::new().await;
    let all: Vec<_> = (0..1_000).map(|member| format!("{}/{member}", world.path)).collect();
    let lock = MultiLock::new(&world.session, &all).expect("a lock");
    let turns = (0..3).map(|_| async { lock.lock().await?.release().await });
    soon("three turns", try_join_all(turns)).await.expect("its session lives");
}
