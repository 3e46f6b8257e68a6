//! A session that locks a path again where nobody else has queued since is granted the lock by the answer to its create.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::ledger::Ledger;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, MutexGuard};

use crate::recipes::MUTEX;
use crate::support::{World, soon};

async fn lock(world: &World, mutex: &Mutex) -> (MutexGuard, Vec<Op>) {
    world.proxy.reset();
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    (guard, world.ops())
}

async fn cycle(world: &World, mutex: &Mutex) -> Vec<Op> {
    let (guard, ops) = lock(world, mutex).await;
    guard.release().await.expect("released");
    ops
}

/// Locks until the next lock is to be granted by the answer to its create.
pub(crate) async fn until_undisturbed(world: &World) -> Mutex {
    // The second number shows that nobody was there since the first, so the next lock sets the watch.
    let mutex = until_alone_is_expected(world).await;
    assert_eq!(cycle(world, &mutex).await, [Op::Create2, Op::GetData]);
    assert_eq!(cycle(world, &mutex).await, [Op::Create2]);
    mutex
}

/// Locks until the next lock is to set a watch on the path.
async fn until_alone_is_expected(world: &World) -> Mutex {
    let mutex = world.mutex();
    assert_eq!(cycle(world, &mutex).await, LISTED);
    assert_eq!(cycle(world, &mutex).await, LISTED);
    mutex
}

const LISTED: [Op; 2] = [Op::Create2, Op::GetChildren];

/// Fails if the answer to the last create was taken for the grant: a wrong guess lists. But where the session has already given
/// up its watch on the path, which it does now and then, it does not guess, and sets another.
fn assert_looked(world: &World) {
    let requests = world.proxy.requests();
    let looks = |one: &Request| one.op == Op::GetChildren || one.op == Op::GetData && one.path == world.path;
    assert!(requests.iter().any(looks), "{requests:?}");
}

#[tokio::test]
async fn undisturbed_lock_and_its_release_take_one_request_each() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    let mut last = None;
    for _ in 0..5 {
        let (guard, ops) = lock(&world, &mutex).await;
        assert_eq!(ops, [Op::Create2]);
        assert_eq!(guard.state(), HoldState::Held);
        assert!(last.replace(guard.fencing_token()) < Some(guard.fencing_token()));
        world.proxy.reset();
        guard.release().await.expect("released");
        assert_eq!(world.ops(), [Op::Delete]);
    }
    for _ in 0..5 {
        let (guard, ops) = lock(&world, &mutex).await;
        assert!(ops.contains(&Op::Create2) && !ops.contains(&Op::GetChildren), "{ops:?}");
        // The delete is sent, and its answer comes before that to the next create.
        drop(guard);
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn another_contender_in_between_is_seen() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    let other = world.other_mutex().await;
    other.lock().await.expect("held").release().await.expect("released");
    assert_eq!(cycle(&world, &mutex).await, LISTED);
    until_alone_again(&world, &mutex).await;

    let held = other.lock().await.expect("held");
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.map(|guard| guard.fencing_token()) }
    });
    world.wait_children(2).await;
    let token = held.fencing_token();
    held.release().await.expect("released");
    assert!(soon("a turn", waiting).await.expect("no panic").expect("held") > token);
}

async fn until_alone_again(world: &World, mutex: &Mutex) {
    soon("an undisturbed lock", async { while cycle(world, mutex).await != [Op::Create2] {} }).await;
}

/// The numbers of the new path come to the one that is expected, while somebody holds.
#[tokio::test]
async fn path_that_was_made_again_is_seen() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    make_again(&world).await;
    // Our next number would be 4, as it would have been in the old path.
    assert!(mutex.try_lock().await.expect("asked").is_none());
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let nodes = world.wait_children(2).await;
    let watches = |one: &Request| one.watch && one.path.ends_with(&nodes[0]) && one.answer.is_some();
    soon("a watch on the holder", world.proxy.wait_for(watches)).await;
    assert!(!waiting.is_finished());
    world.admin.delete(&format!("{}/{}", world.path, nodes[0]), None).await.expect("deleted");
    let guard = soon("a turn", waiting).await.expect("no panic").expect("held");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn data_written_to_the_path_is_seen() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    world.admin.set_data(&world.path, b"x", None).await.expect("written");
    cycle(&world, &mutex).await;
    assert_looked(&world);
}

#[tokio::test]
async fn lost_connection_is_seen() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    world.proxy.cut_now();
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    assert_looked(&world);
    guard.release().await.expect("released");
}

/// The client sets the watch again by itself, but what happened meanwhile may come late.
#[tokio::test]
async fn connection_that_was_lost_and_is_back_is_seen() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    world.proxy.cut_now();
    let client = world.session.client().expect("a client");
    soon("another connection", async { while client.check_stat("/").await.is_err() {} }).await;
    cycle(&world, &mutex).await;
    assert_looked(&world);
}

