//! Queues on both sides of the end, across it, and at it.

use std::sync::Arc;

use tokio::sync::Barrier;

use super::crowd::{Crowd, assert_reads, assert_woken_once, is_near_wrap, numbers, queues, worlds};
use crate::counter::server;
use crate::recipes::{ELECTION, MUTEX, READER, REENTRANT_MUTEX, SEMAPHORE, WRITER};
use crate::support::{children, soon};

/// Far from the end, across it, and at it.
const STARTS: [i32; 3] = [0, i32::MAX - 4, i32::MAX];

/// Counted on both sides of the end and across it. A waiter lists once to find its predecessor and once when it is woken, and
/// watches one node; at the end it reads a czxid once for each number that does not determine a position.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_wakes_one_and_a_czxid_is_read_once_where_it_is_needed() {
    const CROWD: usize = 8;
    let recipes = [
        ("mutex", &MUTEX),
        ("reentrant", &REENTRANT_MUTEX),
        ("writer", &WRITER),
        ("election", &ELECTION),
        ("semaphore", &SEMAPHORE),
    ];
    for next in STARTS {
        let queues: Vec<_> = recipes.iter().flat_map(|(name, recipe)| queues(name, recipe)).collect();
        let server = server(&queues, next).await;
        for (name, recipe) in recipes {
            let what = format!("{name} from {next}");
            let mut crowd = Crowd::behind(recipe, &server.hosts(), &format!("/{name}")).await;
            crowd.join(&[recipe], worlds(&server.hosts(), CROWD).await, None);
            let crowd = crowd.go().await;
            let asked = assert_reads(&crowd, &what);
            let numbers = numbers(&crowd);
            println!("{what}: {asked} reads of a czxid for {CROWD} waiters, numbers {numbers:?}");
            assert_woken_once(&crowd, recipe, &what);
            assert_eq!(asked > 0, next > 0, "{what}: {asked}");
            let near_wrap = numbers.iter().filter(|number| is_near_wrap(**number)).count();
            assert_eq!(near_wrap > 0, next > 0, "{what}: {numbers:?}");
            assert_eq!(near_wrap == CROWD, next == i32::MAX, "{what}: {numbers:?}");
        }
    }
}

/// All readers behind a writer hold at once, each woken once by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_wakes_each_reader_once_and_all_are_granted_together() {
    const CROWD: usize = 8;
    for next in STARTS {
        let server = server(&["/rw".to_owned()], next).await;
        let what = format!("readers from {next}");
        let mut crowd = Crowd::behind(&WRITER, &server.hosts(), "/rw").await;
        crowd.join(&[&READER], worlds(&server.hosts(), CROWD).await, Some(&Arc::new(Barrier::new(CROWD))));
        let crowd = crowd.go().await;
        let asked = assert_reads(&crowd, &what);
        println!("{what}: {asked} reads of a czxid for {CROWD} waiters, numbers {:?}", numbers(&crowd));
        assert_woken_once(&crowd, &WRITER, &what);
        // No czxid of a reader is read, and the writer's number determines its position unless it is at the end itself.
        assert_eq!(asked, if next == i32::MAX { CROWD } else { 0 }, "{what}");
    }
}

/// A waiter that lists again because a contender in the middle has left knows the others already.
#[tokio::test]
async fn czxid_is_not_read_again_when_a_contender_ahead_gives_up() {
    let server = server(&["/mutex".to_owned()], i32::MAX).await;
    let hosts = server.hosts();
    let mut crowd = Crowd::behind(&MUTEX, &hosts, "/mutex").await;
    let first = format!("/mutex/{}", children(&crowd.first.admin, "/mutex").await[0]);
    for _ in 0..3 {
        crowd.join(&[&MUTEX], worlds(&hosts, 1).await, None);
        crowd.watching().await;
    }
    let (_gone, task) = crowd.waiters.remove(0);
    task.abort();
    let proxy = &crowd.waiters[0].0.proxy;
    let watches = proxy.wait_for(|request| request.watch && request.path == first && request.answer.is_some());
    soon("another look", watches).await;
    let crowd = crowd.go().await;
    // They read those of all ahead of them at first, and the first of them also that of the one that came later.
    assert_eq!(assert_reads(&crowd, "mutex"), 3 + 3, "{crowd:?}");
    let woken: Vec<_> = crowd.iter().map(|one| (one.watches, one.woken)).collect();
    assert_eq!(woken, [(2, 2), (1, 1)]);
    assert!(crowd[0].has_listed(3) && crowd[1].has_listed(2), "{crowd:?}");
}
