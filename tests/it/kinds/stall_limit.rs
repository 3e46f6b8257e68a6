//! Holds that end by themselves, because their work stands still for longer than their options allow.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::next_look;
use zookeeper_recipes::{Error, HoldState, Loss, Mutex, Options, Owner, ReentrantMutex, RwLock};

use crate::family::FAMILY;
use crate::support::{World, assert_took, hosts, locking, soon, stall};

/// A limit that a test waits for.
const LIMIT: Duration = Duration::from_millis(800);

/// A limit that does not pass in a few requests, however busy the machine is.
const AMPLE: Duration = Duration::from_secs(5);

fn limited(limit: Duration) -> Options {
    Options::new().with_stall_limit(limit)
}

#[tokio::test]
async fn hold_without_listeners_deletes_its_node() {
    let world = World::new().await;
    let mutex = Mutex::with_options(&world.session, &world.path, limited(LIMIT)).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    world.wait_empty().await;
    assert_eq!(guard.state(), HoldState::Lost(Loss::Stalled));
    let again = world.mutex().lock().await.expect("held again");
    assert_eq!((again.state(), guard.state()), (HoldState::Held, HoldState::Lost(Loss::Stalled)));
    drop((guard, again));
    world.wait_empty().await;
}

#[tokio::test]
async fn validity_counts_down_to_the_end() {
    let world = World::new().await;
    let mutex = Mutex::with_options(&world.session, &world.path, limited(LIMIT)).expect("a mutex");
    let asked = Instant::now();
    let guard = mutex.lock().await.expect("held");
    let (granted, mut last) = (Instant::now(), guard.valid_for());
    assert!(last <= LIMIT && last + asked.elapsed() >= LIMIT, "{last:?}");
    while guard.state() == HoldState::Held {
        let now = guard.valid_for();
        assert!(now <= last, "{now:?} after {last:?}");
        last = now;
        next_look().await;
    }
    assert_took(granted, LIMIT);
    drop(guard);
    world.wait_empty().await;
}

#[tokio::test]
async fn hold_that_is_released_in_time_is_not_lost() {
    for kin in &FAMILY {
        let world = World::new().await;
        let lock = (kin.make)(&world.session, &world.path, limited(AMPLE)).expect(kin.name);
        let guard = lock.hold().await.expect("held");
        let lost = guard.lost();
        guard.release().await.expect(kin.name);
        kin.wait_empty(&world).await;
        if kin.name == "mutex" {
            assert!(tokio::time::timeout(AMPLE + LIMIT, lost).await.is_err(), "it was released, not lost");
        }
    }
}

/// It would be lost each time, so the call does not begin again.
#[tokio::test]
async fn limit_that_is_over_before_the_grant_is_read_is_a_loss() {
    let world = World::with_path().await;
    let mutex =
        Mutex::with_options(&world.session, &world.path, limited(Duration::from_nanos(1))).expect("a mutex");
    let lost = soon("the loss", mutex.lock()).await.map(|guard| guard.state());
    assert!(matches!(lost, Err(Error::Lost(Loss::Stalled)) | Ok(HoldState::Lost(Loss::Stalled))), "{lost:?}");
}

#[tokio::test]
async fn limit_beyond_the_clock_is_no_limit() {
    let timeout = Duration::from_secs(20);
    for kin in &FAMILY {
        let world = World::at(&hosts(), timeout).await;
        for limit in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
            let lock = (kin.make)(&world.session, &world.path, limited(limit)).expect(kin.name);
            let guard = lock.hold().await.expect("held");
            assert_eq!(guard.state(), HoldState::Held, "{}", kin.name);
            let valid = guard.valid_for();
            assert!(valid > timeout / 4 && valid <= timeout, "{}: {valid:?}", kin.name);
            guard.release().await.expect(kin.name);
        }
        kin.wait_empty(&world).await;
    }
}

