//! A lock and its release, and by which requests the lock was granted.

use testbed::frames::Op;
use zookeeper_recipes::zookeeper_client::{Acl, AuthId, Permission};
use zookeeper_recipes::{Mutex, MutexGuard};

use crate::support::{World, soon};

/// Where it is not known that the path has no data, or somebody else was there.
pub(crate) const LISTED: [Op; 2] = [Op::Create2, Op::GetChildren2];

/// The create counts the children.
pub(crate) const COUNTED: [Op; 1] = [Op::Multi];

pub(crate) async fn lock(world: &World, mutex: &Mutex) -> (MutexGuard, Vec<Op>) {
    world.proxy.reset();
    let guard = soon("the lock", mutex.lock()).await.expect("held");
    // After a reconnect the session asks once whose it is.
    let ops = world.ops().into_iter().filter(|op| *op != Op::GetEphemerals).collect();
    (guard, ops)
}

pub(crate) async fn cycle(world: &World, mutex: &Mutex) -> Vec<Op> {
    let (guard, ops) = lock(world, mutex).await;
    guard.release().await.expect("released");
    ops
}

/// Locks until the next lock is to be granted by the answer to its create.
pub(crate) async fn until_undisturbed(world: &World) -> Mutex {
    let mutex = world.mutex();
    assert_eq!(cycle(world, &mutex).await, LISTED);
    assert_eq!(cycle(world, &mutex).await, COUNTED);
    mutex
}

/// The data of a path that may not be written is tried once.
pub(crate) async fn is_tried_once(world: &World) {
    let mutex = until_undisturbed(world).await;
    let unwritable = Permission::READ | Permission::CREATE | Permission::DELETE | Permission::ADMIN;
    world.admin.set_acl(&world.path, &[Acl::new(unwritable, AuthId::anyone())], None).await.expect("restricted");
    assert_eq!(cycle(world, &mutex).await, [Op::Multi, Op::Create2, Op::GetChildren2]);
    for _ in 0..3 {
        assert_eq!(cycle(world, &mutex).await, LISTED);
    }
}
