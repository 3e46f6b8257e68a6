//! Creates that meet in the server, and so go on counting beyond the end.

use std::time::Duration;

use testbed::proxy::Verdict;
use testbed::{Ensemble, Server};
use tokio::time::{MissedTickBehavior, interval};

use super::crowd::{Crowd, assert_reads, assert_woken_once, numbers, worlds};
use crate::recipes::{ELECTION, MUTEX, READER, Recipe, SEMAPHORE, SEVERAL_PERMITS, WRITER};
use crate::support::{World, is_keep_alive, soon};

/// Creates that meet in the server go on counting beyond the end; then the counter falls back to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_with_numbers_before_at_and_beyond_the_end_goes_on() {
    const MAX: i32 = i32::MAX;
    const MIN: i32 = i32::MIN;
    let rw: &[&Recipe] = &[&READER, &WRITER, &READER];
    let recipes: [(_, _, &[&Recipe]); 5] = [
        ("mutex", &MUTEX, &[&MUTEX]),
        ("election", &ELECTION, &[&ELECTION]),
        ("rw", &WRITER, rw),
        ("semaphore", &SEMAPHORE, &[&SEMAPHORE]),
        ("permits", &SEVERAL_PERMITS, &[&SEVERAL_PERMITS]),
    ];
    // The creates wait for each other while the followers are paused, which are to take part again afterwards.
    let mut builder = Ensemble::builder().tick(Duration::from_millis(500)).sync_limit(100);
    for (name, recipe, _) in recipes {
        builder =
            recipe.dirs.iter().fold(builder, |builder, dir| builder.counter(format!("/{name}{dir}"), MAX - 3));
    }
    let ensemble = builder.start().await.expect("servers");
    ensemble.settled().await.expect("all take part");
    let leader = ensemble.server(ensemble.leader().await.expect("a leader"));
    let followers = ensemble.followers().await.expect("followers");
    let followers: Vec<_> = followers.into_iter().map(|follower| ensemble.server(follower)).collect();
    for (name, recipe, kinds) in recipes {
        let mut crowd = Crowd::behind(recipe, &leader.hosts(), &format!("/{name}")).await;
        for size in [6, 1, 4] {
            let worlds = worlds(&leader.hosts(), size).await;
            hold_keep_alives(&crowd.first).await;
            followers.iter().for_each(|follower| follower.pause());
            crowd.join(kinds, worlds, None);
            // Of each a create, and a listing that waits for it.
            soon("creates under way", under_way(leader, 2 * size)).await;
            followers.iter().for_each(|follower| follower.resume());
            crowd.first.proxy.on_request(|_| Verdict::Forward);
            crowd.first.proxy.heal();
            crowd.watching().await;
        }
        let crowd = crowd.go().await;
        let asked = assert_reads(&crowd, name);
        println!("{name}: {asked} reads of a czxid for {} waiters, numbers {:?}", crowd.len(), numbers(&crowd));
        let one_by_one = [MAX - 2, MAX - 1, MAX, MIN, MIN + 1, MIN + 2, MAX, MAX, MIN, MIN + 1, MIN + 2];
        assert_eq!(numbers(&crowd), one_by_one, "{name}");
        assert_woken_once(&crowd, recipe, name);
        assert!(asked > 0, "{name}");
    }
}

/// From here on until the proxy is healed, the holder's session has no unanswered request at the server.
async fn hold_keep_alives(holder: &World) {
    holder.proxy.on_request(|request| if is_keep_alive(request) { Verdict::Hold } else { Verdict::Forward });
    // Requests that were under way are answered before this one.
    holder.session.client().expect("a client").check_stat(&holder.path).await.expect("asked");
}

/// Waits until a server has `count` requests that stay unanswered: found twice in a row, as a read of another session may be
/// among them for a moment.
async fn under_way(server: &Server, count: usize) {
    let mut beat = interval(Duration::from_millis(10));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut in_a_row = 0;
    while in_a_row < 2 {
        beat.tick().await;
        let counts = server.four_letter_word("mntr").await.expect("it answers");
        let found = counts.lines().find_map(|line| line.strip_prefix("zk_outstanding_requests"));
        let found = found.expect("a count of requests").trim().parse::<usize>().expect("a number");
        in_a_row = if found >= count { in_a_row + 1 } else { 0 };
    }
}
