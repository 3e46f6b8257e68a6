//! All faults together: sessions reconnect, fall silent and expire while they contend for one lock.
//!
//! `STORM_SECONDS` is its duration, `STORM_SEED` repeats its random choices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use testbed::proxy::Closing;
use tracing::instrument::WithSubscriber;
use zookeeper_recipes::{Error, FencingToken, HoldState, Mutex, MutexGuard};

use crate::support::{World, pass, soon};
use crate::ways::Ways;

const SESSIONS: usize = 5;
/// Two of each session.
const WORKERS: usize = 2 * SESSIONS;
const SESSION: Duration = Duration::from_secs(1);

/// All workers that were granted the lock and have not released it.
#[derive(Default)]
struct Floor {
    holds: Vec<(usize, Arc<MutexGuard>)>,
    last: Option<FencingToken>,
    grants: usize,
    losses: usize,
    violations: Vec<String>,
}

impl Floor {
    /// At the moment of a grant, every other hold must report that it is lost. It does so by its clock, so delays of a
    /// busy machine do not matter.
    fn enter(&mut self, worker: usize, guard: &Arc<MutexGuard>) {
        for (other, hold) in &self.holds {
            if !matches!(hold.state(), HoldState::Lost(_)) {
                self.violations
                    .push(format!("{worker} was granted the lock while {other} reports {:?}", hold.state()));
            }
        }
        if self.last >= Some(guard.fencing_token()) {
            self.violations.push(format!("{worker} has {} after {:?}", guard.fencing_token(), self.last));
        }
        self.last = Some(guard.fencing_token());
        self.holds.push((worker, guard.clone()));
        self.grants += 1;
    }

    fn leave(&mut self, worker: usize) {
        self.holds.retain(|(other, _)| *other != worker);
    }
}

async fn wait_a_while(millis: u64) {
    pass(Duration::from_millis(millis)).await;
}

/// Acquires the lock again and again, in all ways, and cancels some of the attempts.
async fn contend(
    worker: usize,
    mutex: Mutex,
    floor: Arc<StdMutex<Floor>>,
    mut random: fastrand::Rng,
    stop: Arc<AtomicBool>,
) {
    let enter_and_leave = || floor.lock().expect("unpoisoned");
    while !stop.load(Ordering::Relaxed) {
        let attempt = match random.u8(0..4) {
            0 => mutex.try_lock().await,
            1 => mutex.try_lock_for(Duration::from_millis(random.u64(0..300))).await,
            2 => match tokio::time::timeout(Duration::from_millis(random.u64(0..50)), mutex.lock()).await {
                Ok(guard) => guard.map(Some),
                Err(_) => Ok(None),
            },
            _ => mutex.lock().await.map(Some),
        };
        let guard = match attempt {
            Ok(Some(guard)) => Arc::new(guard),
            Ok(None) | Err(Error::Unavailable { .. }) => continue,
            Err(error) => panic!("no reason to fail: {error:?}"),
        };
        enter_and_leave().enter(worker, &guard);
        // Some hold it long enough to lose it by a fault.
        let work = if random.u8(0..8) == 0 { 3_000 } else { 20 };
        if guard.run_until_lost(wait_a_while(random.u64(0..work))).await.is_err() {
            enter_and_leave().losses += 1;
        }
        enter_and_leave().leave(worker);
        let guard = Arc::into_inner(guard).expect("no other reference");
        if random.bool() {
            match guard.release().await {
                Ok(()) | Err(Error::Lost(_)) => {}
                Err(error) => panic!("a release fails only with a loss: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn random_faults_never_admit_two_holders_or_leave_a_node() {
    let from_env = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let seed = from_env("STORM_SEED").unwrap_or(1);
    println!("STORM_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (floor, stop) = (Arc::<StdMutex<Floor>>::default(), Arc::<AtomicBool>::default());
    let mut worlds = Vec::new();
    for _ in 0..SESSIONS {
        worlds.push(World::at(&crate::support::hosts(), SESSION).await);
    }
    let path = worlds[0].path.clone();
    let ways = Ways::new();
    let logged = ways.dispatch();
    let workers: Vec<_> = (0..WORKERS)
        .zip(worlds.iter().cycle())
        .map(|(worker, world)| {
            let mutex = Mutex::new(&world.session, &path).expect("a mutex");
            let contending = contend(worker, mutex, floor.clone(), random.fork(), stop.clone());
            tokio::spawn(contending.with_subscriber(logged.clone()))
        })
        .collect();
    let mut faults = 0;
    let storm = async {
        loop {
            wait_a_while(random.u64(0..400)).await;
            let proxy = &worlds[random.usize(..SESSIONS)].proxy;
            proxy.close_by(if random.bool() { Closing::Fin } else { Closing::Reset });
            match random.u8(0..8) {
                // Longer than a session, as often as not.
                0 | 1 => proxy.black_hole(),
                2 => proxy.refuse(),
                3 => worlds.iter().for_each(|world| world.proxy.heal()),
                _ => proxy.cut_now(),
            }
            faults += 1;
        }
    };
    let seconds = from_env("STORM_SECONDS").unwrap_or(12);
    let _ = tokio::time::timeout(Duration::from_secs(seconds), storm).await;
    worlds.iter().for_each(|world| world.proxy.heal());
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        soon("a worker", worker).await.expect("no panic");
    }
    {
        let floor = floor.lock().expect("unpoisoned");
        println!("storm: {} grants and {} losses under {faults} faults", floor.grants, floor.losses);
        println!("granted by: {}", ways.summary());
        assert!(floor.violations.is_empty(), "{:#?}", floor.violations);
        assert!(floor.grants > 5, "{} grants", floor.grants);
    }
    crate::support::wait_children(&worlds[0].admin, &path, 0).await;
    for world in worlds {
        world.session.close().await.expect("closed");
    }
}
