//! The plan node: drains and pins, and what a wrong or old one does.

use std::time::{Duration, Instant};

use testbed::proxy::Proxy;
use zookeeper_groups::tools::Plan;
use zookeeper_recipes::{Servers, Session};

use crate::support::{Fleet, LONG, soon};

const THREE: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

fn difference(count: u32, before: &Plan, after: &Plan) -> usize {
    (0..count).filter(|&shard| before.owner(shard) != after.owner(shard)).count()
}

/// A pin of a shard of the first member to the second, and the plan with it, which moves nothing else.
fn pin(fleet: &Fleet) -> (u32, String, Plan) {
    let before = fleet.plan(&THREE);
    let pins = before.shards_of(THREE[0]).map(|shard| {
        let text = format!("version 1\npin {shard} {}\n", THREE[1]);
        let plan = fleet.plan_by(&THREE, &text);
        (shard, text, plan)
    });
    pins.into_iter().find(|(.., plan)| difference(fleet.count, &before, plan) == 1).expect("a pin")
}

#[tokio::test(flavor = "multi_thread")]
async fn pin_moves_a_shard_by_one_hand_over_and_without_it_the_shard_moves_back() {
    let fleet = Fleet::new(96).await.set(|builder| builder.grace(LONG));
    let _members = fleet.started(&THREE).await;
    let (shard, text, plan) = pin(&fleet);
    fleet.write_rules(&text).await;
    fleet.settled_by(&plan).await;
    println!("a pin of shard {shard}: without an owner for {:.1?}", fleet.ledger.longest_gap());
    assert_eq!((fleet.ledger.moves(), fleet.ledger.grants()), (1, 1));
    fleet.write_rules("").await;
    fleet.settled(&THREE).await;
    assert_eq!((fleet.ledger.moves(), fleet.ledger.grants()), (2, 2));
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn pin_to_a_member_that_is_not_there_is_left_out_until_it_is() {
    let fleet = Fleet::new(96).await;
    let _members = fleet.started(&THREE[..2]).await;
    let shard = fleet.plan(&THREE).shards_of(THREE[0]).next().expect("a shard");
    let text = format!("version 1\npin {shard} {}\n", THREE[2]);
    fleet.write_rules(&text).await;
    fleet.ledger.nothing_moves(Duration::from_secs(1)).await;
    let third = fleet.start(THREE[2]).await;
    fleet.settled_by(&fleet.plan_by(&THREE, &text)).await;
    third.leave().await;
    fleet.settled(&THREE[..2]).await;
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_member_is_emptied_by_hand_overs_and_gets_its_shards_back() {
    let fleet = Fleet::new(96).await.set(|builder| builder.grace(LONG));
    let members = fleet.started(&THREE).await;
    let text = "version 1\ndrain orders-2\n";
    let drained = fleet.plan_by(&THREE, text);
    fleet.write_rules(text).await;
    fleet.settled_by(&drained).await;
    let moves = difference(96, &fleet.plan(&THREE), &drained);
    println!("96 x 3: a drain moves {moves}; longest without an owner {:.1?}", fleet.ledger.longest_gap());
    assert_eq!((fleet.ledger.moves(), fleet.ledger.grants()), (moves, moves));
    assert!(members[2].shards.owned().is_empty() && !members[2].running.is_finished());
    fleet.write_rules("version 1\n").await;
    fleet.settled(&THREE).await;
    assert_eq!((fleet.ledger.moves(), fleet.ledger.grants()), (2 * moves, 2 * moves));
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_member_can_leave_and_drains_of_all_do_not_count() {
    let fleet = Fleet::new(48).await;
    let mut members = fleet.started(&THREE[..2]).await;
    fleet.write_rules("version 1\ndrain orders-1\n").await;
    fleet.settled(&THREE[..1]).await;
    members.pop().expect("two").leave().await;
    // The drained one is alone.
    fleet.write_rules("version 1\ndrain orders-0\n").await;
    fleet.ledger.nothing_moves(Duration::from_secs(1)).await;
    fleet.settled(&THREE[..1]).await;
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_in_the_node_moves_nothing_and_the_last_good_rules_stay() {
    let fleet = Fleet::new(48).await;
    let (_, text, plan) = pin(&fleet);
    fleet.write_rules(&text).await;
    let members = fleet.started_by(&THREE, &plan).await;
    for rubbish in ["rubbish", "version 2\n", "version 1\npin 48 orders-0\n", "version 1\ndrain orders-0\ndrain\n"]
    {
        fleet.write_rules(rubbish).await;
        fleet.ledger.nothing_moves(Duration::from_secs(1)).await;
        assert_eq!(members[0].shards.plan().as_deref(), Some(&plan), "{rubbish}");
    }
    fleet.write_rules("version 1\ndrain orders-2\n").await;
    fleet.settled(&THREE[..2]).await;
    fleet.ledger.judge();
}

/// It has no rules, and the others have those from before.
#[tokio::test(flavor = "multi_thread")]
async fn member_that_starts_while_the_node_is_rubbish_leaves_no_shard_without_an_owner() {
    let fleet = Fleet::new(48).await.set(|builder| builder.patience(Duration::from_secs(1)));
    let drained = "version 1\ndrain orders-0\n";
    fleet.write_rules(drained).await;
    let _members = fleet.started_by(&THREE[..2], &fleet.plan_by(&THREE[..2], drained)).await;
    fleet.write_rules("rubbish").await;
    let _third = fleet.start(THREE[2]).await;
    // The two plans differ, so each moves what both want.
    let third = fleet.plan_by(&THREE, drained);
    let is_so = |shard| third.owner(shard) == Some(THREE[2]) && fleet.plan(&THREE).owner(shard) == Some(THREE[2]);
    let both: Vec<_> = (0..48).filter(|shard| is_so(*shard)).collect();
    assert!(!both.is_empty());
    let has_both = |book: &crate::ledger::Book| both.iter().all(|shard| book.owner(*shard) == Some(THREE[2]));
    fleet.ledger.until("what both want, and no orphan", |book| has_both(book) && book.orphans() == 0).await;
    fleet.write_rules(drained).await;
    fleet.settled_by(&third).await;
    fleet.ledger.judge();
}

/// The event of the second member is lost, so for a while its plan is another.
#[tokio::test(flavor = "multi_thread")]
async fn members_with_different_rules_for_a_while_cost_time_and_never_give_a_shard_to_two() {
    let fleet = Fleet::new(48).await.set(|builder| builder.patience(Duration::from_secs(6)));
    let proxy = Proxy::start(&fleet.root.hosts()).await.expect("a proxy");
    let servers = Servers::new(&proxy.hosts()).with_session_timeout(Duration::from_secs(20));
    let session = soon("a session", Session::connect(servers)).await.expect("connects");
    let shards = fleet.builder(THREE[1]).build(&session).expect("valid settings");
    let running = tokio::spawn(fleet.serve(&shards));
    let _first = fleet.start(THREE[0]).await;
    fleet.settled(&THREE[..2]).await;
    proxy.swallow_events();
    let (text, began) = ("version 1\ndrain orders-1\n", Instant::now());
    fleet.write_rules(text).await;
    fleet.settled_by(&fleet.plan_by(&THREE[..2], text)).await;
    println!("48 x 2: as planned {:.1?} after a write whose event was lost; patience is 6 s", began.elapsed());
    fleet.ledger.judge();
    running.abort();
}
