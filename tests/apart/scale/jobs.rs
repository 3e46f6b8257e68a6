//! A fleet of three that fires jobs by clocks that differ, through outages of one member and of all: each slot is run, or its
//! outcome at every member reports that it was not run there.
//!
//! `JOB_SECONDS=300` makes it longer. `JOB_SEED=7` repeats the outages and the clocks.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex as Shared};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use testbed::Server;
use testbed::proxy::Proxy;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_recipes::job::{JobOutcome, JobRecord, JobSlot};
use zookeeper_recipes::{Error, Job, Options};

use crate::alone::{turn, unstuck};
use crate::support::connect_for;

const MEMBERS: usize = 3;
const PERIOD: Duration = Duration::from_secs(2);
/// Shorter than some outages and longer than others, so that some of them cost the session.
const TIMEOUT: Duration = Duration::from_secs(6);
/// How long a fire waits: longer than an outage, and the runs that were held up by it.
const WAIT: Duration = Duration::from_secs(30);
/// More than the clocks differ, and less than a period.
const PAUSE: Duration = Duration::from_millis(1_200);
/// How long before the last fire the last outage is over.
const CALM: Duration = Duration::from_secs(10);

/// One fire of a member.
#[derive(Default)]
struct Fire {
    has_begun: bool,
    has_finished: bool,
    outcome: Option<Result<JobOutcome<()>, Error>>,
}

/// The fires of a job, by slot and member.
type Fires = Arc<Shared<BTreeMap<(u64, usize), Fire>>>;

/// A job that each member fires once for each slot.
struct Schedule {
    path: &'static str,
    record: JobRecord,
    wait: Duration,
    pause: Duration,
    fires: Fires,
}

impl Schedule {
    fn all() -> [Self; 3] {
        let of = |path, record, wait, pause| Self { path, record, wait, pause, fires: Fires::default() };
        [
            of("/jobs/before", JobRecord::Before, WAIT, Duration::ZERO),
            of("/jobs/after", JobRecord::After, WAIT, Duration::ZERO),
            of("/jobs/hasty", JobRecord::Before, Duration::ZERO, PAUSE),
        ]
    }

