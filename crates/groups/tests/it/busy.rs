//! Functions that block or end late, locks that cannot be read, and servers that are away: what the loop of a member does beside them.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use zookeeper_groups::Members;
use zookeeper_recipes::SessionState;
use zookeeper_recipes::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::support::{Fleet, LONG, Member, PATH, behind_a_gate, soon};

const THREE: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

/// How often the thread of this runtime has gone to sleep in two seconds.
async fn turns(fleet: &Fleet) -> u64 {
    let metrics = Handle::current().metrics();
    let before = metrics.worker_park_count(0);
    fleet.ledger.nothing_moves(Duration::from_secs(2)).await;
    metrics.worker_park_count(0) - before
}

/// A member with six shards, whose functions do not end before the gate is opened.
async fn slow() -> (Arc<tokio::sync::Semaphore>, Fleet, Member) {
    let (gate, fleet) =
        behind_a_gate(Fleet::new(6).await.set(|builder| builder.patience(Duration::from_millis(200))));
    let member = fleet.started(&THREE[..1]).await.remove(0);
    (gate, fleet, member)
}

#[tokio::test]
async fn member_that_stops_waits_for_its_functions_without_turns() {
    let (gate, fleet, member) = slow().await;
    member.shards.stop();
    let turns = turns(&fleet).await;
    assert!(turns < 500, "{turns} turns in two seconds");
    gate.add_permits(6);
    member.stop().await;
}

#[tokio::test]
async fn member_without_its_servers_waits_for_them_without_turns() {
    let fleet = Fleet::new(6).await.set(|builder| builder.patience(Duration::from_millis(200)));
    let member = fleet.started(&THREE[..1]).await.remove(0);
    let mut states = member.session.states();
    member.session.disconnect();
    soon("the end of the session", states.wait_for(|state| state == SessionState::Renewing))
        .await
        .expect("a state");
    let turns = turns(&fleet).await;
    assert!(turns < 500, "{turns} turns in two seconds");
}

/// The places among the moves are taken by shards whose owners do not end.
#[tokio::test(flavor = "multi_thread")]
async fn shards_without_an_owner_do_not_wait_for_owners_that_take_long_to_end() {
    let fleet = Fleet::new(48).await.set(|builder| builder.moves_at_once(2).patience(LONG).drain_limit(LONG));
    let (gate, fleet) = behind_a_gate(fleet);
    let mut members = fleet.started(&THREE[..2]).await;
    let third = fleet.start(THREE[2]).await;
    let asked = fleet.plan(&THREE).shards_of(THREE[2]).count();
    assert!(asked > 8);
    // It waits for two shards, and the others go at once.
    let mut plans = third.shards.changes();
    soon("a start", plans.changed()).await.expect("nothing");
    members.pop().expect("two").kill().await;
    // As after a crash: the servers end the session of the second member.
    fleet.ledger.until("all have an owner", |book| book.orphans() == 0).await;
    let both = [THREE[0], THREE[2]];
    let (before, after) = (fleet.plan(&THREE[..2]), fleet.plan(&both));
    let free =
        (0..48).filter(|&shard| before.owner(shard) == Some(THREE[1]) && after.owner(shard) == Some(THREE[2]));
    let free: Vec<_> = free.collect();
    assert!(free.len() > 4);
    fleet
        .ledger
        .until("they have it by plan", |book| free.iter().all(|&shard| book.owner(shard) == Some(THREE[2])))
        .await;
    gate.add_permits(48);
    fleet.settled(&both).await;
    fleet.ledger.judge();
}

/// One lock path has ACLs of its own. The one other member of the group takes no shard.
#[tokio::test(flavor = "multi_thread")]
async fn lock_that_cannot_be_read_does_not_hide_orphans() {
    let fleet = Fleet::new(12).await.set(|builder| builder.patience(Duration::from_secs(1)));
    let session = fleet.session().await;
    let group = Members::new(&session, &format!("{PATH}/members")).expect("a path");
    let _hung = soon("a join", group.join(THREE[1], b"12")).await.expect("joined");
    let orphan = fleet.plan(&THREE[..2]).shards_of(THREE[1]).next().expect("a shard");
    let acl = [Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    let options = CreateMode::Persistent.with_acls(Acls::new(&acl));
    let client = fleet.root.client().expect("a client");
    _ = client.create(&format!("{PATH}/{orphan}"), b"", &options).await.expect("created");
    let _member = fleet.start(THREE[0]).await;
    fleet.ledger.until("the others have an owner", |book| book.orphans() == 1).await;
    fleet.ledger.judge();
}

/// The node of a new member has ACLs of its own, so the set cannot be read any more.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_cannot_see_the_set_any_more_serve_by_the_last_plan() {
    let fleet = Fleet::new(12).await.set(|builder| builder.patience(Duration::from_secs(1)));
    let mut members = fleet.started(&THREE[..2]).await;
    let acl = [Acl::new(Permission::CREATE | Permission::DELETE | Permission::ADMIN, AuthId::anyone())];
    let options = CreateMode::Ephemeral.with_acls(Acls::new(&acl));
    let client = fleet.root.client().expect("a client");
    _ = client.create(&format!("{PATH}/members/{}", THREE[2]), b"12", &options).await.expect("created");
    let orphans = fleet.plan(&THREE[..2]).shards_of(THREE[1]).count();
    let killed = members.pop().expect("two").kill().await;
    fleet.ledger.until("its end", |book| book.orphans() == orphans).await;
    killed.expire();
    fleet.ledger.until("an owner for each", |book| book.orphans() == 0).await;
    fleet.ledger.judge();
}

/// The announcement of the end is under way when nothing is left to do.
#[tokio::test(flavor = "multi_thread")]
async fn drained_member_has_left_when_run_returns() {
    let fleet = Fleet::new(12).await;
    let mut members = fleet.started(&THREE[..2]).await;
    fleet.write_rules("version 1\ndrain orders-1\n").await;
    fleet.settled_by(&fleet.plan_by(&THREE[..2], "version 1\ndrain orders-1\n")).await;
    let drained = members.pop().expect("two");
    drained.shards.leave();
    soon("its end", drained.running).await.expect("no panic").expect("left");
    let group = Members::new(&fleet.root, &format!("{PATH}/members")).expect("a path");
    let names = soon("a read", group.members()).await.expect("read");
    assert_eq!(names.iter().map(|member| member.name()).collect::<Vec<_>>(), [THREE[0]]);
}