#[tokio::test]
async fn limit_does_not_include_the_wait() {
    let world = World::new().await;
    let ahead = world.other_mutex().await.lock().await.expect("held");
    let waiting = locking(Mutex::with_options(&world.session, &world.path, limited(LIMIT)).expect("a mutex"));
    world.wait_children(2).await;
    assert!(tokio::time::timeout(LIMIT, ahead.lost()).await.is_err(), "a healthy hold is not lost");
    let before = Instant::now();
    ahead.release().await.expect("released");
    let guard = soon("its turn", waiting).await.expect("no panic").expect("held");
    assert!(guard.valid_for() + before.elapsed() >= LIMIT, "{:?}", guard.valid_for());
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn locking_again_does_not_prolong_the_hold() {
    let world = World::new().await;
    let mutex = ReentrantMutex::with_options(&world.session, &world.path, limited(AMPLE)).expect("a mutex");
    let owner = Owner::new();
    let outer = mutex.lock(&owner).await.expect("held");
    let later = tokio::time::timeout(LIMIT, outer.lost()).await;
    assert!(later.is_err(), "its limit has not passed");
    let inner = mutex.lock(&owner).await.expect("ours");
    assert!(inner.valid_for() <= AMPLE - LIMIT, "{:?}", inner.valid_for());
    // Another handle, with other options, enters the same hold.
    let unlimited = ReentrantMutex::new(&world.session, &world.path).expect("a mutex");
    let third = unlimited.lock(&owner).await.expect("ours");
    assert_eq!(soon("the loss", inner.lost()).await, Loss::Stalled);
    for guard in [outer, inner, third] {
        let error = guard.release().await.expect_err("it is lost for all");
        assert!(matches!(error, Error::Lost(Loss::Stalled)), "{error:?}");
    }
    let again = Instant::now();
    let guard = mutex.lock(&owner).await.expect("held again");
    assert!(guard.valid_for() + again.elapsed() >= AMPLE, "{:?}", guard.valid_for());
    guard.release().await.expect("released");
    world.wait_empty().await;
}

#[tokio::test]
async fn downgraded_writer_keeps_its_limit() {
    let world = World::new().await;
    let lock = RwLock::with_options(&world.session, &world.path, limited(AMPLE)).expect("a lock");
    let writing = lock.write().await.expect("held");
    let lost = writing.lost();
    let later = tokio::time::timeout(LIMIT, writing.lost()).await;
    assert!(later.is_err(), "its limit has not passed");
    let reading = writing.downgrade().await.expect("a reader");
    assert!(reading.valid_for() <= AMPLE - LIMIT, "{:?}", reading.valid_for());
    assert_eq!(soon("the loss", reading.lost()).await, Loss::Stalled);
    assert_eq!(lost.await, Loss::Stalled, "the writer's signal continues with the reader");
    world.wait_empty().await;
    let error = reading.release().await.expect_err("it is lost");
    assert!(matches!(error, Error::Lost(Loss::Stalled)), "{error:?}");
}

#[tokio::test]
async fn progress_begins_the_limit_again_in_every_recipe() {
    let all = FAMILY.iter().map(async |kin| {
        let world = World::new().await;
        let options = limited(LIMIT).with_start_limit(AMPLE);
        let lock = (kin.make)(&world.session, &world.path, options).expect(kin.name);
        let guard = lock.hold().await.expect("held");
        // The start takes longer than a piece of work may, and so do all pieces together.
        assert!(tokio::time::timeout(2 * LIMIT, guard.lost()).await.is_err(), "{}", kin.name);
        let mut began = Instant::now();
        for _ in 0..4 {
            guard.progress();
            began = Instant::now();
            assert!(tokio::time::timeout(LIMIT / 2, guard.lost()).await.is_err(), "{}", kin.name);
        }
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Stalled, "{}", kin.name);
        assert_took(began, LIMIT);
        guard.progress();
        assert_eq!(guard.state(), HoldState::Lost(Loss::Stalled), "{}", kin.name);
    });
    join_all(all).await;
}

#[tokio::test]
async fn start_that_takes_too_long_is_a_stall() {
    let world = World::new().await;
    let options = limited(AMPLE).with_start_limit(LIMIT);
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    let granted = Instant::now();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Stalled);
    assert_took(granted, LIMIT);
}

/// A process that stands still cannot move its work. When it goes on, the work has a little time.
#[tokio::test]
async fn pause_past_the_limit_is_no_stall_of_the_work() {
    for moves in [true, false] {
        let world = World::new().await;
        let timeout = world.session.timeout();
        let mutex = Mutex::with_options(&world.session, &world.path, limited(LIMIT)).expect("a mutex");
        let guard = mutex.lock().await.expect("held");
        stall(LIMIT + timeout / 32);
        assert_eq!(guard.state(), HoldState::Held);
        let mut goes_on = Instant::now();
        let mut rest = timeout / 16;
        if moves {
            guard.progress();
            (goes_on, rest) = (Instant::now(), LIMIT);
        }
        assert_eq!(soon("the loss", guard.lost()).await, Loss::Stalled);
        assert_took(goes_on, rest);
    }
}

/// Its session may have ended, so trust decides.
#[tokio::test]
async fn pause_past_the_limit_and_the_trust_is_a_loss() {
    let world = World::new().await;
    let mutex = Mutex::with_options(&world.session, &world.path, limited(LIMIT)).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    stall(world.session.timeout());
    assert_eq!(guard.state(), HoldState::Lost(Loss::TrustEnded));
}

#[tokio::test]
async fn limit_without_a_connection_is_reported_and_cleaned_up_later() {
    let world = World::new().await;
    let mutex = Mutex::with_options(&world.session, &world.path, limited(LIMIT)).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    world.proxy.refuse();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Stalled);
    assert_eq!(world.children().await.len(), 1);
    world.proxy.heal();
    world.wait_empty().await;
    drop(guard);
}
