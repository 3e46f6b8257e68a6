//! Task switches: which tasks a lock and its release wake.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Instant;

use crate::support::{World, exact_or, soon};
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
async fn lock_and_release_wake_the_task_once_for_each_answer() {
    let world = World::new().await;
    let mutex = world.mutex();
    mutex.lock().await.expect("held").release().await.expect("released");
    let logged = Warnings::and_traces();
    let _guard = logged.listen();
    let (began, mut polls) = (Instant::now(), 0);
    for _ in 0..CYCLES {
        let cycle = async { mutex.lock().await.expect("held").release().await.expect("released") };
        count_polls(&mut polls, cycle).await;
    }
    let woken = logged.count("session's task is woken");
    // The task is also woken each second, however many locks there are.
    let beats = usize::try_from(began.elapsed().as_secs()).expect("a test is not that long") + 2;
    let beat = async {
        while logged.count("session's task is woken") == woken {
            next_look().await;
        }
    };
    soon("a beat of the task, which shows that its wake-ups are counted", beat).await;
    println!("{CYCLES} locks and releases: caller polled {polls} times, the task was woken {woken} times");
    // On a slow machine the answers to a burst arrive one by one.
    let answers = exact_or(2, 4) * CYCLES;
    assert!(woken <= answers + beats, "{woken}, of which {beats} may be beats");
    assert!(polls <= 3 * CYCLES, "{polls}");
}
