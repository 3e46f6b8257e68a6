//! Waiters that wait in memory until they may join a queue, and calls that do not join a long one.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use testbed::frames::Op;
use testbed::proxy::Verdict;
use tokio::task::JoinHandle;
use zookeeper_recipes::{
    Error, MultiLock, Mutex, MutexGuard, Options, Owner, ReentrantMutex, Result, RwLock, Semaphore,
};

use crate::support::{UNHURRIED, World, connect_for, polled, soon, wait_children};

fn local(count: usize) -> Options {
    Options::new().with_local_queue(count)
}

fn mutex(world: &World, options: &Options) -> Mutex {
    Mutex::with_options(&world.session, &world.path, options.clone()).expect("a mutex")
}

fn waiter(mutex: Mutex) -> JoinHandle<Result<MutexGuard>> {
    tokio::spawn(async move { mutex.lock().await })
}

async fn granted<T>(task: JoinHandle<Result<T>>) -> T {
    soon("a turn", task).await.expect("no panic").expect("held")
}

/// Lets all tasks run until each of them waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn no_more_waiters_than_the_local_queue_allows_have_nodes() {
    let world = World::calm().await;
    let mutex = mutex(&world, &local(2));
    let held = mutex.lock().await.expect("held");
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.push(waiter(mutex.clone()));
        settle().await;
    }
    world.wait_children(3).await;
    let mut tokens = vec![held.fencing_token()];
    held.release().await.expect("released");
    for task in tasks {
        let guard = granted(task).await;
        assert!(world.children().await.len() <= 3, "the holder and two waiters");
        tokens.push(guard.fencing_token());
        guard.release().await.expect("released");
    }
    assert!(tokens.is_sorted(), "in the order in which they came");
    assert_eq!(world.count(Op::Create2), 11);
    world.wait_empty().await;
}

#[tokio::test]
async fn waiter_in_memory_times_out_without_a_request() {
    let world = World::calm().await;
    let mutex = mutex(&world, &local(1));
    let _held = mutex.lock().await.expect("held");
    let first = waiter(mutex.clone());
    world.wait_children(2).await;
    world.proxy.reset();
    assert!(mutex.try_lock_for(Duration::from_millis(50)).await.expect("asked").is_none());
    assert!(mutex.try_lock_for(Duration::from_millis(50)).await.expect("asked").is_none());
    assert_eq!(world.count(Op::Create2), 0);
    first.abort();
    // Its slot is free again.
    let _ = first.await;
    let next = waiter(mutex);
    soon("a node", world.proxy.wait_for(|one| one.op == Op::Create2)).await;
    next.abort();
}

#[tokio::test]
async fn try_lock_takes_waiters_in_memory_for_contenders_ahead() {
    let world = World::calm().await;
    let other = world.other_mutex().await.lock().await.expect("held");
    let limited = mutex(&world, &local(1));
    let tasks: Vec<_> = (0..2).map(|_| waiter(limited.clone())).collect();
    world.wait_children(2).await;
    world.proxy.reset();
    assert!(world.mutex().try_lock().await.expect("asked").is_none());
    assert_eq!(world.count(Op::GetChildren), 0, "it is known in memory");
    other.release().await.expect("released");
    for task in tasks {
        granted(task).await.release().await.expect("released");
    }
}

#[tokio::test]
async fn waiting_in_a_queue_has_a_node() {
    let world = World::calm().await;
    let mutex = mutex(&world, &local(1));
    let held = mutex.lock().await.expect("held");
    let first = mutex.enqueue().await.expect("queued");
    let second = tokio::spawn(async move { mutex.enqueue().await });
    settle().await;
    assert!(!second.is_finished(), "it has no node");
    assert_eq!(world.children().await.len(), 2);
    held.release().await.expect("released");
    let guard = soon("a turn", first).await.expect("held");
    let second = granted(second).await;
    assert_eq!(second.position(), 1);
    guard.release().await.expect("released");
    drop(soon("a turn", second).await.expect("held"));
}

#[tokio::test]
async fn multi_locks_of_the_same_paths_in_other_orders_are_all_served() {
    let world = World::calm().await;
    let paths = [format!("{}/a", world.path), format!("{}/b", world.path)];
    let locks = [[0, 1], [1, 0]].map(|order: [usize; 2]| {
        let builder = order.iter().fold(MultiLock::builder(&world.session), |all, index| all.lock(&paths[*index]));
        builder.with_options(local(1)).build().expect("a lock")
    });
    for locks in [locks.clone(), locks.map(MultiLock::sequential)] {
        let tasks = (0..40).map(|task| {
            let lock = locks[task % 2].clone();
            tokio::spawn(async move { lock.lock().await?.release().await })
        });
        for task in tasks.collect::<Vec<_>>() {
            soon("a turn", task).await.expect("no panic").expect("held and released");
        }
    }
}

