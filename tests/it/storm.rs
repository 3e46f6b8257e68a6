//! Everything at once: sessions that flap, fall silent and expire while they contend for one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use testbed::ledger::Ledger;
use testbed::proxy::Closing;
use zookeeper_recipes::{Error, Mutex};

use crate::support::{World, soon};

const WORKERS: usize = 5;

async fn wait_a_while(random: &mut fastrand::Rng, most: u64) {
    let while_ = Duration::from_millis(random.u64(0..most));
    let _ = tokio::time::timeout(while_, std::future::pending::<()>()).await;
}

/// Takes the lock over and over, cancels some of it, and enters every hold for as long as it is one.
async fn contend(
    worker: usize,
    mutex: Mutex,
    ledger: Ledger,
    mut random: fastrand::Rng,
    stop: Arc<AtomicBool>,
) -> usize {
    let mut holds = 0;
    while !stop.load(Ordering::Relaxed) {
        let attempt = match random.u8(0..4) {
            0 => mutex.try_lock().await,
            1 => {
                mutex
                    .try_lock_for(Duration::from_millis(random.u64(0..300)))
                    .await
            }
            2 => match tokio::time::timeout(Duration::from_millis(random.u64(0..50)), mutex.lock())
                .await
            {
                Ok(guard) => guard.map(Some),
                Err(_) => Ok(None),
            },
            _ => mutex.lock().await.map(Some),
        };
        match attempt {
            Ok(Some(guard)) => {
                holds += 1;
                let entry = ledger.enter(format!("worker {worker}"), guard.fencing_token().get());
                // The entry is left with the last step before the loss, or with the work.
                let _ = guard.run_until_lost(wait_a_while(&mut random, 20)).await;
                entry.leave();
                if random.bool() {
                    match guard.release().await {
                        Ok(()) | Err(Error::Lost(_)) => {}
                        Err(error) => panic!("a release fails with a loss alone: {error}"),
                    }
                }
            }
            Ok(None) | Err(Error::Unavailable { .. }) => {}
            Err(error) => panic!("no reason to fail: {error:?}"),
        }
    }
    holds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_at_random_never_let_two_hold_nor_leave_a_node() {
    let seed = std::env::var("STORM_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("STORM_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let ledger = Ledger::new();
    let stop = Arc::new(AtomicBool::new(false));
    let mut worlds = Vec::new();
    for _ in 0..WORKERS {
        worlds.push(World::at(&crate::support::hosts(), Duration::from_secs(1)).await);
    }
    let path = worlds[0].path.clone();
    let workers: Vec<_> = (0..)
        .zip(&worlds)
        .map(|(worker, world)| {
            let mutex = Mutex::new(&world.session, &path).expect("a mutex");
            tokio::spawn(contend(
                worker,
                mutex,
                ledger.clone(),
                random.fork(),
                stop.clone(),
            ))
        })
        .collect();
    let faults = AtomicUsize::new(0);
    let storm = async {
        loop {
            wait_a_while(&mut random, 400).await;
            let world = &worlds[random.usize(..WORKERS)];
            world.proxy.close_by(if random.bool() {
                Closing::Fin
            } else {
                Closing::Reset
            });
            match random.u8(0..6) {
                0 => world.proxy.black_hole(),
                1 => world.proxy.refuse(),
                2 => world.expire().await,
                3 => worlds.iter().for_each(|world| world.proxy.heal()),
                _ => world.proxy.cut_now(),
            }
            faults.fetch_add(1, Ordering::Relaxed);
        }
    };
    let length = std::env::var("STORM_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(12);
    let _ = tokio::time::timeout(Duration::from_secs(length), storm).await;
    worlds.iter().for_each(|world| world.proxy.heal());
    stop.store(true, Ordering::Relaxed);
    let mut holds = 0;
    for worker in workers {
        holds += soon("a worker", worker).await.expect("no panic");
    }
    println!(
        "storm: {holds} holds under {} faults",
        faults.load(Ordering::Relaxed)
    );
    ledger.assert_clean();
    assert!(holds > 20, "{holds} holds");
    crate::support::wait_children(&worlds[0].admin, &path, 0).await;
    for world in worlds {
        world.session.close().await.expect("closed");
    }
}
