//! Jobs: each slot runs once in a fleet, although machines die and their clocks differ.
//!
//! The machines of one test are processes of their own: this binary again, with `JOB_CHILD` set.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use testbed::proxy::{Op, Request, Verdict};
use tokio::time::interval;
use zookeeper_recipes::job::{JobOutcome, JobRecord, JobSlot};
use zookeeper_recipes::{Error, HoldMonitor, Job, Loss, Options, Session, SessionState};

#[cfg(virtual_time)]
use crate::support::pass;
use crate::support::{
    BRIEF, PATIENCE, ROUND_TRIP, World, at_every_frame, at_most, remove_path, soon, wait_children,
};
#[cfg(virtual_time)]
use crate::warnings::Warnings;

fn job(session: &Session, path: &str, name: &str) -> Job {
    Job::with_options(session, path, Options::new().with_identifier(name)).expect("a job")
}

async fn run(job: &Job, slot: impl Into<JobSlot>) -> JobOutcome<i32> {
    let work = |_: HoldMonitor| ready(Ok::<_, Error>(7));
    soon("a run", job.run(slot, work)).await.expect("an outcome")
}

/// Work that has begun, and goes on.
async fn work_for_ever(
    job: Job,
    slot: &'static str,
    begun: tokio::sync::oneshot::Sender<()>,
) -> Result<JobOutcome<()>, Error> {
    let work = |_| async {
        begun.send(()).expect("somebody waits");
        pending::<Result<(), Error>>().await
    };
    job.run(slot, work).await
}

fn ran_already(outcome: &JobOutcome<i32>) -> Option<(&str, SystemTime)> {
    match outcome {
        JobOutcome::RanAlready { by, at, .. } => Some((by, *at)),
        _ => None,
    }
}

async fn record(world: &World) -> String {
    let (data, _) = world.admin.get_data(&format!("{}/record", world.path)).await.expect("a record");
    String::from_utf8(data).expect("text")
}

#[tokio::test]
async fn slot_is_run_once_and_an_earlier_one_not_any_more() {
    let world = World::new().await;
    let (one, other) = (job(&world.session, &world.path, "one"), job(&world.other().await, &world.path, "other"));
    assert_eq!(one.last().await, Ok(None), "nothing was run");
    assert_eq!(run(&one, "2026-11-22").await, JobOutcome::Ran(7));
    let before = run(&other, "2026-11-22").await;
    let (by, at) = ran_already(&before).expect("it was run");
    assert_eq!(by, "one");
    assert!(
        at.elapsed().is_ok_and(|past| past < at_most(4 * ROUND_TRIP)),
        "the server has the clock of this machine"
    );
    let superseded = JobOutcome::Superseded { last: "2026-11-22".into(), by: by.to_owned(), at };
    assert_eq!(run(&other, "2026-11-21").await, superseded);
    let last = one.last().await.expect("read").expect("a record");
    assert_eq!((last.slot.as_str(), &*last.by, last.at), ("2026-11-22", by, at));
    assert_eq!(run(&other, "2026-11-23").await, JobOutcome::Ran(7));
    assert_eq!(ran_already(&run(&one, "2026-11-23").await).expect("it was run").0, "other");
    assert_eq!(record(&world).await, "2026-11-23\nother");
    let nodes = world.admin.list_children(&world.path).await.expect("listed");
    assert!(nodes.iter().all(|name| ["record", "lock"].contains(&name.as_str())), "one record: {nodes:?}");
}

/// Each slot is earlier than one that a machine with a clock far ahead has recorded. A late fire alone is no such case.
#[cfg(virtual_time)]
#[tokio::test]
async fn slots_that_an_old_record_supersedes_are_logged() {
    let warnings = Warnings::new();
    let _listening = warnings.listen();
    let world = World::new().await;
    let job = job_of(&world);
    assert_eq!(run(&job, "2036-11-22").await, JobOutcome::Ran(7));
    assert!(matches!(run(&job, "2026-11-22").await, JobOutcome::Superseded { .. }));
    assert_eq!(warnings.with("later slot"), [""; 0], "it may be late");
    pass(Duration::from_secs(4000)).await;
    assert!(matches!(run(&job, "2026-11-23").await, JobOutcome::Superseded { .. }));
    let logged = warnings.with("later slot");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        ["2026-11-23", "last=2036-11-22", "by=\"one\""].iter().all(|part| logged[0].contains(part)),
        "{logged:?}"
    );
}

