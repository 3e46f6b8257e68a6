//! A path that is in use as a semaphore is refused to every other recipe, because neither excludes the other.

use std::time::Duration;

use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, Mutex, Semaphore};

use crate::family::{FAMILY, Held, Kin};
use crate::support::{TIMEOUT, World, soon};

/// The recipes with a node of their own at the lock path.
fn at_the_path() -> impl Iterator<Item = &'static Kin> {
    FAMILY.iter().filter(|kin| kin.queues[0].0.is_empty())
}

fn assert_refused<T>(granted: Result<T, Error>, path: &str, what: &str) {
    match granted.map(drop) {
        Err(Error::InvalidInput { what: "recipe", reason }) => {
            assert!(reason.starts_with(path) && reason.contains("a Semaphore"), "{what}: {reason}");
        }
        other => panic!("{what} beside a permit: {other:?}"),
    }
}

#[tokio::test]
async fn lock_at_the_path_of_a_semaphore_in_use_is_refused_and_leaves_nothing() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.other().await, &world.path, 3).expect("a semaphore");
    let permit = semaphore.acquire().await.expect("free");
    for kin in at_the_path() {
        let lock = kin.lock(&world.session, &world.path);
        assert_refused(soon(kin.name, lock.hold()).await, &world.path, kin.name);
        assert_refused(soon(kin.name, lock.try_hold()).await, &world.path, kin.name);
        for limit in [Duration::ZERO, TIMEOUT] {
            assert_refused(soon(kin.name, lock.try_hold_for(limit)).await, &world.path, kin.name);
        }
        if let Some(refused) = soon(kin.name, lock.enqueue()).await.transpose() {
            assert_refused(async { refused?.await }.await, &world.path, kin.name);
        }
    }
    let mut children = world.wait_children(2).await;
    children.sort();
    assert_eq!(children, ["leases", "locks"]);
    permit.release().await.expect("released");
}

/// The semaphore has not seen the lock, so both are in use.
#[tokio::test]
async fn try_behind_a_holder_is_refused_beside_a_permit() {
    let world = World::new().await;
    let _guard = world.other_mutex().await.lock().await.expect("free");
    let semaphore = Semaphore::new(&world.other().await, &world.path, 1).expect("a semaphore");
    let _permit = semaphore.acquire().await.expect("free");
    for kin in at_the_path() {
        let lock = kin.lock(&world.session, &world.path);
        assert_refused(soon(kin.name, lock.try_hold()).await, &world.path, kin.name);
    }
}

#[tokio::test]
async fn multi_lock_with_the_path_of_a_semaphore_in_use_is_refused() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.other().await, &format!("{}/b", world.path), 1).expect("a semaphore");
    let _permit = semaphore.acquire().await.expect("free");
    let name = "multi-lock";
    let kin = FAMILY.iter().find(|kin| kin.name == name).expect("it has one");
    let lock = kin.lock(&world.session, &world.path);
    assert_refused(soon(name, lock.hold()).await, &format!("{}/b", world.path), name);
    assert_refused(soon(name, lock.try_hold()).await, &format!("{}/b", world.path), name);
}

/// A session that was alone at a path is granted without a listing, but not once others have changed the path.
#[tokio::test]
async fn semaphore_that_comes_later_is_seen_by_a_session_that_was_alone() {
    let world = World::new().await;
    let mutex = world.mutex();
    for _ in 0..3 {
        mutex.lock().await.expect("free").release().await.expect("released");
    }
    let semaphore = Semaphore::new(&world.other().await, &world.path, 1).expect("a semaphore");
    let permit = semaphore.acquire().await.expect("free");
    assert_refused(soon("an answer", mutex.lock()).await, &world.path, "a mutex");
    permit.release().await.expect("released");
    soon("the lock", mutex.lock()).await.expect("free").release().await.expect("released");
    let permit = semaphore.acquire().await.expect("free");
    assert_refused(soon("an answer", mutex.lock()).await, &world.path, "a mutex");
    permit.release().await.expect("released");
}

#[tokio::test]
async fn path_whose_semaphore_is_free_can_be_locked() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.session, &world.path, 3).expect("a semaphore");
    semaphore.acquire().await.expect("free").release().await.expect("released");
    for kin in at_the_path() {
        let lock = kin.lock(&world.session, &world.path);
        soon(kin.name, lock.hold()).await.expect(kin.name).release().await.expect("released");
        let guard = soon(kin.name, lock.try_hold()).await.expect(kin.name).expect("free");
        guard.release().await.expect("released");
    }
}

/// A service may have folders of these names below a path that it locks, with other locks in them.
#[tokio::test]
async fn locks_in_folders_of_these_names_below_a_lock_exclude_nothing() {
    let world = World::new().await;
    let mut guards: Vec<Box<dyn Held>> = Vec::new();
    for folder in ["locks", "leases"] {
        world.make_path().await;
        let nested = format!("{}/{folder}", world.path);
        let folders = [nested.clone(), format!("{nested}/orders")];
        for path in &folders {
            let created = world.admin.mkdir(path, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await;
            created.expect("created");
            guards.push(Box::new(Mutex::new(&world.session, path).expect("a mutex").lock().await.expect("free")));
        }
    }
    for kin in at_the_path() {
        let lock = kin.lock(&world.session, &world.path);
        soon(kin.name, lock.hold()).await.expect(kin.name).release().await.expect("released");
        let guard = soon(kin.name, lock.try_hold()).await.expect(kin.name).expect("free");
        guard.release().await.expect("released");
    }
    // The semaphore's turns are nodes like those of a mutex, in a folder that has folders of these names itself.
    let semaphore = Semaphore::new(&world.session, &world.path, 3).expect("a semaphore");
    for folder in ["locks", "leases"] {
        let path = format!("{}/locks/{folder}", world.path);
        let created = world.admin.mkdir(&path, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await;
        created.expect("created");
    }
    let below = Semaphore::new(&world.session, &format!("{}/locks", world.path), 1).expect("a semaphore");
    let permit = soon("a permit below", below.acquire()).await.expect("free");
    drop(guards);
    soon("a permit", semaphore.acquire()).await.expect("free").release().await.expect("released");
    permit.release().await.expect("released");
}
