//! A session that locks a path again where nobody else has queued since is granted the lock by the answer to its create.

use std::time::Duration;

use futures_util::future::join_all;
use testbed::frames::Op;
use testbed::proxy::{Request, Verdict};
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, Options};

use crate::requests::cycle::{COUNTED, LISTED, cycle, is_tried_once, lock, until_undisturbed};
use crate::support::{World, make_paths, pass, soon};

/// The create has counted others.
const MISCOUNTED: [Op; 2] = [Op::Multi, Op::GetChildren2];

#[tokio::test]
async fn undisturbed_lock_and_its_release_take_one_request_each() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    let mut last = None;
    for _ in 0..5 {
        let (guard, ops) = lock(&world, &mutex).await;
        assert_eq!(ops, COUNTED);
        let parts = world.proxy.requests().remove(0).parts;
        let [(Op::Create2, node), (Op::SetData, path)] = parts.as_slice() else { panic!("{parts:?}") };
        assert!(guard.nodes()[0].starts_with(node.as_str()) && *path == world.path, "{parts:?}");
        assert_eq!(guard.state(), HoldState::Held);
        assert!(last.replace(guard.fencing_token()) < Some(guard.fencing_token()));
        world.proxy.reset();
        guard.release().await.expect("released");
        assert_eq!(world.ops(), [Op::Delete]);
    }
    for _ in 0..5 {
        let (guard, mut ops) = lock(&world, &mutex).await;
        ops.retain(|op| *op != Op::Delete);
        assert_eq!(ops, COUNTED);
        // The delete is sent, and its answer comes before that to the next create.
        drop(guard);
    }
    world.wait_empty().await;
}

/// Waits until the waiter's watches are set: on its predecessor, and on its own node.
async fn watched(world: &World, count: usize) {
    let set = |one: &&Request| one.watch && one.answer.is_some();
    let are_set = |requests: &[Request]| requests.iter().filter(set).count() >= count;
    soon("watches", world.proxy.wait_until(are_set)).await;
}

/// It is seen before anything is written, over this connection and over the next. Later data may be overwritten, as documented.
#[tokio::test]
async fn data_written_to_the_path_is_seen() {
    let world = World::with_path().await;
    world.admin.set_data(&world.path, b"x", None).await.expect("written");
    let mutex = world.mutex();
    let data = async || world.admin.get_data(&world.path).await.expect("read").0;
    for _ in 0..3 {
        assert_eq!(cycle(&world, &mutex).await, LISTED);
    }
    assert_eq!(data().await, b"x");
    world.admin.set_data(&world.path, b"", None).await.expect("written");
    until_undisturbed(&world).await;
    world.proxy.cut_now();
    let client = world.session.client().expect("a client");
    soon("another connection", async { while client.check_stat("/").await.is_err() {} }).await;
    world.admin.set_data(&world.path, b"y", None).await.expect("written");
    for _ in 0..3 {
        assert_eq!(cycle(&world, &mutex).await, LISTED);
    }
    assert_eq!(data().await, b"y");
}

#[tokio::test]
async fn data_of_the_path_is_kept_where_a_lock_may_not_write_it() {
    let world = World::with_path().await;
    let mutex = Mutex::with_options(&world.session, &world.path, Options::new().with_one_request(false));
    let mutex = mutex.expect("a mutex");
    for _ in 0..3 {
        assert_eq!(cycle(&world, &mutex).await, LISTED);
    }
    world.admin.set_data(&world.path, b"x", None).await.expect("written");
    assert_eq!(cycle(&world, &mutex).await, LISTED);
    assert_eq!(world.admin.get_data(&world.path).await.expect("read").0, b"x");
}

/// Somebody may have written data to the path meanwhile.
#[tokio::test]
async fn connection_that_was_lost_and_is_back_is_seen() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    world.proxy.cut_now();
    let client = world.session.client().expect("a client");
    soon("another connection", async { while client.check_stat("/").await.is_err() {} }).await;
    soon("a look whose it is", world.proxy.wait_for(|one| one.op == Op::GetEphemerals && one.answer.is_some()))
        .await;
    assert_eq!(cycle(&world, &mutex).await, LISTED);
    assert_eq!(cycle(&world, &mutex).await, COUNTED);
}