/// Its share does not keep out those whom it does not exclude, such as one who holds what it waits for.
#[tokio::test]
async fn multi_lock_takes_no_slot_where_it_reads() {
    let world = World::calm().await;
    let [a, b] = ["a", "b"].map(|name| format!("{}/{name}", world.path));
    let held = Mutex::new(&world.session, &b).expect("a mutex").lock().await.expect("held");
    let both =
        MultiLock::builder(&world.session).read(&a).lock(&b).with_options(local(1)).build().expect("a lock");
    let both = tokio::spawn(async move { both.lock().await });
    wait_children(&world.admin, &a, 1).await;
    let reader = RwLock::with_options(&world.session, &a, local(1)).expect("a lock");
    drop(soon("a share", reader.read()).await.expect("held"));
    held.release().await.expect("released");
    drop(granted(both).await);
}

/// A waiter whose turn comes at one path is the first no longer at its others.
#[tokio::test]
async fn slot_behind_a_multi_lock_is_given_to_the_next() {
    let world = World::calm().await;
    let [a, b] = ["a", "b"].map(|name| format!("{}/{name}", world.path));
    let other = world.other().await;
    let foreign = [&a, &b].map(|path| Mutex::new(&other, path).expect("a mutex"));
    let _held = (foreign[0].lock().await.expect("held"), foreign[1].lock().await.expect("held"));
    let limited = |path: &str| Mutex::with_options(&world.session, path, local(2)).expect("a mutex");
    let (first, _second) = (waiter(limited(&a)), waiter(limited(&a)));
    wait_children(&world.admin, &a, 3).await;
    let both =
        MultiLock::builder(&world.session).lock(&a).lock(&b).with_options(local(2)).build().expect("a lock");
    let _both = tokio::spawn(async move { both.lock().await.map(drop) });
    settle().await;
    let _next = waiter(limited(&b));
    settle().await;
    assert_eq!(wait_children(&world.admin, &b, 1).await.len(), 1, "both wait in memory");
    first.abort();
    wait_children(&world.admin, &b, 3).await;
}

/// Readers of which one is on its way in exclude nobody.
#[tokio::test]
async fn try_read_does_not_count_readers_in_memory() {
    let world = World::calm().await;
    let lock = RwLock::with_options(&world.session, &world.path, local(1)).expect("a lock");
    world.proxy.on_request(|_| Verdict::Hold);
    let readers = [(); 2].map(|()| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.read().await })
    });
    settle().await;
    let mut tried = pin!(lock.try_read());
    assert!(poll!(&mut tried).is_pending(), "it asks the servers");
    world.proxy.on_request(|_| Verdict::Forward);
    world.proxy.heal();
    assert!(soon("a share", tried).await.expect("asked").is_some());
    for reader in readers {
        drop(granted(reader).await);
    }
}

#[tokio::test]
async fn reentrant_mutex_waits_in_memory_as_others_do() {
    let world = World::calm().await;
    let held = world.other_mutex().await.lock().await.expect("held");
    let first = waiter(mutex(&world, &local(1)));
    world.wait_children(2).await;
    let reentrant = ReentrantMutex::with_options(&world.session, &world.path, local(1)).expect("a mutex");
    let tried = reentrant.try_lock_for(&Owner::new(), Duration::from_millis(50)).await;
    assert!(matches!(tried, Ok(None)), "{tried:?}");
    let owner = Owner::new();
    let waiting = tokio::spawn({
        let (reentrant, owner) = (reentrant.clone(), owner.clone());
        async move { reentrant.lock(&owner).await }
    });
    settle().await;
    let tried = soon("an answer", reentrant.try_lock(&owner)).await;
    assert!(matches!(tried, Ok(None)), "{tried:?}");
    held.release().await.expect("released");
    drop(granted(first).await);
    drop(granted(waiting).await);
}