#[tokio::test]
async fn waiting_slot_that_a_later_one_overtakes_in_the_queue_is_superseded() {
    let world = World::new().await;
    let (begun, begins) = tokio::sync::oneshot::channel();
    let runner = tokio::spawn(work_for_ever(job_of(&world), "1", begun));
    soon("the work", begins).await.expect("begun");
    let dir = format!("{}/lock", world.path);
    let mut waiters = Vec::new();
    for (count, slot) in [(2, "3"), (3, "2")] {
        let waiter = job_of(&world).with_wait_limit(PATIENCE);
        waiters.push(tokio::spawn(async move { run(&waiter, slot).await }));
        wait_children(&world.admin, &dir, count).await;
    }
    runner.abort();
    let [three, two] = <[_; 2]>::try_from(waiters).expect("two");
    assert_eq!(soon("its turn", three).await.expect("no panic"), JobOutcome::Ran(7));
    let two = soon("its turn", two).await.expect("no panic");
    assert!(matches!(&two, JobOutcome::Superseded { last, .. } if last.as_str() == "3"), "{two:?}");
}

#[tokio::test]
async fn fire_without_a_server_waits_for_it_as_long_as_for_the_lock() {
    let world = World::brief().await;
    let job = job_of(&world).with_wait_limit(Duration::MAX);
    world.proxy.refuse();
    let mut states = world.session.states();
    soon("the outage", states.wait_for(|state| state == SessionState::Suspended)).await.expect("no connection");
    let fire = tokio::spawn(async move { run(&job, 1).await });
    let hasty = job_of(&world);
    // Each of these takes one session timeout.
    for _ in 0..2 {
        let ended = soon("the end", hasty.run(1, |_| ready(Ok::<_, Error>(7)))).await;
        assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
    }
    assert!(!fire.is_finished(), "it waits on");
    world.proxy.heal();
    assert_eq!(soon("the fire", fire).await.expect("an outcome"), JobOutcome::Ran(7));
}

#[tokio::test]
async fn job_that_is_being_run_is_shown_with_its_runner() {
    let world = World::new().await;
    let (begun, begins) = tokio::sync::oneshot::channel();
    let runner = tokio::spawn(work_for_ever(
        job(&world.session, &world.path, "runner").with_record(JobRecord::After),
        "1",
        begun,
    ));
    soon("the work", begins).await.expect("begun");
    let other = job(&world.other().await, &world.path, "other");
    let running = JobOutcome::Running { by: "runner".to_owned() };
    for slot in ["1", "2"] {
        assert_eq!(run(&other, slot).await, running);
        assert_eq!(run(&other.clone().with_wait_limit(BRIEF / 4), slot).await, running);
    }
    runner.abort();
    assert!(runner.await.is_err(), "it is cut off");
    assert_eq!(run(&other.with_wait_limit(PATIENCE), "2").await, JobOutcome::Ran(7));
}

#[tokio::test]
async fn slot_of_a_runner_that_dies_is_run_again_if_it_is_recorded_after_the_work_only() {
    for when in [JobRecord::Before, JobRecord::After] {
        let world = World::brief().await;
        let (begun, begins) = tokio::sync::oneshot::channel();
        let runner = job(&world.session, &world.path, "runner").with_record(when);
        let runner = tokio::spawn(work_for_ever(runner, "1", begun));
        soon("the work", begins).await.expect("begun");
        let other = job(&world.other().await, &world.path, "other").with_record(when).with_wait_limit(PATIENCE);
        let takes_over = tokio::spawn(async move { run(&other, "1").await });
        world.kill().await;
        let outcome = soon("an outcome", takes_over).await.expect("no panic");
        match when {
            JobRecord::Before => assert_eq!(ran_already(&outcome).map(|(by, _)| by), Some("runner")),
            JobRecord::After => assert_eq!(outcome, JobOutcome::Ran(7)),
        }
        assert_eq!(soon("the end", runner).await.expect("no panic"), Err(Error::Lost(Loss::TrustEnded)));
    }
}