/// The waiter behind it has counted and seen the other one.
#[tokio::test]
async fn hold_that_was_deceived_hands_the_lock_over_to_nobody() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    let (deceived, ops) = lock(&world, &mutex).await;
    assert_eq!(ops, COUNTED);
    world.proxy.swallow_events();
    world.admin.delete(&deceived.nodes()[0], None).await.expect("deleted");
    make_again(&world).await;
    assert_eq!(deceived.state(), HoldState::Held, "it is deceived");
    world.proxy.reset();
    let next = tokio::spawn(async move { mutex.lock().await });
    let nodes = world.wait_children(2).await;
    let watches = |one: &Request| one.watch && one.path.ends_with(&nodes[0]) && one.answer.is_some();
    soon("a watch on the holder", world.proxy.wait_for(watches)).await;
    assert_eq!(world.ops()[..2], MISCOUNTED);
    let end = deceived.release().await.expect_err("lost before");
    assert!(matches!(end, Error::Lost(Loss::Deleted)), "{end:?}");
    assert_eq!(world.wait_children(2).await, nodes);
    assert!(!next.is_finished());
    world.proxy.heal();
    world.admin.delete(&format!("{}/{}", world.path, nodes[0]), None).await.expect("deleted");
    drop(soon("a turn", next).await.expect("no panic").expect("held"));
}

/// The count shows two, of which ours came last.
#[tokio::test]
async fn contender_ahead_is_seen_by_the_count() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    let held = world.other_mutex().await.lock().await.expect("held");
    world.proxy.reset();
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| guard.fencing_token()) });
    let watches = |one: &Request| one.watch && one.path != world.path && one.answer.is_some();
    soon("a watch on another node", world.proxy.wait_for(watches)).await;
    assert_eq!(world.ops()[..2], MISCOUNTED);
    assert!(!waiting.is_finished());
    let token = held.fencing_token();
    held.release().await.expect("released");
    assert!(soon("a turn", waiting).await.expect("no panic").expect("held") > token);
}

/// A child that is no contender is counted, too. Then the listing decides.
#[tokio::test]
async fn child_that_is_no_contender_is_counted_once() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    world.admin.create(&format!("{}/notes", world.path), b"", &open).await.expect("created");
    assert_eq!(cycle(&world, &mutex).await, MISCOUNTED);
    for _ in 0..3 {
        assert_eq!(cycle(&world, &mutex).await, LISTED);
    }
}

/// Where its data may not be written, nothing is counted again.
#[tokio::test]
async fn path_that_may_not_be_written_is_tried_once() {
    is_tried_once(&World::with_path().await).await;
}

/// The count shows another, and the listing behind it one that is not ours.
#[tokio::test]
async fn contender_in_place_of_its_own_node_is_seen_by_the_look_at_the_path() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    let other = world.other_mutex().await;
    let before = other.lock().await.expect("held");
    world.proxy.reset();
    world.proxy.on_request(|one| if one.op == Op::GetChildren2 { Verdict::Hold } else { Verdict::Forward });
    let evicted = tokio::spawn(async move { mutex.lock().await });
    let node = format!("{}/{}", world.path, world.wait_children(2).await[1]);
    soon("a listing", world.proxy.wait_for(|one| one.op == Op::GetChildren2)).await;
    world.admin.delete(&node, None).await.expect("deleted");
    before.release().await.expect("released");
    let held = other.lock().await.expect("held");
    world.let_pass();
    let end = soon("an end", evicted).await.expect("no panic");
    assert!(matches!(&end, Err(Error::Evicted { node: of }) if *of == node), "{end:?}");
    assert_eq!(held.state(), HoldState::Held);
}