/// One expectation serves one create.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_lock_together_exclude_each_other() {
    let world = World::calm().await;
    let (mutex, ledger) = (until_undisturbed(&world).await, Arc::new(Ledger::new()));
    for round in 0..20 {
        let tasks = (0..4).map(|task| {
            let (mutex, ledger) = (mutex.clone(), ledger.clone());
            tokio::spawn(async move {
                let guard = mutex.lock().await.expect("held");
                let turn = ledger.enter(format!("round {round}, task {task}"), guard.fencing_token().get());
                tokio::task::yield_now().await;
                drop(turn);
                guard.release().await.expect("released");
            })
        });
        soon("all turns", join_all(tasks)).await.into_iter().for_each(|task| task.expect("no panic"));
        until_alone_again(&world, &mutex).await;
    }
    ledger.assert_clean();
}

#[tokio::test]
async fn node_that_could_not_be_deleted_is_seen() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    let (guard, _) = lock(&world, &mutex).await;
    let undeletable = [Acl::new(Permission::READ | Permission::CREATE | Permission::ADMIN, AuthId::anyone())];
    world.admin.set_acl(&world.path, &undeletable, None).await.expect("restricted");
    guard.release().await.expect_err("not allowed");
    let (_guard, ops) = lock(&world, &mutex).await;
    assert!(ops.contains(&Op::GetChildren), "{ops:?}");
}

/// Newer servers send no event to a session that may not read the path. The hold learns of it by a look.
#[tokio::test]
async fn hold_in_a_path_that_was_made_again_without_an_event_is_lost() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    world.proxy.swallow_events();
    make_again(&world).await;
    let (guard, ops) = lock(&world, &mutex).await;
    assert_eq!(ops, [Op::Create2], "it is deceived, as documented");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    // Nothing that it was deceived by is relied on again.
    world.wait_children(1).await;
    assert!(mutex.try_lock().await.expect("asked").is_none());
    world.proxy.reset();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    soon("a listing", world.proxy.wait_for(|request| request.op == Op::GetChildren)).await;
    world.wait_children(2).await;
    assert!(!waiting.is_finished());
}

/// That is a sign, too.
#[tokio::test]
async fn hold_in_a_path_that_may_not_be_read_any_more_is_lost() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    let (guard, ops) = lock(&world, &mutex).await;
    assert_eq!(ops, [Op::Create2]);
    let unreadable = [Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    world.admin.set_acl(&world.path, &unreadable, None).await.expect("restricted");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
}

/// The waiter behind it looks.
#[tokio::test]
async fn hold_that_was_deceived_hands_the_lock_over_to_nobody() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    world.proxy.swallow_events();
    make_again(&world).await;
    let (deceived, ops) = lock(&world, &mutex).await;
    assert_eq!(ops, [Op::Create2], "it is deceived, as documented");
    let next = tokio::spawn(async move { mutex.lock().await });
    let nodes = world.wait_children(3).await;
    let own = |one: &Request| one.op == Op::GetData && one.path.ends_with(&nodes[2]) && one.answer.is_some();
    soon("its own watch", world.proxy.wait_for(own)).await;
    world.proxy.reset();
    deceived.release().await.expect("released");
    soon("a listing", world.proxy.wait_for(|one| one.op == Op::GetChildren && one.answer.is_some())).await;
    assert_eq!(world.wait_children(2).await, [nodes[0].clone(), nodes[2].clone()]);
    assert!(!next.is_finished());
    world.proxy.heal();
    world.admin.delete(&format!("{}/{}", world.path, nodes[0]), None).await.expect("deleted");
    drop(soon("a turn", next).await.expect("no panic").expect("held"));
}

/// The look at the path shows two, of which ours came last.
#[tokio::test]
async fn contender_ahead_is_seen_by_the_look_at_the_path() {
    let world = World::calm().await;
    let mutex = until_alone_is_expected(&world).await;
    let held = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.fencing_token()) });
    let watches = |one: &Request| one.watch && one.path != world.path && one.answer.is_some();
    soon("a watch on another node", world.proxy.wait_for(watches)).await;
    assert_eq!(world.ops()[..2], [Op::Create2, Op::GetData]);
    assert!(!waiting.is_finished());
    let token = held.fencing_token();
    held.release().await.expect("released");
    assert!(soon("a turn", waiting).await.expect("no panic").expect("held") > token);
}

/// The look at the path shows one, which is not ours.
#[tokio::test]
async fn contender_in_place_of_its_own_node_is_seen_by_the_look_at_the_path() {
    let world = World::calm().await;
    let mutex = until_alone_is_expected(&world).await;
    world.proxy.on_request(|one| if one.op == Op::GetData { Verdict::Hold } else { Verdict::Forward });
    let evicted = tokio::spawn(async move { mutex.lock().await });
    let node = format!("{}/{}", world.path, world.wait_children(1).await[0]);
    world.admin.delete(&node, None).await.expect("deleted");
    let held = world.other_mutex().await.lock().await.expect("held");
    world.proxy.on_request(|_| Verdict::Forward);
    world.proxy.heal();
    let end = soon("an end", evicted).await.expect("no panic");
    assert!(matches!(&end, Err(Error::Evicted { node: of }) if *of == node), "{end:?}");
    assert_eq!(held.state(), HoldState::Held);
}

