//! Waiters of one session that wait for each other in memory, and waiters that need not list again at their turn.

use std::time::Duration;

use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::proxy::{Request, Verdict};
use tokio::task::JoinHandle;
use zookeeper_recipes::{Error, FencingToken, HoldState, Loss, Mutex, MutexGuard, Options, Result, RwLock};

use crate::support::{World, hosts, locking, soon};
use crate::ways::Ways;

/// A task that locks, once its node is the `count`th.
async fn waiter(world: &World, mutex: Mutex, count: usize) -> JoinHandle<Result<MutexGuard>> {
    let task = locking(mutex);
    world.wait_children(count).await;
    task
}

async fn granted<T>(task: JoinHandle<Result<T>>) -> T {
    soon("a turn", task).await.expect("no panic").expect("held")
}

#[tokio::test]
async fn release_hands_over_to_the_next_task_before_it_is_answered() {
    let world = World::with_path().await;
    let first = world.mutex().lock().await.expect("held");
    let second = waiter(&world, world.mutex(), 2).await;
    let third = waiter(&world, world.mutex(), 3).await;
    world.own_watch(1).await;
    world.proxy.reset();
    // The delete does not even arrive at the server.
    world.proxy.on_request(|request| if request.op == Op::Delete { Verdict::Hold } else { Verdict::Forward });
    let release = tokio::spawn(first.release());
    let second = granted(second).await;
    assert_eq!(world.count(Op::GetChildren), 0, "{:?}", world.ops());
    assert!(!release.is_finished(), "nothing has answered");
    world.let_pass();
    release.await.expect("no panic").expect("released");
    assert_eq!(second.state(), HoldState::Held);
    let token = second.fencing_token();
    // A guard that is dropped hands over, too.
    world.own_watch(1).await;
    world.proxy.reset();
    drop(second);
    let third = granted(third).await;
    assert_eq!(world.count(Op::GetChildren), 0, "{:?}", world.ops());
    assert!(third.fencing_token() > token);
    third.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn all_readers_behind_a_writer_are_granted_by_its_release() {
    let world = World::with_path().await;
    let lock = RwLock::new(&world.session, &world.path).expect("a lock");
    let writer = lock.write().await.expect("held");
    let mut readers = Vec::new();
    for count in 2..5 {
        let lock = lock.clone();
        readers.push(tokio::spawn(async move { lock.read().await }));
        world.wait_children(count).await;
    }
    let queued = lock.clone();
    let next = tokio::spawn(async move { queued.write().await });
    world.wait_children(5).await;
    for place in 1..4 {
        world.own_watch(place).await;
    }
    world.proxy.reset();
    writer.release().await.expect("released");
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(granted(reader).await);
    }
    assert_eq!(world.count(Op::GetChildren), 0, "{:?}", world.ops());
    // The release of one reader does not hand over: the others hold the lock, too.
    let last = guards.pop().expect("three readers");
    last.release().await.expect("released");
    let others = lock.contenders().await.expect("asked");
    assert_eq!(others.iter().filter(|one| one.is_holder()).count(), 2, "{others:?}");
    assert!(!next.is_finished());
    drop(guards);
    granted(next).await.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn downgrade_admits_the_readers_behind_it() {
    let world = World::with_path().await;
    let lock = RwLock::new(&world.session, &world.path).expect("a lock");
    let writer = lock.write().await.expect("held");
    let queued = lock.clone();
    let reader = tokio::spawn(async move { queued.read().await });
    world.wait_children(2).await;
    world.own_watch(1).await;
    let downgraded = writer.downgrade().await.expect("downgraded");
    let reader = granted(reader).await;
    assert_eq!((downgraded.state(), reader.state()), (HoldState::Held, HoldState::Held));
    drop((downgraded, reader));
    world.wait_empty().await;
}

#[tokio::test]
async fn waiter_that_nobody_awaits_passes_the_lock_on_when_it_is_dropped() {
    let world = World::with_path().await;
    let held = world.mutex().lock().await.expect("held");
    let waiting = world.mutex().enqueue().await.expect("queued");
    let third = waiter(&world, world.mutex(), 3).await;
    held.release().await.expect("released");
    world.wait_children(2).await;
    assert!(!third.is_finished());
    drop(waiting);
    granted(third).await.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn hold_that_reached_its_limit_hands_nothing_over() {
    let ways = Ways::new();
    let _listening = ways.listen();
    let world = World::with_path().await;
    let limited = Options::new().with_stall_limit(Duration::from_secs(2));
    let limited = Mutex::with_options(&world.session, &world.path, limited).expect("a mutex");
    // The limit begins with the grant, so both are in the queue before.
    let held = world.mutex().lock().await.expect("held");
    let limited = waiter(&world, limited, 2).await;
    let next = waiter(&world, world.mutex(), 3).await;
    held.release().await.expect("released");
    let limited = granted(limited).await;
    // Only a waiter with a watch on its own node can be handed the lock.
    world.own_watch(1).await;
    assert_eq!(limited.state(), HoldState::Held);
    assert_eq!(soon("the limit", limited.lost()).await, Loss::Stalled);
    let next = granted(next).await;
    assert!(ways.has(next.fencing_token(), "Listed"), "{}", ways.summary());
    next.release().await.expect("released");
    drop(limited);
    world.wait_empty().await;
}

/// A foreign writer, which is the only one ahead of a mutex, takes a reader's node for its own.
#[tokio::test]
async fn mutex_behind_a_foreign_writer_that_downgrades_waits_on() {
    let world = World::with_path().await;
    let writer = RwLock::new(&world.other().await, &world.path).expect("a lock").write().await.expect("held");
    let next = waiter(&world, world.mutex(), 2).await;
    soon("a watch", world.proxy.wait_for(|one| one.watch && one.answer.is_some())).await;
    world.proxy.reset();
    let reader = writer.downgrade().await.expect("downgraded");
    // It looks, and watches the reader.
    let watches = |one: &Request| one.watch && one.path.contains("__READ__") && one.answer.is_some();
    soon("another watch", world.proxy.wait_for(watches)).await;
    assert!(!next.is_finished());
    let token: FencingToken = reader.fencing_token();
    reader.release().await.expect("released");
    assert!(granted(next).await.fencing_token() > token);
}

/// Of two nodes of different sessions that are deleted in one transaction, its own goes first.
#[tokio::test]
async fn waiter_whose_node_is_deleted_with_its_predecessor_is_not_granted() {
    for own_first in [true, false] {
        let world = World::with_path().await;
        let held = world.other_mutex().await.lock().await.expect("held");
        let next = waiter(&world, world.mutex(), 2).await;
        let node = world.own_watch(1).await;
        let mut writer = world.admin.new_multi_writer();
        let mut both = [held.nodes()[0].clone(), node.clone()];
        both.sort_by_key(|path| (path == &node) != own_first);
        both.iter().for_each(|path| writer.add_delete(path, None).expect("added"));
        writer.commit().await.expect("deleted");
        match soon("an end", next).await.expect("no panic") {
            Err(Error::Evicted { node: of }) => assert_eq!(of, node),
            // The event of its own node may come a moment later.
            Ok(guard) if !own_first => assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted),
            other => panic!("not {other:?}"),
        }
    }
}

/// In memory, each of them waits for the one ahead of it, and nobody polls those.
#[tokio::test]
async fn waiter_behind_several_that_nobody_awaits_is_admitted_when_their_nodes_are_deleted() {
    let world = World::at(&hosts(), Duration::from_secs(6)).await;
    let held = world.other_mutex().await.lock().await.expect("held");
    let first = world.mutex().enqueue().await.expect("queued");
    let second = world.mutex().enqueue().await.expect("queued");
    let third = waiter(&world, world.mutex(), 4).await;
    let nodes = world.children().await;
    held.release().await.expect("released");
    for node in &nodes[1..3] {
        world.admin.delete(&format!("{}/{node}", world.path), None).await.expect("deleted");
    }
    granted(third).await.release().await.expect("released");
    drop((first, second));
}

/// None of them knows yet where the others are when it looks for its predecessor.
#[tokio::test]
async fn tasks_of_one_session_that_come_together_take_few_watches() {
    const TASKS: usize = 200;
    let world = World::with_path().await;
    let held = world.mutex().lock().await.expect("held");
    world.proxy.reset();
    let come = (0..TASKS).map(|_| {
        let mutex = world.mutex();
        tokio::spawn(async move { mutex.enqueue().await })
    });
    let queued = soon("their places", join_all(come.collect::<Vec<_>>())).await;
    let waiting = queued.into_iter().map(|queued| queued.expect("no panic").expect("queued"));
    let tasks: Vec<_> =
        waiting.map(|waiting| tokio::spawn(async move { waiting.await?.release().await })).collect();
    // The next one, and perhaps some of those that came first.
    world.own_watch(1).await;
    let client = world.session.client().expect("a client");
    client.check_stat("/").await.expect("asked");
    let watches = world.proxy.requests().iter().filter(|request| request.watch).count();
    held.release().await.expect("released");
    for task in tasks {
        soon("a turn", task).await.expect("no panic").expect("held and released");
    }
    world.wait_empty().await;
    assert!(watches <= TASKS / 10, "{watches} watches for {TASKS} waiters");
}