/// It bounds for how long data that somebody writes to the path may be overwritten.
#[tokio::test]
async fn what_was_seen_of_the_path_half_a_minute_ago_is_looked_at_again() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    // Nothing but time makes it old.
    pass(Duration::from_secs(31)).await;
    assert_eq!(cycle(&world, &mutex).await, LISTED);
    assert_eq!(cycle(&world, &mutex).await, COUNTED);
}

/// Deletes the path, and makes it again with a foreign holder, so that the next number is that which was next before.
async fn make_again(world: &World) {
    world.admin.delete(&world.path, None).await.expect("deleted");
    world.make_path().await;
    let open = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{}/_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-lock-", world.path);
    for number in 0..2 {
        let (_, made) = world.admin.create(&prefix, b"", &open).await.expect("created");
        if number < 1 {
            world.admin.delete(&format!("{prefix}{made}"), None).await.expect("deleted");
        }
    }
}

/// What another one has done before is in no count.
#[tokio::test]
async fn sessions_that_take_turns_take_one_request_each() {
    let world = World::with_path().await;
    let (mutex, other) = (until_undisturbed(&world).await, world.other_mutex().await);
    for _ in 0..6 {
        other.lock().await.expect("held").release().await.expect("released");
        assert_eq!(cycle(&world, &mutex).await, COUNTED);
    }
}

/// A count would be wrong each time, and cost a round trip.
#[tokio::test]
async fn sessions_that_meet_list_each_time() {
    let world = World::with_path().await;
    let (mutex, other) = (world.mutex(), world.other_mutex().await);
    for _ in 0..6 {
        let held = other.lock().await.expect("held");
        world.proxy.reset();
        let waiting = mutex.enqueue().await.expect("queued");
        assert_eq!(world.ops()[..2], LISTED);
        let (turn, ()) = tokio::join!(waiting, async {
            watched(&world, 2).await;
            held.release().await.expect("released");
        });
        turn.expect("held").release().await.expect("released");
    }
    assert_eq!(cycle(&world, &mutex).await, LISTED);
    assert_eq!(cycle(&world, &mutex).await, COUNTED);
}

#[tokio::test]
async fn path_that_is_gone_is_made_again_in_three_round_trips() {
    let world = World::with_path().await;
    let mutex = until_undisturbed(&world).await;
    world.admin.delete(&world.path, None).await.expect("deleted");
    world.proxy.hold_answers(Duration::from_millis(500));
    let (guard, ops) = lock(&world, &mutex).await;
    assert_eq!(world.proxy.round_trips(), 3, "{ops:?}");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn paths_that_are_locked_again_take_no_watches() {
    let world = World::with_path().await;
    for number in 0..80 {
        let mutex = Mutex::new(&world.session, &format!("{}/{number}", world.path)).expect("a mutex");
        for _ in 0..3 {
            mutex.lock().await.expect("held").release().await.expect("released");
        }
    }
    let watches = world.proxy.requests().iter().filter(|request| request.watch).count();
    assert_eq!(watches, 0);
}

#[tokio::test]
async fn paths_that_were_locked_before_leave_room_for_those_that_are_locked_again() {
    let world = World::with_path().await;
    let mutex = |name: &str| Mutex::new(&world.session, &format!("{}/{name}", world.path)).expect("a mutex");
    for path in 0..1100 {
        mutex(&format!("once-{path}")).lock().await.expect("held").release().await.expect("released");
    }
    let again: Vec<_> = (0..64).map(|path| mutex(&format!("again-{path}"))).collect();
    let paths: Vec<_> = again.iter().map(|mutex| mutex.path().to_owned()).collect();
    make_paths(&world.admin, &paths).await;
    let is_counted = |ops: &[Op]| ops.iter().all(|op| matches!(op, Op::Multi | Op::Delete));
    for round in 0..8 {
        world.proxy.reset();
        join_all(again.iter().map(async |mutex| {
            mutex.lock().await.expect("held").release().await.expect("released");
        }))
        .await;
        // The session looks at all its paths every 20 to 30 s, perhaps just now. Then each is listed once more.
        if round >= 3 && is_counted(&world.ops()) {
            return;
        }
    }
    panic!("{:?}", world.ops());
}