#[tokio::test]
async fn reentrant_call_with_a_limit_does_not_join_a_queue_that_is_too_long() {
    let world = World::calm().await;
    let held = world.other_mutex().await.lock().await.expect("held");
    let options = Options::new().with_max_ahead(0);
    let short = ReentrantMutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let owner = Owner::new();
    world.proxy.reset();
    let refused = soon("an answer before the limit", short.try_lock_for(&owner, Duration::MAX)).await;
    assert!(refused.expect("asked").is_none());
    assert_eq!(world.count(Op::Create2), 0);
    held.release().await.expect("released");
    let outer = soon("the lock", short.lock(&owner)).await.expect("held");
    let inner = short.try_lock_for(&owner, Duration::MAX).await.expect("asked").expect("it is held already");
    drop((outer, inner));
}

#[tokio::test]
async fn readers_that_hold_take_no_slot() {
    let world = World::calm().await;
    let lock = RwLock::with_options(&world.session, &world.path, local(1)).expect("a lock");
    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(soon("a share", lock.read()).await.expect("held"));
    }
    drop(guards);
    let semaphore = Semaphore::with_options(&world.session, &format!("{}/s", world.path), 5, local(1));
    let semaphore = semaphore.expect("a semaphore");
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(soon("a permit", semaphore.acquire()).await.expect("held"));
    }
    drop(permits);
    let reentrant = ReentrantMutex::with_options(&world.session, &format!("{}/r", world.path), local(1));
    let (reentrant, owner) = (reentrant.expect("a mutex"), Owner::new());
    let _outer = soon("a lock", reentrant.lock(&owner)).await.expect("held");
    let _inner = soon("another", reentrant.lock(&owner)).await.expect("held");
}

#[tokio::test]
async fn waiter_dropped_at_any_poll_frees_its_slot() {
    let world = World::calm().await;
    let mutex = mutex(&world, &local(1));
    for polls in 0..8 {
        let held = mutex.lock().await.expect("held");
        let first = waiter(mutex.clone());
        world.wait_children(2).await;
        for _ in 0..2 {
            tokio::select! {
                held = polled(polls, mutex.lock()) => assert!(held.is_none()),
                () = settle() => {}
            }
        }
        held.release().await.expect("released");
        drop(granted(first).await);
        soon("a lock", mutex.lock()).await.expect("held").release().await.expect("released");
        world.wait_empty().await;
    }
}

#[tokio::test]
async fn renewed_session_has_its_slots_again() {
    let world = World::calm().await;
    let options = local(1);
    let mutex = mutex(&world, &options);
    let held = world.other_mutex().await.lock().await.expect("held");
    let tasks = (0..3).map(|_| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.lock().await?.release().await })
    });
    let tasks: Vec<_> = tasks.collect();
    world.wait_children(2).await;
    world.expire().await;
    held.release().await.expect("released");
    for task in tasks {
        soon("a turn", task).await.expect("no panic").expect("held and released");
    }
}

#[tokio::test]
async fn call_with_a_limit_does_not_join_a_queue_that_is_too_long() {
    let world = World::calm().await;
    let _held = world.other_mutex().await.lock().await.expect("held");
    let first = waiter(world.mutex());
    world.wait_children(2).await;
    let short = mutex(&world, &Options::new().with_max_ahead(1));
    world.proxy.reset();
    // Its limit never passes, so only the length of the queue can end the call.
    let refused = soon("an answer before the limit", short.try_lock_for(Duration::MAX)).await;
    assert!(refused.expect("asked").is_none());
    assert_eq!(world.count(Op::Create2), 0);
    // As many as are allowed are ahead: it joins.
    let joins = mutex(&world, &Options::new().with_max_ahead(2));
    let joins = tokio::spawn(async move { joins.try_lock_for(Duration::MAX).await });
    soon("a node", world.proxy.wait_for(|one| one.op == Op::Create2)).await;
    joins.abort();
    first.abort();
    // Those in memory count, too.
    let session = connect_for(&world.hosts, UNHURRIED).await;
    let limited = Mutex::with_options(&session, &world.path, local(1).with_max_ahead(3)).expect("a mutex");
    let tasks: Vec<_> = (0..4).map(|_| waiter(limited.clone())).collect();
    settle().await;
    let refused = soon("an answer before the limit", limited.try_lock_for(Duration::MAX)).await;
    assert!(refused.expect("asked").is_none());
    tasks.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn local_queue_of_nobody_is_refused() {
    let world = World::calm().await;
    let refused = Mutex::with_options(&world.session, &world.path, local(0));
    assert!(matches!(refused, Err(Error::InvalidInput { .. })), "{refused:?}");
}
