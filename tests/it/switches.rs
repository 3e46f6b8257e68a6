//! Task switches: which tasks a lock and its release wake.

use std::future::{Future, poll_fn};
use std::pin::pin;

use crate::support::{UNHURRIED, World, hosts, soon};
use crate::warnings::Warnings;

const CYCLES: usize = 50;

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
    let mut polls = 0;
    for _ in 0..CYCLES {
        let cycle = async { mutex.lock().await.expect("held").release().await.expect("released") };
        count_polls(&mut polls, cycle).await;
    }
    let [keeper, worker] = ["keeper is woken", "worker is woken"].map(|text| logged.count(text));
    let beat = async {
        while logged.count("keeper is woken") == keeper {
            tokio::task::yield_now().await
        }
    };
    soon("a beat of the keeper, which shows that its wake-ups are counted", beat).await;
    println!("{CYCLES} locks and releases: caller polled {polls} times, keeper {keeper}, worker {worker}");
    // The keeper is also woken each second, and on a slow machine the answers to a burst arrive one by one.
    assert!(keeper + worker < CYCLES / 2, "keeper {keeper}, worker {worker}");
    assert!(polls <= 6 * CYCLES, "{polls}");
}
