//! Members that are killed, stopped or cut off, that hang, or that do not take their shards.

use std::time::{Duration, Instant};

use zookeeper_groups::Members;

use crate::support::{Fleet, LONG, PATH, TIMEOUT, soon, within};

const TWO: [&str; 2] = ["orders-0", "orders-1"];
const THREE: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_killed_member_are_owned_again_when_its_session_has_ended() {
    let fleet = Fleet::new(96).await;
    let mut members = fleet.started(&THREE).await;
    let began = Instant::now();
    let _session = members.pop().expect("three").kill().await;
    fleet.settled(&TWO).await;
    println!("96 x 3: owned again {:.2?} after a kill; T is {TIMEOUT:?}", began.elapsed());
    // A tick later, settled, and what a busy machine takes.
    assert!(began.elapsed() < TIMEOUT + Duration::from_secs(5));
    assert_eq!(fleet.ledger.moves(), fleet.difference(&THREE, &TWO));
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_of_a_killed_member_wait_for_its_restart_within_the_grace() {
    let fleet = Fleet::new(96).await.set(|builder| builder.grace(LONG));
    let mut members = fleet.started(&THREE).await;
    let orphans = fleet.plan(&THREE).shards_of("orders-2").count();
    let session = members.pop().expect("three").kill().await;
    // Before that the name is taken.
    session.expire();
    fleet.ledger.until("its end", |book| book.orphans() == orphans).await;
    // It is missed, and the set has settled, long before that.
    fleet.ledger.nothing_moves(Duration::from_secs(1)).await;
    let _again = fleet.start("orders-2").await;
    fleet.settled(&THREE).await;
    assert_eq!(fleet.ledger.moves(), 0);
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_is_cut_off_loses_its_shards_before_others_get_them_and_gets_them_back() {
    let fleet = Fleet::new(48).await;
    let members = fleet.started(&TWO).await;
    members[1].session.disconnect();
    fleet.settled(&["orders-0"]).await;
    assert!(members[1].shards.owned().is_empty());
    members[1].session.reconnect();
    fleet.settled(&TWO).await;
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_shorter_than_the_session_moves_nothing() {
    let fleet = Fleet::new(48).await;
    let members = fleet.started(&TWO).await;
    for member in &members {
        member.session.disconnect();
        let mut states = member.session.states();
        soon("the cut", states.wait_for(|state| !state.is_connected())).await.expect("a state");
        member.session.reconnect();
        soon("the reconnect", states.wait_for(|state| state.is_connected())).await.expect("a state");
    }
    fleet.settled(&TWO).await;
    assert_eq!((fleet.ledger.moves(), fleet.ledger.grants()), (0, 0));
    fleet.ledger.judge();
}

/// Works on each shard all the time, so that a stopped member would go on at once.
pub(crate) fn busy(fleet: Fleet) -> Fleet {
    fleet.working(|service, shard| async move {
        let mut turns = tokio::time::interval(Duration::from_millis(10));
        let mut asked = std::pin::pin!(shard.revoke_requested());
        loop {
            tokio::select! {
                () = &mut asked => return,
                _ = turns.tick() => service.step(),
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn function_that_does_not_end_is_cut_after_the_limit() {
    let limit = Duration::from_secs(1);
    let fleet = Fleet::new(12).await.set(move |builder| builder.drain_limit(limit).moves_at_once(12));
    let fleet = fleet.working(|service, _| async move {
        std::future::pending::<()>().await;
        drop(service);
    });
    let members = fleet.started(&TWO[..1]).await;
    let second = fleet.start("orders-1").await;
    fleet.settled(&TWO).await;
    fleet.ledger.judge();
    // So it is when a member stops.
    let began = Instant::now();
    second.stop().await;
    assert!(began.elapsed() >= limit);
    fleet.settled(&TWO[..1]).await;
    assert_eq!(members[0].shards.owned().len(), 12);
    fleet.ledger.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_flaps_moves_nothing() {
    let fleet = Fleet::new(48).await.set(|builder| builder.settling_time(Duration::from_secs(3)));
    let _members = fleet.started(&TWO).await;
    let session = fleet.session().await;
    let group = Members::new(&session, &format!("{PATH}/members")).expect("a path");
    let mut changes = group.changes();
    for _ in 0..5 {
        let flapping = soon("a join", group.join("orders-2", b"48")).await.expect("joined");
        within("it", Duration::from_secs(2), changes.wait_for(|set| set.len() == 3)).await.expect("seen");
        soon("a leave", flapping.leave()).await.expect("left");
        within("its end", Duration::from_secs(2), changes.wait_for(|set| set.len() == 2)).await.expect("seen");
    }
    // A change that lasts is followed, and only that.
    let _third = fleet.start("orders-2").await;
    fleet.settled(&THREE).await;
    assert_eq!(fleet.ledger.moves(), fleet.difference(&TWO, &THREE));
    fleet.ledger.judge();
}

/// A member is in the group under its name, and takes no shard.
#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_taken_by_the_next_members_and_given_back() {
    let fleet = Fleet::new(48).await.set(|builder| builder.patience(Duration::from_secs(1)));
    let session = fleet.session().await;
    let group = Members::new(&session, &format!("{PATH}/members")).expect("a path");
    let hung = soon("a join", group.join("orders-2", b"48")).await.expect("joined");
    let began = Instant::now();
    let _members = [fleet.start("orders-0").await, fleet.start("orders-1").await];
    fleet.ledger.until("all owned", |book| book.orphans() == 0).await;
    println!(
        "48 x 3: all owned {:.2?} after the start, with one of three members hung; patience is 1 s",
        began.elapsed()
    );
    let plan = fleet.plan(&THREE);
    for shard in plan.shards_of("orders-2") {
        let owner = fleet.ledger.read(|book| book.owner(shard).map(str::to_owned));
        assert!(TWO.contains(&owner.as_deref().expect("an owner")));
    }
    soon("a leave", hung.leave()).await.expect("left");
    let _third = fleet.start("orders-2").await;
    fleet.settled(&THREE).await;
    fleet.ledger.judge();
}

/// Its session ended, and another process has taken its name.
#[tokio::test(flavor = "multi_thread")]
async fn member_that_has_lost_its_name_takes_no_shard_until_it_has_it_again() {
    let fleet = Fleet::new(24).await.set(|builder| builder.patience(Duration::from_secs(1)));
    let members = fleet.started(&TWO).await;
    let session = fleet.session().await;
    let group = Members::new(&session, &format!("{PATH}/members")).expect("a path");
    members[0].session.disconnect();
    let thief = soon("the name", group.join_when_free("orders-0", b"24")).await.expect("joined");
    members[0].session.reconnect();
    let mut states = members[0].session.states();
    soon("the renewal", states.wait_for(|state| state.is_connected())).await.expect("a state");
    // By plan half of them are those of the other process, which takes none.
    fleet.settled(&["orders-1"]).await;
    assert!(members[0].shards.owned().is_empty());
    soon("a leave", thief.leave()).await.expect("left");
    fleet.settled(&TWO).await;
    fleet.ledger.judge();
}

/// Joins, stops, leaves, kills and cuts, in a random order.
#[tokio::test(flavor = "multi_thread")]
async fn random_faults_never_give_a_shard_to_two_and_leave_none_without_an_owner() {
    let seed = std::env::var("SHARDS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(44);
    let steps = std::env::var("SHARDS_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(14);
    println!("SHARDS_SEED={seed} SHARDS_STEPS={steps}");
    let mut random = fastrand::Rng::with_seed(seed);
    let fleet = busy(Fleet::new(64).await.set(|builder| builder.patience(Duration::from_secs(3))));
    let names = ["a", "b", "c", "d", "e"];
    let mut alive = std::collections::BTreeMap::new();
    for name in &names[..3] {
        alive.insert(*name, fleet.start(name).await);
    }
    let mut killed = Vec::new();
    for _ in 0..steps {
        let name = names[random.usize(..names.len())];
        match (alive.remove(name), random.u32(..4)) {
            (None, _) => _ = alive.insert(name, fleet.start(name).await),
            (Some(member), 0) => member.stop().await,
            (Some(member), 1) => member.leave().await,
            (Some(member), 2) => killed.push(member.kill().await),
            (Some(member), _) => {
                member.session.disconnect();
                if random.bool() {
                    fleet.ledger.until("its end", |book| book.owned_by(name).is_empty()).await;
                }
                member.session.reconnect();
                alive.insert(name, member);
            }
        }
        // Most faults come while shards still move because of the one before.
        if random.u32(..3) == 0 {
            fleet.settled(&alive.keys().copied().collect::<Vec<_>>()).await;
        }
    }
    if alive.is_empty() {
        alive.insert("a", fleet.start("a").await);
    }
    let began = Instant::now();
    let left: Vec<_> = alive.keys().copied().collect();
    fleet.settled(&left).await;
    println!(
        "64 shards, {steps} faults, {} grants: as planned {:.2?} after the last",
        fleet.ledger.grants(),
        began.elapsed()
    );
    assert!(began.elapsed() < TIMEOUT * 2 + Duration::from_secs(6));
    fleet.ledger.judge();
}

/// All sessions end at once, and again soon after. Each time all look before the owners are back, and not while these serve.
#[tokio::test(flavor = "multi_thread")]
async fn outages_one_after_the_other_move_no_shard_of_a_member_that_lives() {
    let (names, second) = (["a", "b", "c", "d"], Duration::from_secs(1));
    let fleet = Fleet::new(48).await.set(move |builder| builder.grace(15 * second).patience(10 * second));
    let members = fleet.started(&names).await;
    for pause in [3_600, 4_600, 4_600, 4_600].map(Duration::from_millis) {
        members.iter().for_each(|member| member.session.disconnect());
        tokio::time::sleep(TIMEOUT * 2).await;
        members.iter().for_each(|member| member.session.reconnect());
        tokio::time::sleep(pause).await;
    }
    fleet.settled(&names).await;
    assert_eq!(fleet.ledger.moves(), 0);
    fleet.ledger.judge();
}
