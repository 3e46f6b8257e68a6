//! Task switches: which tasks a lock and its release wake.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Instant;

use crate::support::{UNHURRIED, World, hosts, soon};
use crate::warnings::Warnings;
use testbed::next_look;

const CYCLES: usize = 200;

/// Runs a future, and counts its polls.
async fn count_polls<F: Future>(polls: &mut usize, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        *polls += 1;
        future.as_mut().poll(cx)
    })
    .await
}

/// The client's own task is woken by every request; it is not counted.
#[tokio::test]
async fn lock_and_release_wake_no_task_but_the_callers() {
    let world = World::at(&hosts(), UNHURRIED).await;
    let mutex = world.mutex();
    mutex.lock().await.expect("held").release().await.expect("released");
    let logged = Warnings::and_traces();
    let _guard = logged.listen();
    let (began, mut polls) = (Instant::now(), 0);
    for _ in 0..CYCLES {
        let cycle = async { mutex.lock().await.expect("held").release().await.expect("released") };
        count_polls(&mut polls, cycle).await;
    }
    let [keeper, worker] = ["keeper is woken", "worker is woken"].map(|text| logged.count(text));
    // The keeper is also woken each second, however many locks there are.
    let beats = usize::try_from(began.elapsed().as_secs()).expect("a test is not that long") + 2;
    let beat = async {
        while logged.count("keeper is woken") == keeper {
            next_look().await;
        }
    };
    soon("a beat of the keeper, which shows that its wake-ups are counted", beat).await;
    println!("{CYCLES} locks and releases: caller polled {polls} times, keeper {keeper}, worker {worker}");
    assert!(keeper <= beats, "keeper {keeper}, of which {beats} may be beats");
    assert_eq!(worker, 0, "the worker has nothing to do");
    // On a slow machine the answers to a burst arrive one by one.
    assert!(polls <= 6 * CYCLES, "{polls}");
}
