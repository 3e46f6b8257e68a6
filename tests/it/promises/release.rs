//! What a release returns, and what happens without one.

use std::pin::pin;

use testbed::proxy::Cut;
use zookeeper_recipes::{Error, Loss};

use crate::support::{World, polled, soon};

#[tokio::test]
async fn delete_whose_answer_is_lost_counts_as_a_release() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.reset();
    world.proxy.cut(Cut::BeforeAnswer(1));
    soon("the release", guard.release()).await.expect("our own delete, whose answer was lost");
    assert!(world.proxy.cut_fired());
}

#[tokio::test]
async fn node_deleted_by_someone_else_is_not_a_release() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.admin.delete(&guard.nodes()[0], None).await.expect("deleted");
    let error = guard.release().await.expect_err("lost before");
    assert!(matches!(error, Error::Lost(Loss::Deleted)), "{error:?}");
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