    /// Fails the test where an outcome is not what happened.
    fn judge(&self, last_slot: u64) {
        let fires = std::mem::take(&mut *self.fires.lock().expect("no panic"));
        let fire = |slot: &JobSlot, by: &str| {
            let member = by.strip_prefix("member ").and_then(|number| number.parse().ok()).expect("a member");
            &fires[&(slot.as_str().parse().expect("a number"), member)]
        };
        // Recorded first, the slot may have been lost with its lock before the work began; its runner has an error then.
        let may_be_on_record = |fire: &Fire| match self.record {
            JobRecord::Before => fire.has_begun || matches!(fire.outcome, Some(Err(_))),
            JobRecord::After => fire.has_finished,
        };
        let (mut counts, mut faults) = (BTreeMap::<&str, usize>::new(), Vec::new());
        for ((slot, member), this) in &fires {
            let (word, is_true) = match this.outcome.as_ref().expect("it has ended") {
                Ok(JobOutcome::Ran(())) => ("ran", this.has_finished),
                Ok(JobOutcome::RanAlready { slot: same, by, .. }) => {
                    ("ran already", *same == JobSlot::from(*slot) && may_be_on_record(fire(same, by)))
                }
                Ok(JobOutcome::Superseded { last, by, .. }) => {
                    ("superseded", *last > JobSlot::from(*slot) && may_be_on_record(fire(last, by)))
                }
                Ok(JobOutcome::Running { .. }) => ("running", !this.has_begun),
                Ok(JobOutcome::TooEarly { .. }) => ("too early", !this.has_begun && !self.pause.is_zero()),
                Err(Error::Lost(_)) => ("lost", true),
                Err(Error::Unavailable { .. }) => ("unavailable", !this.has_begun),
                Err(_) => ("another error", false),
            };
            *counts.entry(word).or_default() += 1;
            if !is_true {
                faults.push(format!("slot {slot}, member {member}: {:?}", this.outcome));
            }
        }
        let (mut run, mut cut_off, mut never, mut again) = (0, 0, 0, 0);
        for slot in 0..=last_slot {
            let of_slot = || (0..MEMBERS).map(|member| &fires[&(slot, member)]);
            let begun = of_slot().filter(|fire| fire.has_begun).count();
            let finished = of_slot().filter(|fire| fire.has_finished).count();
            *match (begun, finished) {
                (_, 1..) => &mut run,
                (1.., 0) => &mut cut_off,
                (0, 0) => &mut never,
            } += 1;
            again += begun.saturating_sub(1);
            if self.record == JobRecord::Before && begun > 1 {
                faults.push(format!("slot {slot} was run {begun} times"));
            }
        }
        println!(
            "{}: {run} slots run, {cut_off} cut off at work, {never} not run, {again} runs repeated; outcomes: {counts:?}",
            self.path,
        );
        assert!(faults.is_empty(), "{}: {faults:#?}", self.path);
        if !self.wait.is_zero() {
            let last = (0..MEMBERS).filter(|member| fires[&(last_slot, *member)].has_finished).count();
            assert_eq!(last, 1, "{}: the last slot is run, with all servers there", self.path);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_fleet_with_outages_are_run_or_reported_as_not_run() {
    let _turn = turn().await;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let length = Duration::from_secs(number("JOB_SECONDS").unwrap_or(60).max(30));
    let seed = number("JOB_SEED").unwrap_or(1);
    println!("JOB_SECONDS={} JOB_SEED={seed}", length.as_secs());
    let mut random = Rng::with_seed(seed);
    let server = Server::start().await.expect("a server");
    let proxies =
        join_all((0..MEMBERS).map(async |_| Proxy::start(&server.hosts()).await.expect("a proxy"))).await;
    let schedules = Schedule::all();
    let last_slot = length.as_secs() / PERIOD.as_secs();
    // Some time for the first fire of a clock that is fast.
    let begin = Instant::now() + PERIOD;
    let members = join_all(proxies.iter().enumerate().map(async |(member, proxy)| {
        let session = connect_for(&proxy.hosts(), TIMEOUT).await;
        schedules.each_ref().map(|schedule| {
            let options = Options::new().with_identifier(format!("member {member}"));
            let job = Job::with_options(&session, schedule.path, options).expect("a job");
            (
                job.with_record(schedule.record).with_wait_limit(schedule.wait).with_least_pause(schedule.pause),
                schedule.fires.clone(),
            )
        })
    }))
    .await;
    let fleet = members.into_iter().enumerate().map(|(member, jobs)| {
        let random = random.fork();
        tokio::spawn(fire_all(member, jobs, random, begin, last_slot))
    });
    let fleet: Vec<_> = fleet.collect();
    outages(&proxies, &mut random, begin, length - CALM).await;
    for ended in unstuck("the fires", join_all(fleet)).await {
        ended.expect("no panic");
    }
    schedules.iter().for_each(|schedule| schedule.judge(last_slot));
}

/// Fires every job once in each period of the member's clock, each time in a task of its own, as a scheduler does.
async fn fire_all(member: usize, jobs: [(Job, Fires); 3], mut random: Rng, begin: Instant, last_slot: u64) {
    let mut fires = Vec::new();
    for slot in 0..=last_slot {
        // How much the clock is slow: half a second more or less, so clocks are apart by up to one.
        let slow = Duration::from_millis(random.u64(0..=1_000));
        let shown = begin + PERIOD * u32::try_from(slot).expect("few") + slow;
        let _ = timeout_at(shown, pending::<()>()).await;
        for (job, fires_of_job) in &jobs {
            let (job, of_job) = (job.clone(), fires_of_job.clone());
            let length = Duration::from_millis(random.u64(0..=400));
            fires.push(tokio::spawn(async move {
                let note = |change: fn(&mut Fire)| {
                    change(of_job.lock().expect("no panic").entry((slot, member)).or_default());
                };
                let work = |_| async {
                    note(|fire| fire.has_begun = true);
                    let _ = timeout(length, pending::<()>()).await;
                    note(|fire| fire.has_finished = true);
                    Ok::<_, Error>(())
                };
                let outcome = unstuck("a fire", job.run(slot, work)).await;
                of_job.lock().expect("no panic").entry((slot, member)).or_default().outcome = Some(outcome);
            }));
        }
    }
    for fire in fires {
        fire.await.expect("no panic");
    }
}

/// Lets one member or all be without servers for 3 to 10 s, again and again, until `length` has passed.
async fn outages(proxies: &[Proxy], random: &mut Rng, begin: Instant, length: Duration) {
    let mut at = Duration::ZERO;
    loop {
        at += Duration::from_millis(random.u64(2_000..=6_000));
        let lasts = Duration::from_millis(random.u64(3_000..=10_000));
        if at + lasts > length {
            return;
        }
        let one = random.usize(0..=MEMBERS);
        let (who, cut) = match proxies.get(one) {
            Some(_) => (format!("member {one}"), &proxies[one..=one]),
            None => ("all".to_owned(), proxies),
        };
        let is_silent = random.bool();
        let _ = timeout_at(begin + at, pending::<()>()).await;
        println!(
            "at {at:.1?}: {who} without servers for {lasts:.1?}{}",
            if is_silent { ", silently" } else { "" }
        );
        cut.iter().for_each(if is_silent { Proxy::black_hole } else { Proxy::refuse });
        at += lasts;
        let _ = timeout_at(begin + at, pending::<()>()).await;
        cut.iter().for_each(Proxy::heal);
    }
}