/// It bounds for how long a session may be deceived.
#[tokio::test]
async fn watch_older_than_a_session_timeout_is_set_again() {
    let timeout = Duration::from_secs(2);
    let world = World::of(&MUTEX, timeout).await;
    world.make_path().await;
    let mutex = until_undisturbed(&world).await;
    // Nothing but time makes it old.
    let _ = tokio::time::timeout(timeout + timeout / 8, pending::<()>()).await;
    let mut ops = cycle(&world, &mutex).await;
    // The old one is taken back.
    ops.retain(|op| *op != Op::RemoveWatches);
    assert_eq!(ops, [Op::Create2, Op::GetData]);
}

/// Those of paths that nobody locks any more give way.
#[tokio::test]
async fn watches_on_idle_paths_leave_room_for_that_of_a_hold() {
    let world = World::calm().await;
    let idle = (0..600).map(|number| format!("{}-{number:0>80}", world.path));
    for path in idle {
        let mutex = Mutex::new(&world.session, &path).expect("a mutex");
        for _ in 0..2 {
            mutex.lock().await.expect("held").release().await.expect("released");
        }
    }
    let guard = world.mutex().lock().await.expect("held");
    let node = guard.nodes()[0].clone();
    let lost = tokio::spawn(guard.lost());
    let looks = |one: &Request| one.op == Op::GetData && one.path == node;
    assert!(soon("a look at its node", world.proxy.wait_for(looks)).await.watch, "it is not watched");
    world.admin.delete(&node, None).await.expect("deleted");
    assert_eq!(soon("the loss", lost).await.expect("no panic"), Loss::Deleted);
}

/// Deletes the path, and makes it again with a foreign holder, so that the next number is the expected one.
async fn make_again(world: &World) {
    world.admin.delete(&world.path, None).await.expect("deleted");
    world.make_path().await;
    let open = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{}/_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-lock-", world.path);
    for number in 0..4 {
        let (_, made) = world.admin.create(&prefix, b"", &open).await.expect("created");
        if number < 3 {
            world.admin.delete(&format!("{prefix}{made}"), None).await.expect("deleted");
        }
    }
}

/// A guess would be wrong each time, and cost a round trip.
#[tokio::test]
async fn sessions_that_take_turns_list_each_time() {
    let world = World::calm().await;
    let (mutex, other) = (world.mutex(), world.other_mutex().await);
    for _ in 0..6 {
        other.lock().await.expect("held").release().await.expect("released");
        assert_eq!(cycle(&world, &mutex).await, LISTED);
    }
    until_alone_again(&world, &mutex).await;
    other.lock().await.expect("held").release().await.expect("released");
    for _ in 0..6 {
        assert_eq!(cycle(&world, &mutex).await.last(), Some(&Op::GetChildren));
        other.lock().await.expect("held").release().await.expect("released");
    }
}

#[tokio::test]
async fn path_that_is_gone_is_made_again_in_two_round_trips() {
    let world = World::calm().await;
    let mutex = until_undisturbed(&world).await;
    world.admin.delete(&world.path, None).await.expect("deleted");
    world.proxy.hold_answers(Duration::from_millis(500));
    let (guard, ops) = lock(&world, &mutex).await;
    assert_eq!(world.proxy.round_trips(), 2, "{ops:?}");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn paths_without_number_take_few_watches() {
    let world = World::calm().await;
    for number in 0..80 {
        let mutex = Mutex::new(&world.session, &format!("{}/{number}", world.path)).expect("a mutex");
        for _ in 0..3 {
            mutex.lock().await.expect("held").release().await.expect("released");
        }
    }
    let watches = world.proxy.requests().iter().filter(|request| request.watch).count();
    assert_eq!(watches, 64);
}

#[tokio::test]
async fn paths_that_were_locked_before_leave_room_for_those_that_are_locked_again() {
    let world = World::calm().await;
    let mutex = |name: &str| Mutex::new(&world.session, &format!("{}/{name}", world.path)).expect("a mutex");
    for path in 0..1100 {
        mutex(&format!("once-{path}")).lock().await.expect("held").release().await.expect("released");
    }
    let again: Vec<_> = (0..64).map(|path| mutex(&format!("again-{path}"))).collect();
    for _ in 0..4 {
        world.proxy.reset();
        join_all(again.iter().map(async |mutex| {
            mutex.lock().await.expect("held").release().await.expect("released");
        }))
        .await;
    }
    assert!(world.ops().iter().all(|op| matches!(op, Op::Create2 | Op::Delete)), "{:?}", world.ops());
}
