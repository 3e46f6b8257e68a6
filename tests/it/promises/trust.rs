//! The holder of a lock knows of its loss before the ensemble grants it again, whichever part of the ensemble fails.
//!
//! Each fault is repeated twice at random moments. For more, and for the margins: `TRUST_ROUNDS=50 zk-docker/run
//! cargo test --test it trust:: -- --nocapture`. `TRUST_SEED` repeats the moments.

mod arena;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::time::timeout;
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Error, HoldState, Mutex, Semaphore};

use self::arena::{Arena, Change, T};
use crate::support::{connect_for, soon};

/// In ticks: 6 s, so that a follower stays one while a lock is granted without its knowledge.
const FOR_FOLLOWERS: u32 = 30;

/// In ticks: 3 s, since nothing is granted before another server leads.
const FOR_LEADERS: u32 = 15;

#[tokio::test(flavor = "multi_thread")]
async fn holder_on_follower_that_is_cut_off_knows_first() {
    let mut arena = Arena::start(FOR_FOLLOWERS).await;
    let mut margins = Margins::new("follower cut off", &arena);
    for _ in 0..rounds() {
        let (leader, follower) = arena.leader_and_follower().await;
        let witness = arena.client(follower).await;
        let mut round = arena.round(follower).await;
        let node = round.holder.nodes()[0].clone();

        arena.ensemble.link(follower, leader).black_hole();
        margins.add(&round.change_hands().await);

        let elsewhere = soon("a look elsewhere", round.next.client().expect("a client").check_stat(&node)).await;
        assert_eq!(elsewhere.expect("answers"), None, "{node} is still there");
        let here = timeout(T, witness.check_stat(&node)).await;
        // A follower that is cut off for long serves nobody any more.
        if round.stalled().await < T / 2 {
            let here = here.expect("an answer").expect("the follower answers reads");
            assert!(here.is_some(), "the follower knows of the deletion, so it was not cut off");
        }
        arena.ensemble.heal();
        arena.end(round).await;
    }
    margins.report_none_below(0.0);
}

