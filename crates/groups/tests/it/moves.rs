//! What moves when members come and go, and how many shards that are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use zookeeper_groups::tools::Plan;
use zookeeper_recipes::Mutex;

use crate::support::{Fleet, LONG};

const THREE: [&str; 3] = ["orders-0", "orders-1", "orders-2"];
const FOUR: [&str; 4] = ["orders-0", "orders-1", "orders-2", "orders-3"];

#[tokio::test(flavor = "multi_thread")]
async fn every_shard_is_owned_as_planned_and_by_one_member() {
    let fleet = Fleet::new(96).await;
    let members = fleet.started(&THREE).await;
    let plan = fleet.plan(&THREE);
    for member in &members {
        let mine: Vec<_> = plan.shards_of(member.shards.name()).collect();
        assert_eq!(member.shards.owned(), mine);
        assert_eq!(member.shards.plan().as_deref(), Some(&plan));
        let holder = member.shards.owner(mine[0]).await.expect("read").expect("an owner");
        assert_eq!(holder.identifier_lossy(), member.shards.name());
    }
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn join_moves_what_the_plan_moves_and_no_shard_is_long_without_an_owner() {
    let fleet = Fleet::new(256).await;
    let _members = fleet.started(&THREE).await;
    let began = Instant::now();
    let _new = fleet.start("orders-3").await;
    fleet.settled(&FOUR).await;
    let (moves, planned) = (fleet.ledger.moves(), fleet.difference(&THREE, &FOUR));
    let (gap, took) = (fleet.ledger.longest_gap(), began.elapsed());
    println!(
        "256 x 3: a join moves {moves} (planned {planned}, ideal 64) in {took:.2?}; longest without an owner {gap:.1?}"
    );
    assert_eq!((moves, fleet.ledger.grants()), (planned, planned));
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_leaves_hands_its_shards_over_at_once_in_spite_of_the_grace() {
    let fleet = Fleet::new(256).await.set(|builder| builder.grace(LONG));
    let mut members = fleet.started(&FOUR).await;
    let began = Instant::now();
    members.pop().expect("four").leave().await;
    fleet.settled(&THREE).await;
    let (moves, planned) = (fleet.ledger.moves(), fleet.difference(&FOUR, &THREE));
    let (gap, took) = (fleet.ledger.longest_gap(), began.elapsed());
    println!(
        "256 x 4: a leave moves {moves} (planned {planned}, ideal 64) in {took:.2?}; longest without an owner {gap:.1?}"
    );
    assert_eq!(moves, planned);
    fleet.ledger.judge();
}

/// Restarts all members one after the other, and returns how many shards have moved.
async fn rolling_restart(fleet: &Fleet, is_graceful: bool) -> usize {
    let mut members = fleet.started(&THREE).await;
    for name in THREE {
        members.remove(0).stop().await;
        if is_graceful {
            // It is missed, and the set has settled, long before that.
            fleet.ledger.nothing_moves(Duration::from_secs(1)).await;
        } else {
            let others: Vec<_> = THREE.into_iter().filter(|other| *other != name).collect();
            fleet.settled(&others).await;
        }
        members.push(fleet.start(name).await);
        fleet.settled(&THREE).await;
    }
    fleet.ledger.judge();
    fleet.ledger.moves()
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_within_the_grace_moves_nothing() {
    let fleet = Fleet::new(96).await.set(|builder| builder.grace(LONG));
    let moves = rolling_restart(&fleet, true).await;
    println!(
        "96 x 3: a rolling restart within the grace moves {moves}; longest without an owner {:.1?}",
        fleet.ledger.longest_gap()
    );
    assert_eq!(moves, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_without_a_grace_moves_all_shards_twice() {
    let fleet = Fleet::new(96).await;
    let moves = rolling_restart(&fleet, false).await;
    println!("96 x 3: a rolling restart without a grace moves {moves} of 96");
    assert!((2 * 96..2 * 96 + 60).contains(&moves), "{moves}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_shards_move_at_a_time_than_is_set() {
    let names = ["orders-0", "orders-1"];
    // They end in pairs, so another one that was asked to end would be counted.
    let moves = |count: &u32| Plan::new(*count, names).shards_of(names[1]).count();
    let count = (48..).find(|count| moves(count).is_multiple_of(2)).expect("an even number of moves");
    let (draining, most, pairs) =
        (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::new(Barrier::new(2)));
    let counts = (draining.clone(), most.clone(), pairs);
    let fleet = Fleet::new(count).await.set(|builder| builder.moves_at_once(2)).working(move |service, shard| {
        let (draining, most, pairs) = counts.clone();
        async move {
            shard.revoke_requested().await;
            most.fetch_max(draining.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            pairs.wait().await;
            draining.fetch_sub(1, Ordering::SeqCst);
            drop(service);
        }
    });
    let _first = fleet.started(&names[..1]).await;
    let _second = fleet.start(names[1]).await;
    fleet.settled(&names).await;
    assert_eq!(most.load(Ordering::SeqCst), 2);
    fleet.ledger.judge();
}

/// The function asks the servers who waits as soon as it is to end.
#[tokio::test(flavor = "multi_thread")]
async fn owner_is_asked_to_end_only_when_the_next_one_waits() {
    let fleet = Fleet::new(32).await;
    let (least, session) = (Arc::new(AtomicUsize::new(usize::MAX)), fleet.session().await);
    let (seen, asking) = (least.clone(), session.clone());
    let fleet = fleet.working(move |service, shard| {
        let (least, mutex) = (seen.clone(), Mutex::new(&asking, shard.monitor().path()).expect("a path"));
        async move {
            shard.revoke_requested().await;
            let nodes = mutex.occupancy().await.expect("read");
            least.fetch_min(nodes, Ordering::SeqCst);
            drop(service);
        }
    });
    let _first = fleet.started(&THREE[..1]).await;
    let second = fleet.start(THREE[1]).await;
    fleet.settled(&THREE[..2]).await;
    assert_eq!(least.load(Ordering::SeqCst), 2);
    second.leave().await;
    fleet.settled(&THREE[..1]).await;
    assert_eq!(least.load(Ordering::SeqCst), 2);
    fleet.ledger.judge();
}

/// `SHARDS_COUNT=4096 SHARDS_MEMBERS=64` is as wide as it is meant for, and takes the machine for itself.
#[tokio::test(flavor = "multi_thread")]
async fn wide_group_starts_and_moves_what_the_plan_moves() {
    let given =
        |variable: &str, or: u32| std::env::var(variable).ok().and_then(|given| given.parse().ok()).unwrap_or(or);
    let (count, members) = (given("SHARDS_COUNT", 1_024), given("SHARDS_MEMBERS", 8));
    let fleet = Fleet::new(count).await;
    let names: Vec<_> = (0..=members).map(|number| format!("orders-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (last, first) = names.split_last().expect("a name");
    let began = Instant::now();
    let _members = fleet.started(first).await;
    let started = began.elapsed();
    let began = Instant::now();
    let _new = fleet.start(last).await;
    fleet.settled(&names).await;
    let (moves, planned) = (fleet.ledger.moves(), fleet.difference(first, &names));
    let (gap, ideal) = (fleet.ledger.longest_gap(), count / (members + 1));
    println!(
        "{count} x {members}: all owned {started:.2?} after the start; a join moves {moves} (planned {planned}, ideal {ideal}) in \
         {:.2?}; longest without an owner {gap:.1?}",
        began.elapsed()
    );
    assert_eq!(moves, planned);
    fleet.ledger.judge();
}
