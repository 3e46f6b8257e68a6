//! The cost of a lock: requests and round trips, counted in frames by the proxy.

use std::collections::BTreeSet;
use std::time::Duration;

use testbed::frames::{Kind, Op};
use testbed::proxy::{Direction, Request};

use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode, MultiWriteResult};
use zookeeper_recipes::{MultiLock, Mutex};

use crate::recipes::*;
use crate::support::{
    BRIEF, TIMEOUT, World, admin_client, connect, exact_or, hosts, is_keep_alive, locking, make_paths, pass, soon,
};

/// Answers are delayed by this, so that each wait for one shows as a round trip of its own. It is much longer than a
/// kernel delays an acknowledgement (40 ms): the client leaves Nagle's algorithm on, which may delay a second segment.
const HOLD: Duration = Duration::from_millis(500);

/// A session that sends nothing by itself while answers are delayed.
async fn calm(recipe: &Recipe) -> World {
    World::of(recipe).await
}

fn writes(world: &World) -> usize {
    world.proxy.requests().iter().filter(|request| request.is_write()).count()
}

/// Waits for the watch of a waiter.
async fn watched(world: &World) {
    soon("a watch", world.proxy.wait_for(|request| request.watch && request.answer.is_some())).await;
}

#[tokio::test]
async fn acquire_and_release_take_one_round_trip_each() {
    let world = calm(&MUTEX).await;
    world.make_path().await;
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    let guard = world.mutex().lock().await.expect("held");
    assert_eq!((world.proxy.round_trips(), world.ops()), (1, vec![Op::Create2, Op::GetChildren2]));
    world.proxy.reset();
    guard.release().await.expect("released");
    assert_eq!((world.proxy.round_trips(), world.ops()), (1, vec![Op::Delete]));
    world.proxy.reset();
    let guard = world.mutex().lock().await.expect("held");
    assert_eq!((world.proxy.round_trips(), world.ops()), (1, vec![Op::Multi]));
    world.proxy.reset();
    guard.release().await.expect("released");
    assert_eq!((world.proxy.round_trips(), world.ops()), (1, vec![Op::Delete]));
}

#[tokio::test]
async fn contended_try_lock_takes_one_round_trip_without_a_write() {
    let world = calm(&MUTEX).await;
    let _guard = world.other_mutex().await.lock().await.expect("held");
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    assert!(world.mutex().try_lock().await.expect("asked").is_none());
    assert_eq!((world.proxy.round_trips(), world.ops()), (1, vec![Op::GetChildren2]));
}

#[tokio::test]
async fn uncontended_try_lock_takes_two_round_trips() {
    let world = calm(&MUTEX).await;
    world.make_path().await;
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    let _guard = world.mutex().try_lock().await.expect("asked").expect("free");
    assert_eq!(world.proxy.round_trips(), 2);
    assert_eq!(world.ops(), [Op::GetChildren2, Op::Multi]);
}

/// The event of the deletion consumes the watch on the hold's own node.
#[tokio::test]
async fn release_of_an_old_hold_takes_one_request() {
    let world = calm(&MUTEX).await;
    let guard = world.mutex().lock().await.expect("held");
    // Like an old hold: a listener for the loss makes it watch its node.
    let lost = guard.lost();
    world.proxy.wait_for(|request| request.op == Op::GetData && request.watch && request.answer.is_some()).await;
    world.proxy.reset();
    guard.release().await.expect("released");
    drop(lost);
    // The client removes a dropped watch before it sends anything else.
    let next = world.mutex().lock().await.expect("held");
    next.release().await.expect("released");
    assert_eq!(world.ops(), [Op::Delete, Op::Multi, Op::Delete]);
}

