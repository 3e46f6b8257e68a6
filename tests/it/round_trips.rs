//! What a lock costs: requests and round trips, counted in frames by the proxy.

use std::time::Duration;

use testbed::frames::{Kind, Op};
use testbed::proxy::Direction;

use crate::support::{TIMEOUT, World};

/// Answers are held back, so that whatever waits for one shows as a round trip of its own. It is much longer than a kernel
/// puts off an acknowledgement (40 ms): the client leaves Nagle's algorithm on, which may hold a second segment up.
const HOLD: Duration = Duration::from_millis(200);

fn ops(world: &World) -> Vec<Op> {
    world.proxy.requests().iter().map(|request| request.op).collect()
}

#[tokio::test]
async fn acquire_takes_one_and_release_one() {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    let guard = world.mutex().lock().await.expect("held");
    assert_eq!((world.proxy.round_trips(), ops(&world)), (1, vec![Op::Create2, Op::GetChildren]));
    world.proxy.reset();
    guard.release().await.expect("released");
    assert_eq!((world.proxy.round_trips(), ops(&world)), (1, vec![Op::Delete]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn burst_waits_for_no_answer_whatever_threads_there_are() {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.hold_answers(HOLD);
    for round in 0..10 {
        world.proxy.reset();
        let mutex = world.mutex();
        let guard = match round % 2 {
            0 => mutex.lock().await,
            _ => tokio::spawn(async move { mutex.lock().await }).await.expect("no panic"),
        };
        assert_eq!(world.proxy.round_trips(), 1, "round {round}");
        guard.expect("held").release().await.expect("released");
    }
}

#[tokio::test]
async fn try_lock_of_a_held_lock_takes_one_without_a_write() {
    let world = World::new().await;
    let _guard = world.other_mutex().await.lock().await.expect("held");
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    assert!(world.mutex().try_lock().await.expect("asked").is_none());
    assert_eq!((world.proxy.round_trips(), ops(&world)), (1, vec![Op::GetChildren]));
}

#[tokio::test]
async fn try_lock_of_a_free_lock_takes_two() {
    let world = World::new().await;
    world.make_path().await;
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    let _guard = world.mutex().try_lock().await.expect("asked").expect("free");
    assert_eq!(world.proxy.round_trips(), 2);
    assert_eq!(ops(&world), [Op::GetChildren, Op::Create2, Op::GetChildren]);
}

#[tokio::test]
async fn missing_parents_take_one_more() {
    let world = World::new().await;
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    let _guard = world.mutex().lock().await.expect("held");
    assert_eq!(world.proxy.round_trips(), 2, "{:?}", ops(&world));
}

#[tokio::test]
async fn handover_wakes_one_waiter_with_one_watch() {
    let world = World::new().await;
    let guard = world.other_mutex().await.lock().await.expect("held");
    let waiter = world.mutex();
    let first = tokio::spawn(async move { waiter.lock().await });
    world.wait_children(2).await;
    world.proxy.wait_for(|request| request.op == Op::GetData && request.answer.is_some()).await;
    // More waiters, in one session through another proxy: none of them may hear of the release.
    let crowd = World::new().await;
    let mut others = Vec::new();
    for count in 3..13 {
        let mutex = zookeeper_recipes::Mutex::new(&crowd.session, &world.path).expect("a mutex");
        others.push(tokio::spawn(async move { mutex.lock().await.map(|guard| guard.fencing_token()) }));
        world.wait_children(count).await;
    }
    let watching = |request: &testbed::proxy::Request| request.watch && request.answer.is_some();
    crowd.proxy.wait_for_requests(30).await;
    let watches = crowd.proxy.requests().iter().filter(|request| watching(request)).count();
    assert!(watches <= 10, "one watch a waiter, not {watches}");
    world.proxy.reset();
    crowd.proxy.reset();
    world.proxy.hold_answers(HOLD);
    guard.release().await.expect("released");
    let guard = first.await.expect("no panic").expect("held");
    // Its create was answered a moment ago, which is proof enough that its session lives.
    assert_eq!((world.proxy.round_trips(), ops(&world)), (1, vec![Op::GetChildren]));
    assert!(crowd.proxy.requests().is_empty(), "nobody else was woken");
    guard.release().await.expect("released");
    for other in others {
        other.await.expect("no panic").expect("held");
    }
    world.wait_empty().await;
}

#[tokio::test]
async fn handover_after_a_long_wait_proves_the_session_in_the_same_round_trip() {
    let world = World::new().await;
    let guard = world.other_mutex().await.lock().await.expect("held");
    let waiter = world.mutex();
    let waiting = tokio::spawn(async move { waiter.lock().await });
    world.proxy.wait_for(|request| request.op == Op::GetData && request.answer.is_some()).await;
    let early = tokio::time::timeout(TIMEOUT, guard.lost()).await;
    assert!(early.is_err(), "a healthy hold is not lost");
    world.proxy.hold_answers(HOLD);
    world.proxy.reset();
    guard.release().await.expect("released");
    let guard = waiting.await.expect("no panic").expect("held");
    assert_eq!((world.proxy.round_trips(), ops(&world)), (1, vec![Op::Multi, Op::GetChildren]));
    assert!(guard.valid_for() > TIMEOUT / 3, "trusted for {:?}", guard.valid_for());
    guard.release().await.expect("released");
}

#[tokio::test]
async fn trust_costs_three_writes_per_session_timeout() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    world.proxy.reset();
    let renewals = async {
        for count in 1.. {
            world.proxy.wait_for_requests(count).await;
        }
    };
    // Three session timeouts; the hold is kept up all the while.
    let lost = tokio::time::timeout(3 * TIMEOUT, async { tokio::join!(guard.lost(), renewals) }).await;
    assert!(lost.is_err(), "a healthy hold is not lost");
    let writes = world.proxy.requests().iter().filter(|request| request.is_write()).count();
    assert!((6..=10).contains(&writes), "three writes a timeout, not {writes} in three");
    assert_eq!(guard.state(), zookeeper_recipes::HoldState::Held);
    guard.release().await.expect("released");
}

/// What trust in the first write of a session counts on.
#[tokio::test]
async fn client_of_an_idle_session_pings_every_fifth_of_its_timeout() {
    let world = World::new().await;
    let _ = tokio::time::timeout(3 * TIMEOUT, std::future::pending::<()>()).await;
    let frames = world.proxy.uncounted();
    let pings = frames.iter().filter(|frame| frame.kind == Kind::Ping && frame.direction == Direction::ToServer);
    let sent: Vec<_> = pings.map(|ping| ping.arrived).collect();
    let mut gaps: Vec<_> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort();
    let median = gaps[gaps.len() / 2].as_secs_f64() / TIMEOUT.as_secs_f64();
    println!("pings: every {median:.3} timeouts");
    assert!((0.14..0.215).contains(&median), "a ping every {median:.3} timeouts");
}
