//! What a release returns, and what happens without one.

use std::pin::pin;

use zookeeper_recipes::{Error, Loss};

use crate::support::World;

#[tokio::test]
async fn node_deleted_by_someone_else_is_not_a_release() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    let error = guard.release().await.expect_err("lost before");
    assert!(matches!(error, Error::Lost(Loss::Deleted)), "{error:?}");
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
