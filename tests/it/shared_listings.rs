//! Callers of one session that ask for the same listing at the same time share it, and what becomes of it.

use std::time::Duration;

use futures_util::future::try_join_all;
use testbed::frames::Op;
use testbed::proxy::Cut;
use zookeeper_recipes::{Mutex, MutexGuard, Result, Waiting};

use crate::support::{World, hosts, soon};

/// So many ask at once: all ask before the first is answered, since nothing else runs until each has been polled once.
const ASKING: usize = 8;

/// Four are sent, and one for all who asked while these were under way.
const LISTINGS: usize = 5;

async fn places(mutex: &Mutex) -> Result<Vec<Waiting<MutexGuard>>> {
    try_join_all((0..ASKING).map(|_| mutex.enqueue())).await
}

#[tokio::test]
async fn waiters_of_one_session_share_their_listings() {
    // Nothing is sent to renew trust meanwhile.
    let world = World::at(&hosts(), Duration::from_secs(20)).await;
    let _ahead = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    let places = soon("all are in line", places(&world.mutex())).await.expect("in line");
    let ops: Vec<_> = world.proxy.requests().iter().map(|request| request.op).collect();
    let [creates, listings] =
        [Op::Create2, Op::GetChildren].map(|op| ops.iter().filter(|one| **one == op).count());
    assert_eq!((creates, listings), (ASKING, LISTINGS), "{ops:?}");
    let mut positions: Vec<_> = places.iter().map(Waiting::position).collect();
    positions.sort_unstable();
    assert_eq!(positions, Vec::from_iter(1..=ASKING), "each sees all who are ahead");
}

#[tokio::test]
async fn those_who_share_a_listing_share_the_loss_of_the_connection() {
    let world = World::new().await;
    let _ahead = world.other_mutex().await.lock().await.expect("held");
    let mutex = world.mutex();
    // No more than these.
    for k in 1..=ASKING + LISTINGS {
        for cut in [Cut::AfterRequest(k), Cut::BeforeAnswer(k)] {
            world.proxy.reset();
            world.proxy.cut(cut);
            let places = soon("all are in line", places(&mutex)).await.expect("in line");
            assert!(world.proxy.cut_fired(), "{cut:?}");
            world.wait_children(1 + ASKING).await;
            drop(places);
            world.wait_children(1).await;
        }
    }
}

#[tokio::test]
async fn those_who_share_a_listing_share_the_end_of_the_session() {
    let world = World::new().await;
    let _ahead = world.other_mutex().await.lock().await.expect("held");
    let mutex = world.mutex();
    for k in [ASKING, ASKING + LISTINGS - 1] {
        world.proxy.reset();
        world.proxy.black_hole_after_request(k);
        let asked = tokio::spawn({
            let mutex = mutex.clone();
            async move { places(&mutex).await }
        });
        soon("requests", world.proxy.wait_for_requests(k)).await;
        world.expire().await;
        let places = soon("all are in line again", asked).await.expect("no panic").expect("in line");
        world.wait_children(1 + ASKING).await;
        drop(places);
        world.wait_children(1).await;
    }
}
