//! A client process: runs one workload in its own session until the parent stops it.

mod acquire;
mod election;
mod locks;
mod logs;
mod members;
mod multi;
mod permits;
mod rw;
mod shards;
mod slots;
mod visit;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::{Signal, set_parent_process_death_signal};
use testbed::history::{History, Journal, Process, now};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_recipes::{Servers, Session};

use crate::arguments::millis;
use crate::leftover;
use crate::line::{Mark, What};
use crate::workload::Workload;

pub(crate) use self::members::described;

type Task = fn(Worker) -> BoxFuture<'static, Result>;
pub(crate) type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The arguments of a client process, given by its parent.
#[derive(Args, Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) name: String,
    pub(crate) hosts: String,
    pub(crate) workload: Workload,
    /// The session timeout, in milliseconds.
    #[arg(value_parser = millis)]
    pub(crate) session: Duration,
    pub(crate) seed: u64,
    pub(crate) journal: PathBuf,
    pub(crate) register: PathBuf,
}

/// The phase of the run, set by the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Storm,
    /// All faults are healed. Locks are held only briefly, so that waits are short.
    Calm,
    /// Finish the current operations, and start no more.
    Stop,
}

/// The state of one task of a client.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    process: Process,
    name: Arc<str>,
    journal: Journal,
    session: Session,
    /// The session's timeout.
    timeout: Duration,
    register: PathBuf,
    random: Rng,
    phase: watch::Receiver<Phase>,
    /// Distinguishes the tasks of a client.
    number: u64,
}

impl Worker {
    fn note(&self, what: What) {
        self.journal.write(&Mark::new(&self.name, what)).expect("the journal can be written");
    }

    /// Records and prints something that must not happen.
    fn wrong(&self, text: String) {
        eprintln!("chaos: {}: {text}", self.name);
        self.note(What::Wrong { text });
    }

    fn should_stop(&self) -> bool {
        *self.phase.borrow() == Phase::Stop
    }

    /// The name of the client, which a restarted process keeps.
    fn client(&self) -> &str {
        self.name.split('.').next().unwrap_or(&self.name)
    }

    /// Waits for this time, or until the phase is this one or a later one.
    async fn pause(&mut self, time: Duration, until: Phase) {
        // An error is the end of the parent.
        let _ = timeout(time, self.phase.wait_for(|phase| *phase >= until)).await;
    }

    /// A random time, up to this fraction of the session timeout.
    fn up_to(&mut self, part: f64) -> Duration {
        self.timeout.mul_f64(part * self.random.f64())
    }

    /// How long to hold a lock: usually briefly, sometimes long enough for a fault to strike meanwhile.
    fn work(&mut self) -> Duration {
        let storms = *self.phase.borrow() == Phase::Storm;
        let part = if storms && self.random.u8(0..15) == 0 { 0.8 } else { 0.015 };
        self.up_to(part)
    }
}

/// Works until standard input ends, then releases everything.
pub(crate) async fn run(orders: Orders) -> Result {
    // Otherwise it would survive a parent that is killed, and a stopped one would remain.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let journal = Journal::create(&orders.journal)?;
    let name: Arc<str> = orders.name.as_str().into();
    record_stalls(&name, &journal);
    logs::record(&name, &journal)?;
    let phase = follow_the_parent();
    let session = connect(&orders, &phase).await?;
    // A restarted process must not repeat itself, or it would add the same elements.
    let seed = name.bytes().fold(orders.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut random = Rng::with_seed(seed);
    let process = History::to_journal(journal.clone()).process(Arc::clone(&name));
    let mut running = JoinSet::new();
    for (number, task) in (0..).zip(tasks_of(orders.workload)) {
        running.spawn(task(Worker {
            process: process.clone(),
            name: Arc::clone(&name),
            journal: journal.clone(),
            session: session.clone(),
            timeout: orders.session,
            register: orders.register.clone(),
            random: random.fork(),
            phase: phase.clone(),
            number,
        }));
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let note = |what| journal.write(&Mark::new(&name, what));
    match leftover::of_session(&session.client().expect("a client"), orders.session).await {
        Ok(left) => left.into_iter().try_for_each(|node| note(What::Left { node }))?,
        Err(error) => note(What::Wrong { text: format!("cannot list leftover nodes: {error}") })?,
    }
    if let Err(error) = session.close().await {
        note(What::Wrong { text: format!("the session could not be closed: {error}") })?;
    }
    Ok(())
}

/// The concurrent tasks of a workload.
fn tasks_of(workload: Workload) -> Vec<Task> {
    match workload {
        Workload::Lock => vec![
            |worker| locks::mutex(worker).boxed(),
            |worker| locks::mutex(worker).boxed(),
            |worker| locks::fleeting(worker).boxed(),
            |worker| locks::again(worker).boxed(),
            |worker| locks::again(worker).boxed(),
            |worker| locks::reentrant(worker).boxed(),
            |worker| locks::reentrant(worker).boxed(),
        ],
        Workload::LockSet => {
            vec![|worker| locks::checked_set(worker).boxed(), |worker| locks::ignored_set(worker).boxed()]
        }
        Workload::Rw => vec![|worker| rw::read_and_write(worker).boxed(); 3],
        Workload::Permits => vec![|worker| permits::take(worker).boxed(); 3],
        Workload::Multi => vec![|worker| multi::at_once(worker).boxed(); 3],
        Workload::Election => vec![|worker| election::lead(worker).boxed(); 2],
        Workload::Members => {
            vec![|worker| members::belong(worker).boxed(), |worker| members::twins(worker).boxed(), |worker| {
                members::observe(worker).boxed()
            }]
        }
        Workload::Slots => vec![|worker| slots::claim(worker).boxed(); 3],
        Workload::Shards => vec![|worker| shards::serve(worker).boxed()],
    }
}

/// Connects without a time limit. Fails if the parent stops the client before a server answered.
async fn connect(orders: &Orders, phase: &watch::Receiver<Phase>) -> Result<Session> {
    loop {
        let servers = Servers::new(&orders.hosts).with_session_timeout(orders.session);
        match Session::connect(servers).await {
            Ok(session) => return Ok(session),
            Err(zookeeper_recipes::Error::Unavailable { .. }) if *phase.borrow() == Phase::Stop => {
                return Err(format!("{} was never connected", orders.name).into());
            }
            Err(zookeeper_recipes::Error::Unavailable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A line on standard input starts the calm phase, and the end of input stops the client.
fn follow_the_parent() -> watch::Receiver<Phase> {
    let (phase, followed) = watch::channel(Phase::Storm);
    tokio::spawn(async move {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(_)) = lines.next_line().await {
            phase.send_replace(Phase::Calm);
        }
        phase.send_replace(Phase::Stop);
    });
    followed
}

/// Records, from a separate thread, when the machine did not schedule this process. That excuses a late report of a
/// loss.
fn record_stalls(name: &Arc<str>, journal: &Journal) {
    const BEAT: Duration = Duration::from_millis(10);
    const STALL: u64 = 40_000_000;
    let (name, journal) = (Arc::clone(name), journal.clone());
    std::thread::spawn(move || {
        let mut last = now();
        loop {
            std::thread::sleep(BEAT);
            let since = std::mem::replace(&mut last, now());
            if last - since > STALL {
                let mark = Mark { at: last, process: Arc::clone(&name), what: What::Stalled { since } };
                journal.write(&mark).expect("the journal can be written");
            }
        }
    });
}
