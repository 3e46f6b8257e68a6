//! Settings, names, sets of owned shards, and the ends of `run`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testbed::next_look;
use zookeeper_groups::Shards;
use zookeeper_groups::shards::{OwnedChanges, Shard, ShardsBuilder};
use zookeeper_groups::tools::Plan;
use zookeeper_recipes::Error;

use crate::support::{Fleet, Member, PATH, TIMEOUT, soon};

const TWO: [&str; 2] = ["orders-0", "orders-1"];

#[test]
fn public_types_and_futures_can_go_to_other_threads() {
    fn is_shared<T: Send + Sync + 'static>() {}
    fn goes<T: Send + 'static>(_: impl Fn(Shards) -> T) {}
    is_shared::<Shards>();
    is_shared::<ShardsBuilder>();
    is_shared::<Shard>();
    is_shared::<Plan>();
    is_shared::<OwnedChanges>();
    goes(|shards| shards.run(async |shard| shard.revoke_requested().await));
    goes(|shards| async move { shards.owner(0).await });
    goes(|shards| async move { shards.changes().changed().await });
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_refused_with_what_is_wrong() {
    let fleet = Fleet::new(8).await;
    let refused = |builder: ShardsBuilder| match builder.build(&fleet.root) {
        Err(Error::InvalidInput { what, .. }) => what,
        built => panic!("{built:?}"),
    };
    assert_eq!(refused(Shards::builder(PATH, 0).name("a")), "count");
    assert_eq!(refused(Shards::builder(PATH, 8_193).name("a")), "count");
    assert_eq!(refused(Shards::builder(PATH, 8)), "name");
    assert_eq!(refused(Shards::builder(PATH, 8).name("a").moves_at_once(0)), "moves_at_once");
    assert_eq!(refused(Shards::builder(PATH, 8).name("a").patience(Duration::ZERO)), "patience");
    assert_eq!(refused(Shards::builder("orders", 8).name("a")), "lock path");
    assert_eq!(refused(Shards::builder(PATH, 8).name("a").data([b'x'; 4_001])), "data");
    let shards =
        Shards::builder(PATH, 8).name("a").grace(Duration::MAX).settling_time(Duration::MAX).build(&fleet.root);
    let shards = shards.expect("long times are no error");
    assert!(matches!(shards.owner(8).await, Err(Error::InvalidInput { what: "shard", .. })));
    assert!(shards.owner(7).await.expect("read").is_none());
}

#[tokio::test]
async fn name_of_another_process_is_refused_after_the_limit() {
    let fleet = Fleet::new(8).await.set(|builder| builder.name_limit(Duration::from_millis(200)));
    let _members = fleet.started(&["orders-0"]).await;
    let second = fleet.start("orders-0").await;
    let ended = soon("its end", second.running).await.expect("no panic");
    assert!(matches!(ended, Err(Error::NameTaken { .. })), "{ended:?}");
    fleet.ledger.judge();
}

#[tokio::test]
async fn member_that_starts_in_an_outage_joins_after_it() {
    let fleet = Fleet::new(8).await;
    let session = fleet.session().await;
    session.disconnect();
    let member = fleet.start_in(session, "orders-0");
    // A join gives up after one session timeout.
    fleet.ledger.nothing_moves(TIMEOUT + Duration::from_secs(1)).await;
    assert!(!member.running.is_finished());
    member.session.reconnect();
    fleet.settled(&["orders-0"]).await;
    member.stop().await;
}

#[tokio::test]
async fn member_that_waits_for_its_name_can_be_stopped() {
    let fleet = Fleet::new(8).await;
    let _members = fleet.started(&["orders-0"]).await;
    let second = fleet.start("orders-0").await;
    second.stop().await;
    fleet.ledger.judge();
}

#[tokio::test]
async fn set_of_owned_shards_is_followed() {
    let fleet = Fleet::new(16).await;
    let first = fleet.start("orders-0").await;
    let mut changes = first.shards.changes();
    assert_eq!(soon("nothing", changes.changed()).await, Some(vec![]));
    let all = soon("all", changes.wait_for(|shards| shards.len() == 16)).await;
    assert_eq!(all, Some((0..16).collect()));
    let _second = fleet.start("orders-1").await;
    let mine: Vec<_> = fleet.plan(&["orders-0", "orders-1"]).shards_of("orders-0").collect();
    assert_eq!(soon("a half", changes.wait_for(|shards| *shards == mine)).await.as_ref(), Some(&mine));
    let mut changes = first.shards.changes();
    first.stop().await;
    assert_eq!(soon("nothing", changes.wait_for(<[_]>::is_empty)).await, Some(vec![]));
    assert_eq!(soon("its end", changes.changed()).await, None);
}

/// The data of a member comes back with it, and stays while it leaves.
#[tokio::test]
async fn members_know_where_the_owner_of_a_shard_is() {
    let fleet = Fleet::new(8).await;
    let start = async |name: &str, data: &[u8]| {
        let session = fleet.session().await;
        let shards = fleet.builder(name).data(data).build(&session).expect("valid settings");
        Member { running: tokio::spawn(fleet.serve(&shards)), session, shards }
    };
    let first = start(TWO[0], b"10.0.0.1:80").await;
    assert_eq!(first.shards.route(0), None, "there is no plan yet");
    let second = start(TWO[1], b"10.0.0.2:80\nzone b").await;
    fleet.settled(&TWO).await;
    for shard in 0..8 {
        let owner = fleet.plan(&TWO).owner(shard).expect("an owner").to_owned();
        let data: &[u8] = if owner == TWO[0] { b"10.0.0.1:80" } else { b"10.0.0.2:80\nzone b" };
        assert_eq!(first.shards.route(shard), Some((owner, data.to_vec())));
    }
    assert_eq!(first.shards.route(8), None);
    second.leave().await;
    assert_eq!(first.shards.route(0), Some((TWO[0].to_owned(), b"10.0.0.1:80".to_vec())));
}

#[tokio::test]
async fn dropped_run_releases_all_shards_and_leaves() {
    let fleet = Fleet::new(16).await;
    let mut members = fleet.started(&["orders-0", "orders-1"]).await;
    let dropped = members.pop().expect("two");
    let mut changes = dropped.shards.changes();
    dropped.running.abort();
    assert!(soon("its end", dropped.running).await.is_err());
    assert_eq!(soon("nothing", changes.wait_for(<[_]>::is_empty)).await, Some(vec![]));
    // Its session lives.
    fleet.settled(&["orders-0"]).await;
    fleet.ledger.judge();
}

#[tokio::test]
async fn drain_of_the_session_lets_shards_finish_and_ends_run() {
    let fleet = Fleet::new(8).await;
    let member = fleet.started(&["orders-0"]).await.pop().expect("a member");
    soon("the drain", member.session.drain(Duration::from_secs(20))).await.expect("drained");
    let ended = soon("its end", member.running).await.expect("no panic");
    assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    assert_eq!(fleet.ledger.read(|book| book.orphans()), 8);
    fleet.ledger.judge();
}

#[tokio::test]
async fn panic_and_return_of_a_function_end_one_shard_which_is_served_again_after_a_pause() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let fleet = Fleet::new(4).await.working(move |service, shard| {
        let call = if shard.number() == 2 { counted.fetch_add(1, Ordering::SeqCst) } else { 9 };
        async move {
            match call {
                0 => panic!("this panic is part of the test"),
                1 => {}
                _ => shard.revoke_requested().await,
            }
            drop(service);
        }
    });
    let members = fleet.started(&["orders-0"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(members[0].shards.owned(), [0, 1, 2, 3]);
    fleet.ledger.judge();
}

#[tokio::test]
async fn shard_whose_lock_is_broken_is_served_again_with_a_larger_token() {
    let fleet = Fleet::new(4).await;
    let members = fleet.started(&["orders-0"]).await;
    let before = members[0].shards.owner(1).await.expect("read").expect("an owner").token();
    members[0].session.lose(&format!("{PATH}/1")).await.expect("broken");
    fleet.ledger.until("served again", |book| book.orphans() == 0).await;
    fleet.ledger.until("another grant", |book| book.owner(1).is_some()).await;
    let is_newer = async {
        loop {
            let owner = members[0].shards.owner(1).await.expect("read");
            if owner.is_some_and(|owner| owner.token() > before) {
                return;
            }
            next_look().await;
        }
    };
    soon("another owner", is_newer).await;
    fleet.settled(&["orders-0"]).await;
    fleet.ledger.judge();
}