#[tokio::test]
async fn handover_wakes_one_waiter_with_one_watch() {
    let world = calm(&MUTEX).await;
    let guard = world.other_mutex().await.lock().await.expect("held");
    let first = locking(world.mutex());
    world.wait_children(2).await;
    watched(&world).await;
    // More waiters, in one session through another proxy: none of them may be woken by the release.
    let crowd = calm(&MUTEX).await;
    let mut others = Vec::new();
    for count in 3..13 {
        let mutex = Mutex::new(&crowd.session, &world.path).expect("a mutex");
        others.push(tokio::spawn(async move { mutex.lock().await.map(|guard| guard.fencing_token()) }));
        world.wait_children(count).await;
    }
    let watches = |requests: &[Request]| requests.iter().filter(|one| one.watch && one.answer.is_some()).count();
    soon("watches", crowd.proxy.wait_until(|requests| watches(requests) >= 3)).await;
    // All that they sent before is answered before this.
    crowd.session.client().expect("a client").check_stat(&world.path).await.expect("asked");
    let nodes = world.children().await;
    let watched = crowd.proxy.requests().into_iter().filter(|one| one.watch).map(|one| one.path);
    let watched: BTreeSet<_> = watched.map(|path| path.rsplit('/').next().expect("a name").to_owned()).collect();
    assert_eq!(watches(&crowd.proxy.requests()), 3, "the others wait in memory");
    assert_eq!(
        watched,
        nodes[1..4].iter().cloned().collect(),
        "the one ahead, the first, and the next behind that"
    );
    world.proxy.reset();
    crowd.proxy.reset();
    world.proxy.hold_answers(HOLD);
    guard.release().await.expect("released");
    let guard = first.await.expect("no panic").expect("held");
    // Nobody else was ahead, its own watch stands, and the recent answer to its create proves that its session lives.
    assert_eq!(world.ops(), []);
    // All events for the crowd arrived before this answer.
    crowd.session.client().expect("a client").check_stat(&world.path).await.expect("asked");
    let woken =
        crowd.proxy.uncounted().into_iter().filter(|frame| matches!(frame.kind, Kind::Notification { .. }));
    assert_eq!(woken.count(), 0, "nobody else was woken");
    guard.release().await.expect("released");
    for other in others {
        other.await.expect("no panic").expect("held");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn handover_after_a_long_wait_proves_the_session_in_the_same_round_trip() {
    // The test takes less than a third of it from here on; then trust is renewed.
    let timeout = 2 * BRIEF;
    let world = World::at(&hosts(), timeout).await;
    let other = connect(&world.hosts).await;
    let guard = Mutex::new(&other, &world.path).expect("a mutex").lock().await.expect("held");
    let waiting = locking(world.mutex());
    watched(&world).await;
    let early = tokio::time::timeout(timeout, guard.lost()).await;
    assert!(early.is_err(), "a healthy hold is not lost");
    world.proxy.hold_answers(HOLD);
    // Counts the proof, and the keep-alives after it.
    world.proxy.leave_out(|_| false);
    world.proxy.reset();
    guard.release().await.expect("released");
    let guard = waiting.await.expect("no panic").expect("held");
    let requests = world.proxy.requests();
    let (look, later) = requests.split_at(2);
    let look: Vec<_> = look.iter().map(|request| (request.round, request.op)).collect();
    assert_eq!(look, [(1, Op::Multi), (1, Op::GetChildren2)]);
    assert!(later.iter().all(is_keep_alive), "{later:?}");
    assert!(guard.valid_for() > Duration::ZERO, "the proof by its create is long outdated");
    guard.release().await.expect("released");
}

#[tokio::test]
async fn trust_costs_three_writes_per_session_timeout() {
    let timeout = 2 * BRIEF;
    let world = World::at(&hosts(), timeout).await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.leave_out(|request| !is_keep_alive(request));
    world.proxy.reset();
    // Three session timeouts, during which the hold stays trusted.
    let lost = tokio::time::timeout(3 * timeout, guard.lost()).await;
    assert!(lost.is_err(), "a healthy hold is not lost");
    let writes = writes(&world);
    // After a stall of this process they come sooner, because trust was shortened.
    println!("{writes} writes in three timeouts");
    assert!(exact_or(9..=10, 6..=14).contains(&writes), "three writes a timeout, not {writes} in three");
    assert_eq!(guard.state(), zookeeper_recipes::HoldState::Held);
    guard.release().await.expect("released");
}

/// The usual and the longest time between two pings of an idle session, in parts of its timeout.
async fn pings(asked: Duration, granted: Duration) -> (f64, f64) {
    let world = World::at(&hosts(), asked).await;
    pass(3 * granted).await;
    let session = world.proxy.session().expect("a session").0;
    assert_eq!(world.session.id().0, session, "no session after it");
    let frames = world.proxy.uncounted();
    let pings = frames.iter().filter(|frame| frame.kind == Kind::Ping && frame.direction == Direction::ToServer);
    let sent: Vec<_> = pings.map(|ping| ping.arrived).collect();
    let gaps = sent.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() / granted.as_secs_f64());
    let mut gaps: Vec<_> = gaps.collect();
    gaps.sort_by(f64::total_cmp);
    // On a busy machine many of them are late, and none is early.
    (gaps[gaps.len() / 4], gaps[gaps.len() - 1])
}

/// The trust in the first write of a session depends on it.
#[tokio::test]
async fn client_of_an_idle_session_pings_every_tenth_of_its_timeout() {
    let (usual, longest) = pings(BRIEF, BRIEF).await;
    println!("pings: every {usual:.3} timeouts");
    assert!(exact_or(0.074..0.102, 0.07..0.14).contains(&usual), "a ping every {usual:.3} timeouts");
    assert!(exact_or(longest <= 0.11, true), "{longest:.3}");
}

/// Also if the servers grant another timeout than the one that was asked for.
#[tokio::test]
async fn pings_follow_the_timeout_that_was_granted() {
    let (usual, longest) = pings(3 * TIMEOUT, TIMEOUT).await;
    assert!(exact_or(0.074..0.102, 0.07..0.14).contains(&usual), "a ping every {usual:.3} timeouts");
    assert!(exact_or(longest <= 0.11, true), "{longest:.3}");
}

const LEAST: [usize; 4] = [1, 1, 1, 1];

/// The cost of an uncontended acquire and release of each recipe: round trips and writes.
#[tokio::test]
async fn recipes_take_the_fewest_round_trips_and_writes() {
    let extra_read = extra_read().await;
    let costs: [(&str, &Recipe, [usize; 4]); 8] = [
        ("mutex", &MUTEX, LEAST),
        ("reentrant mutex", &REENTRANT_MUTEX, LEAST),
        ("read", &READER, LEAST),
        ("write", &WRITER, LEAST),
        ("election", &ELECTION, LEAST),
        // A turn, a lease, and the end of the turn.
        ("semaphore", &SEMAPHORE, [2, 3, 1, 1]),
        ("3 permits", &SEVERAL_PERMITS, [2 + extra_read, 3, 1, 1]),
        // A check shows that it is the first in all of its queues at one time.
        ("multi-lock", &MULTI_LOCK, [2 + extra_read, 2, 1, 1]),
    ];
    for (name, recipe, expected) in costs {
        let world = calm(recipe).await;
        let lock = (recipe.lock)(&world.session, &world.path);
        world.make_path().await;
        world.proxy.hold_answers(HOLD);
        // Where it was alone before: the stats of the paths have the transaction on every server.
        for (time, expected) in [("first", expected), ("again", LEAST)] {
            world.proxy.reset();
            let guard = lock.lock().await.expect("held");
            // Nobody waits for the deletion of a turn.
            let requests = world.proxy.requests();
            let trips =
                requests.iter().filter(|request| request.op != Op::Delete).map(|request| request.round).max();
            let trips = trips.expect("requests");
            world.wait_children((recipe.nodes)(0)).await;
            let written = writes(&world);
            world.proxy.reset();
            guard.release().await.expect("released");
            let (release_trips, release_writes) = (world.proxy.round_trips(), writes(&world));
            println!(
                "{name}, {time}: acquire {trips} ({written} writes), release {release_trips} ({release_writes})"
            );
            assert_eq!([trips, written, release_trips, release_writes], expected, "{name}, {time}");
        }
    }
}

/// Servers before 3.7.2, 3.8.2 and 3.9.0 do not return the transaction that created several nodes (ZOOKEEPER-4026), so
/// it is read. Returns how many extra round trips this server costs.
async fn extra_read() -> usize {
    let admin = admin_client(&hosts()).await;
    let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut writer = admin.new_multi_writer();
    writer.add_create(&format!("/it-{}", Uuid::new_v4().simple()), b"", &mode).expect("a request");
    let results = writer.commit().await.expect("created");
    let [MultiWriteResult::Create { stat, .. }] = results.as_slice() else { panic!("not created: {results:?}") };
    usize::from(stat.is_invalid() || stat.czxid <= 0)
}

#[tokio::test]
async fn thousand_locks_take_one_write_and_the_round_trips_of_one() {
    let extra_read = extra_read().await;
    // Sending so many requests takes a while.
    const HOLD: Duration = Duration::from_secs(2);
    for count in [100, 1_000] {
        let world = calm(&MUTEX).await;
        let paths: Vec<_> = (0..count).map(|member| format!("{}/{member}", world.path)).collect();
        let lock = MultiLock::new(&world.session, &paths).expect("a lock");
        // Their parents are missing the first time.
        world.proxy.hold_answers(HOLD);
        world.proxy.reset();
        let guard = lock.lock().await.expect("held");
        let trips = world.proxy.round_trips();
        println!("{count} locks whose paths do not exist: {trips} round trips");
        // The containers created with the nodes return the transaction on every server.
        assert_eq!(trips, 3, "for {count} locks whose paths do not exist");
        guard.release().await.expect("released");

        let world = calm(&MUTEX).await;
        let paths: Vec<_> = (0..count).map(|member| format!("{}/{member}", world.path)).collect();
        let lock = MultiLock::new(&world.session, &paths).expect("a lock");
        make_paths(&world.admin, &paths).await;
        world.proxy.hold_answers(HOLD);
        // The first time, a check shows that all are there at one time.
        for expected in [(2 + extra_read, 2, (1, 1)), (1, 1, (1, 1))] {
            world.proxy.reset();
            let guard = lock.lock().await.expect("held");
            let (trips, written) = (world.proxy.round_trips(), writes(&world));
            assert_eq!(guard.nodes().len(), count);
            world.proxy.reset();
            guard.release().await.expect("released");
            let release = (world.proxy.round_trips(), writes(&world));
            println!("{count} uncontended locks: {trips} round trips and {written} writes; release {release:?}");
            assert_eq!((trips, written, release), expected);
        }
    }
}