/// With `enableEagerACLCheck` a follower refuses forbidden writes by itself, also when it is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_by_a_follower_that_is_cut_off_keep_no_hold_alive() {
    let mut arena = Arena::start_with(FOR_FOLLOWERS, [("zookeeper.enableEagerACLCheck", "true")]).await;
    let mut margins = Margins::new("follower cut off, refusing writes", &arena);
    // It refuses until it receives a write that it has to forward. Everything else waits behind that write.
    // Should one be sent just as the follower is cut off, a round shows nothing.
    let mut by_itself = 0;
    for number in 0..rounds() + 8 {
        if number >= rounds() && by_itself > 0 {
            break;
        }
        let (leader, follower) = arena.leader_and_follower().await;
        let mut round = arena.round(follower).await;
        let forbidden = format!("/it-{}", Uuid::new_v4().simple());
        let read_only = CreateMode::Persistent.with_acls(Acls::anyone_read());
        round.next.client().expect("a client").create(&forbidden, b"", &read_only).await.expect("created");
        let mutex = Mutex::new(&round.holds, &forbidden).expect("a mutex");
        let refused = Arc::new(AtomicUsize::new(0));
        let counter = refused.clone();
        let attempts = tokio::spawn(async move {
            let mut beat = tokio::time::interval(T / 200);
            loop {
                beat.tick().await;
                if let Err(Error::NoAuth { .. }) = mutex.lock().await {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            }
        });

        arena.ensemble.link(follower, leader).black_hole();
        let before = refused.load(Ordering::Relaxed);
        let change = round.change_hands().await;
        let after = refused.load(Ordering::Relaxed);
        attempts.abort();
        by_itself += after - before;
        margins.add(&change);

        arena.ensemble.heal();
        arena.end(round).await;
    }
    assert!(by_itself > 0, "the follower refused nothing while it was cut off");
    margins.report_none_below(0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_on_paused_follower_knows_first() {
    let mut arena = Arena::start(FOR_FOLLOWERS).await;
    let mut margins = Margins::new("follower paused", &arena);
    for _ in 0..rounds() {
        let (_, follower) = arena.leader_and_follower().await;
        let mut round = arena.round(follower).await;

        arena.ensemble.server(follower).pause();
        margins.add(&round.change_hands().await);

        arena.ensemble.server(follower).resume();
        arena.end(round).await;
    }
    margins.report_none_below(0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_on_leader_that_is_deposed_knows_first() {
    let mut arena = Arena::start(FOR_LEADERS).await;
    let mut margins = Margins::new("leader deposed", &arena);
    for _ in 0..rounds() {
        let (leader, _) = arena.leader_and_follower().await;
        let mut round = arena.round(leader).await;

        arena.ensemble.isolate(leader);
        margins.add(&round.change_hands().await);

        assert_ne!(arena.ensemble.leader().await.expect("a leader"), leader);
        arena.ensemble.heal();
        arena.end(round).await;
    }
    margins.report_none_below(0.0);
}

/// All writes are answered while the leader hears nothing of the session, so trust does not end. When the session ends,
/// the follower learns of it together with the next holder. It notifies the hold by its watch or by closing the
/// connection.
#[tokio::test(flavor = "multi_thread")]
async fn holder_whose_follower_delays_pings_knows_at_about_the_same_time() {
    let mut arena = Arena::start(FOR_FOLLOWERS).await;
    let mut margins = Margins::new("pings held back", &arena);
    for _ in 0..rounds() {
        let (leader, follower) = arena.leader_and_follower().await;
        let mut round = arena.round(follower).await;

        arena.ensemble.link(follower, leader).hold_pings();
        margins.add(&round.change_hands().await);

        arena.ensemble.heal();
        arena.end(round).await;
    }
    // Usually it is first by some milliseconds.
    margins.report_none_below(-T.as_secs_f64() / 4.0);
}

/// The servers report the deletion of its nodes before the end of its session.
#[tokio::test(flavor = "multi_thread")]
async fn waiter_with_several_nodes_whose_session_ends_queues_again() {
    let mut arena = Arena::start(FOR_FOLLOWERS).await;
    for _ in 0..rounds() {
        let (leader, follower) = arena.leader_and_follower().await;
        let (holds, waits) = (arena.session(leader).await, arena.brief_session(follower).await);
        let semaphore = |session| Semaphore::new(session, &arena.path, 1).expect("a semaphore");
        let permit = semaphore(&holds).acquire().await.expect("free");
        let (session, place) = (waits.id(), semaphore(&waits).enqueue(1).await.expect("queues"));
        let mut waiter = tokio::spawn(place);

        arena.ensemble.link(follower, leader).hold_pings();
        let mut beat = tokio::time::interval(T / 50);
        while waits.id() == session && !waiter.is_finished() {
            beat.tick().await;
        }
        arena.ensemble.heal();

        permit.release().await.expect("still held");
        let admitted = soon("its turn", &mut waiter).await.expect("does not panic");
        drop(admitted.expect("waits on in the next session"));
        holds.close().await.expect("closes");
        waits.close().await.expect("closes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_in_healthy_ensemble_stays_held() {
    // A third of it is longer than a machine stalls for.
    let timeout = 10 * T;
    let arena = Arena::start(FOR_FOLLOWERS).await;
    let mut holds = Vec::new();
    for server in 0..3 {
        let session = connect_for(&arena.ensemble.server(server).hosts(), timeout).await;
        assert_eq!(session.client().expect("a client").session_timeout(), timeout, "the servers allow it");
        let mutex = Mutex::new(&session, &format!("{}-{server}", arena.path)).expect("a mutex");
        holds.push(mutex.lock().await.expect("free"));
    }
    let started = Instant::now();
    let mut beat = tokio::time::interval(timeout / 50);
    while started.elapsed() < timeout * 3 / 2 {
        beat.tick().await;
        for (server, hold) in holds.iter().enumerate() {
            // A machine that stalls may cost a connection.
            assert!(!hold.state().has_ended(), "on server {server} after {:?}", started.elapsed());
        }
    }
    for hold in holds {
        hold.release().await.expect("it was held all the time");
    }
}

fn rounds() -> usize {
    std::env::var("TRUST_ROUNDS").map_or(2, |rounds| rounds.parse().expect("a number of rounds"))
}

/// How long before the next grant each loss was reported.
struct Margins {
    fault: &'static str,
    seed: u64,
    /// In seconds; less than 0 when the grant was first.
    margins: Vec<f64>,
    /// Holds that were not yet lost when the next was granted.
    late: Vec<HoldState>,
}

impl Margins {
    fn new(fault: &'static str, arena: &Arena) -> Self {
        Self { fault, seed: arena.seed, margins: Vec::new(), late: Vec::new() }
    }

    fn add(&mut self, change: &Change) {
        let early = change.granted.saturating_duration_since(change.reported);
        let late = change.reported.saturating_duration_since(change.granted);
        let late = late.saturating_sub(change.stalled);
        self.margins.push(early.as_secs_f64() - late.as_secs_f64());
        if !matches!(change.holder_at_grant, HoldState::Lost(_)) {
            self.late.push(change.holder_at_grant);
        }
    }

    /// Prints the smallest margin and fails if it is below `least` seconds.
    fn report_none_below(&self, least: f64) {
        let smallest = self.margins.iter().copied().fold(f64::INFINITY, f64::min);
        let report = format!(
            "trust: {}: smallest margin {:.1} ms in {} rounds, seed {}",
            self.fault,
            smallest * 1e3,
            self.margins.len(),
            self.seed
        );
        println!("{report}");
        if !self.late.is_empty() {
            println!("trust: {}: at the grant some reported {:?}", self.fault, self.late);
        }
        assert!(smallest >= least, "{report}; all: {:?}", self.margins);
        assert!(least < 0.0 || self.late.is_empty(), "{report}; at the grant some reported {:?}", self.late);
    }
}
