//! Members that join while shards still move to others. A hand-over takes a round trip, whatever the set of members does meanwhile.

use std::time::Duration;

use crate::support::Fleet;

/// The most that a hand-over takes: the old owner looks for a waiter, ends, and releases.
const HAND_OVER: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn shard_that_is_granted_while_another_member_joins_has_an_owner() {
    let settling = Duration::from_secs(5);
    let fleet = Fleet::new(64).await.set(move |builder| builder.settling_time(settling).moves_at_once(2));
    let _first = fleet.started(&["a", "b"]).await;
    let _third = fleet.start("c").await;
    fleet.ledger.until("two of its own", |book| book.owned_by("c").len() == 2).await;
    let _fourth = fleet.start("d").await;
    fleet.settled(&["a", "b", "c", "d"]).await;
    assert!(fleet.ledger.longest_gap() < HAND_OVER, "{:?}", fleet.ledger.longest_gap());
    fleet.ledger.judge();
}

/// Five members join three that serve 128 shards, one after each such time.
async fn scale_out(every: Duration, settling: Duration) {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let fleet = Fleet::new(128).await.set(move |builder| builder.settling_time(settling));
    let mut members = fleet.started(&names[..3]).await;
    for name in &names[3..] {
        members.push(fleet.start(name).await);
        tokio::time::sleep(every).await;
    }
    fleet.settled(&names).await;
    assert!(fleet.ledger.longest_gap() < HAND_OVER, "{:?}", fleet.ledger.longest_gap());
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_that_grows_fast_serves_all_shards() {
    scale_out(Duration::from_millis(1_200), Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_that_grows_at_the_pace_of_its_settling_serves_all_shards() {
    scale_out(Duration::from_millis(5_300), Duration::from_secs(5)).await;
}