#[tokio::test]
async fn slot_of_work_that_fails_is_run_again_if_it_is_recorded_after_the_work_only() {
    for when in [JobRecord::Before, JobRecord::After] {
        let world = World::new().await;
        let job = job(&world.session, &world.path, "one").with_record(when);
        let failed = job.run("1", |_| ready(Err::<(), _>(Error::Closed))).await;
        assert_eq!(failed, Err(Error::Closed), "the error of the work");
        match (when, run(&job, "1").await) {
            (JobRecord::Before, JobOutcome::RanAlready { .. }) | (JobRecord::After, JobOutcome::Ran(7)) => {}
            (when, outcome) => panic!("{when:?}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn work_whose_lock_is_lost_is_not_recorded() {
    let world = World::new().await;
    let job = job(&world.session, &world.path, "one").with_record(JobRecord::After);
    let (admin, lock) = (world.admin.clone(), format!("{}/lock", world.path));
    let work = |_| async move {
        for node in admin.list_children(&lock).await.expect("listed") {
            admin.delete(&format!("{lock}/{node}"), None).await.expect("deleted");
        }
        Ok::<_, Error>(())
    };
    assert_eq!(soon("the loss", job.run("1", work)).await, Err(Error::Lost(Loss::Deleted)));
    assert_eq!(run(&job, "1").await, JobOutcome::Ran(7));
}

#[tokio::test]
async fn fire_that_loses_the_lock_before_it_has_seen_the_record_tries_again() {
    let world = World::new().await;
    let job = job_of(&world).with_wait_limit(PATIENCE);
    let reads = AtomicUsize::default();
    world.proxy.on_request(move |request| {
        let is_read = request.op == Op::GetData && request.path.ends_with("/record");
        // The second read is that of the holder.
        if is_read && reads.fetch_add(1, Ordering::AcqRel) == 1 { Verdict::Hold } else { Verdict::Forward }
    });
    let fire = tokio::spawn(async move { run(&job, 1).await });
    let is_read = |request: &&Request| request.op == Op::GetData && request.path.ends_with("/record");
    soon("the read", world.proxy.wait_until(|all| all.iter().filter(is_read).count() == 2)).await;
    let lock = format!("{}/lock", world.path);
    let node = wait_children(&world.admin, &lock, 1).await.remove(0);
    world.expire().await;
    assert_eq!(soon("the fire", fire).await.expect("an outcome"), JobOutcome::Ran(7));
    assert!(!world.admin.list_children(&lock).await.is_ok_and(|nodes| nodes.contains(&node)), "by another node");
}

#[tokio::test]
async fn next_slot_is_too_early_until_the_pause_has_passed() {
    let world = World::new().await;
    let job = job(&world.session, &world.path, "one").with_least_pause(PATIENCE);
    assert_eq!(run(&job, 1).await, JobOutcome::Ran(7));
    let JobOutcome::RanAlready { at, .. } = run(&job, 1).await else { panic!("it was run") };
    assert_eq!(run(&job, 2).await, JobOutcome::TooEarly { until: at + PATIENCE });
    assert_eq!(run(&job, 2).await, JobOutcome::TooEarly { until: at + PATIENCE }, "asking changes nothing");
    let beat = Duration::from_millis(100);
    let (hasty, mut ticks, mut outcome) =
        (job.with_least_pause(beat), interval(beat), run(&job_of(&world), 1).await);
    while !matches!(outcome, JobOutcome::Ran(_)) {
        ticks.tick().await;
        outcome = run(&hasty, 2).await;
    }
    assert!(at.elapsed().is_ok_and(|elapsed| elapsed >= beat));
}

fn job_of(world: &World) -> Job {
    job(&world.session, &world.path, "one")
}

#[tokio::test]
async fn slots_that_cannot_be_stored_or_compared_are_refused() {
    let world = World::new().await;
    let job = job_of(&world);
    assert_eq!(run(&job, "10").await, JobOutcome::Ran(7));
    for slot in ["", "a\nb", "\u{7f}", &"x".repeat(1025), "9", "100"] {
        let error = job.run(slot, |_| ready(Ok::<_, Error>(()))).await.expect_err(slot);
        assert!(matches!(error, Error::InvalidInput { what: "slot", .. }), "{slot:?}: {error:?}");
    }
    assert_eq!(run(&job, "2026-11-22").await, JobOutcome::Ran(7), "text of another length");
    let numbers = job_at(&world, "numbers");
    for number in [9, 10, u64::MAX] {
        assert_eq!(run(&numbers, number).await, JobOutcome::Ran(7));
    }
    for path in ["", "/", "relative", "/zookeeper"] {
        assert!(matches!(Job::new(&world.session, path), Err(Error::InvalidInput { .. })), "{path:?}");
    }
}

fn job_at(world: &World, name: &str) -> Job {
    job(&world.session, &format!("{}-{name}", world.path), "one")
}

#[tokio::test]
async fn record_that_has_no_data_is_that_of_no_slot() {
    let world = World::new().await;
    let job = job_of(&world);
    assert_eq!(run(&job, "1").await, JobOutcome::Ran(7));
    let record = format!("{}/record", world.path);
    world.admin.set_data(&record, b"", None).await.expect("written");
    assert_eq!(run(&job, "1").await, JobOutcome::Ran(7));
    world.admin.set_data(&record, b"0", None).await.expect("written");
    assert_eq!(run(&job, "1").await, JobOutcome::Ran(7), "as an operator asks for another run");
    remove_path(&world.admin, &record).await;
    assert_eq!(run(&job, "1").await, JobOutcome::Ran(7));
}

#[tokio::test]
async fn slot_is_run_once_wherever_the_connection_is_cut() {
    for when in [JobRecord::Before, JobRecord::After] {
        let world = World::new().await;
        let job = job_of(&world).with_record(when).with_least_pause(Duration::from_nanos(1));
        let mut slot = 0_u64;
        at_every_frame(&world.proxy, async |cut| {
            slot += 1;
            let runs = AtomicUsize::default();
            let work = |_| {
                runs.fetch_add(1, Ordering::AcqRel);
                ready(Ok::<_, Error>(7))
            };
            assert_eq!(soon("a run", job.run(slot, work)).await, Ok(JobOutcome::Ran(7)), "{cut:?}");
            assert_eq!(runs.load(Ordering::Acquire), 1);
            assert_eq!(record(&world).await, format!("{slot:020}\none"));
        })
        .await;
    }
}

#[tokio::test]
async fn drained_session_lets_a_job_finish_and_begins_none() {
    let world = World::new().await;
    let job = job_of(&world);
    let (begun, begins) = tokio::sync::oneshot::channel();
    let finishing = job.clone();
    let runs = tokio::spawn(async move {
        let work = |run: HoldMonitor| async move {
            begun.send(()).expect("somebody waits");
            run.revoke_requested().await;
            Ok::<_, Error>(7)
        };
        finishing.run("1", work).await
    });
    soon("the work", begins).await.expect("begun");
    assert_eq!(soon("the drain", world.session.drain(PATIENCE)).await, Ok(0));
    assert_eq!(soon("the end", runs).await.expect("no panic"), Ok(JobOutcome::Ran(7)));
    assert_eq!(job.run("2", |_| ready(Ok::<_, Error>(7))).await, Err(Error::Closed));
}
