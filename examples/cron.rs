//! A job that runs once in a fleet, though the clock of every machine starts it: one runs it, the others skip it.
//!
//! ```console
//! $ zk-docker/run cargo run --example cron
//! ```
//!
//! The lock alone does not see to that: a machine that wakes when the job has ended finds it free. So the runs are
//! recorded in the same ZooKeeper, in a transaction that fails if the lock is gone.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Mutex, MutexGuard, Options, Session};

use common::{Result, ensure};

const MACHINES: usize = 4;
const MINUTES: [&str; 3] = ["12:00", "12:01", "12:02"];
const JOB: Duration = Duration::from_millis(200);
/// How far the clocks are apart.
const DRIFT: u64 = 40;

#[derive(Clone)]
struct Machine {
    name: String,
    session: Session,
}

#[derive(PartialEq)]
enum Outcome {
    Ran,
    SomebodyRuns,
    SomebodyRan,
}

#[tokio::main]
async fn main() -> ExitCode {
    common::show(run()).await
}

async fn run() -> Result<()> {
    let mut machines = Vec::new();
    for number in 1..=MACHINES {
        let name = format!("machine {number}");
        // There is a path for every run, so each is removed with its lock.
        let options = Options::new().with_identifier(&name).with_path_removal(true);
        let session = common::session(&name).await?.with_options(options);
        machines.push(Machine { name, session });
    }
    let late = machines.pop().ok_or("there is no machine")?;
    late.session.client().mkdir(&record(), &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;

    let mut saved_by_record = 0;
    for minute in MINUTES {
        let mut awake = JoinSet::new();
        for machine in machines.clone() {
            let drift = sleep(Duration::from_millis(fastrand::u64(..DRIFT)));
            awake.spawn(async move {
                drift.await;
                machine.wake(minute).await
            });
        }
        let mut outcomes = awake.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
        outcomes.push(late.wake(minute).await?);
        saved_by_record += usize::from(outcomes.last() == Some(&Outcome::SomebodyRan));
        let runs = outcomes.iter().filter(|outcome| **outcome == Outcome::Ran).count();
        ensure(runs == 1, "every minute has one run")?;
    }
    ensure(saved_by_record > 0, "the late machine never found the lock free, so nothing was shown")?;
    late.lose_the_lock().await?;
    common::close(machines.iter().chain([&late]).map(|machine| &machine.session)).await
}

fn record() -> String {
    format!("{}/last-report", common::path())
}

impl Machine {
    fn lock(&self, minute: &str) -> Result<Mutex> {
        Ok(Mutex::new(&self.session, &format!("{}/report/{minute}", common::path()))?)
    }

    /// Runs the job of this minute, unless somebody does or did.
    async fn wake(&self, minute: &'static str) -> Result<Outcome> {
        let (name, lock) = (&self.name, self.lock(minute)?);
        let Some(guard) = lock.try_lock().await? else {
            let line = lock.contenders().await?;
            let who = line.iter().find(|who| who.is_holder()).map_or("nobody any more".to_owned(), common::name);
            println!("{minute}  {name} skips it, for {who} runs it");
            return Ok(Outcome::SomebodyRuns);
        };
        let (last, _) = self.session.client().get_data(&record()).await?;
        if *last >= *minute.as_bytes() {
            println!("{minute}  {name} finds the lock free, but skips it, for it is on record");
            guard.release().await?;
            return Ok(Outcome::SomebodyRan);
        }
        // If the machine dies before it is on record, the next to wake runs it again.
        guard.run_until_lost(sleep(JOB)).await?;
        self.put_on_record(&guard, minute).await?;
        println!("{minute}  {name} has run it");
        guard.release().await?;
        Ok(Outcome::Ran)
    }

    async fn put_on_record(&self, guard: &MutexGuard, minute: &str) -> Result<()> {
        let mut writer = guard.check_writer();
        writer.add_set_data(&record(), minute.as_bytes(), None)?;
        writer.commit().await?;
        Ok(())
    }

    async fn lose_the_lock(&self) -> Result<()> {
        let (minute, lock) = ("12:03", self.lock("12:03")?);
        let guard = lock.lock().await?;
        for contender in lock.contenders().await? {
            lock.break_lock(&contender).await?;
        }
        let recorded = self.put_on_record(&guard, minute).await;
        println!("{minute}  {} has its lock broken, and cannot put the run on record", self.name);
        ensure(recorded.is_err(), "a run was put on record without the lock")
    }
}
