//! A client process: one workload over one kind of lock, in a session of its own, until it is asked to end.

mod acquire;
mod election;
mod locks;
mod multi;
mod permits;
mod rw;
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
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{Options, Session, Trust};

use crate::arguments::{millis, trust};
use crate::leftover;
use crate::line::{Mark, What};
use crate::workload::Workload;

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The arguments of a client process, given by its parent.
#[derive(Args, Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) name: String,
    pub(crate) hosts: String,
    pub(crate) workload: Workload,
    /// The session timeout, in milliseconds.
    #[arg(value_parser = millis)]
    pub(crate) session: Duration,
    #[arg(value_parser = trust())]
    pub(crate) trust: Trust,
    pub(crate) seed: u64,
    pub(crate) journal: PathBuf,
    pub(crate) register: PathBuf,
}

/// What the parent wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Storm,
    /// All is healed, so that nobody has to wait for long: locks are held for a moment only.
    Calm,
    /// Whatever has begun is brought to its end.
    Stop,
}

/// What one of a client's tasks works with.
#[derive(Clone, Debug)]
struct Worker {
    process: Process,
    name: Arc<str>,
    journal: Journal,
    session: Session,
    /// What all locks are made with.
    options: Options,
    /// The session's timeout.
    timeout: Duration,
    register: PathBuf,
    random: Rng,
    phase: watch::Receiver<Phase>,
    /// Tells the tasks of a client apart.
    number: u64,
}

impl Worker {
    fn note(&self, what: What) {
        self.journal.write(&Mark::new(&self.name, what)).expect("the journal can be written");
    }

    /// Notes what must not happen, and says it.
    fn wrong(&self, text: String) {
        eprintln!("chaos: {}: {text}", self.name);
        self.note(What::Wrong { text });
    }

    fn is_to_stop(&self) -> bool {
        *self.phase.borrow() == Phase::Stop
    }

    /// A random time up to this part of the session's timeout.
    fn up_to(&mut self, part: f64) -> Duration {
        self.timeout.mul_f64(part * self.random.f64())
    }

    /// How long one holds a lock: mostly a moment, and now and then long enough for a fault to come in between.
    fn work(&mut self) -> Duration {
        let storms = *self.phase.borrow() == Phase::Storm;
        let part = if storms && self.random.u8(0..15) == 0 { 0.8 } else { 0.015 };
        self.up_to(part)
    }
}

/// Works until the standard input ends, then gives everything back.
pub(crate) async fn run(orders: Orders) -> Result {
    // Else it would go on if its parent were killed, and stay if it were stopped then.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let journal = Journal::create(&orders.journal)?;
    let name: Arc<str> = orders.name.as_str().into();
    watch_the_machine(&name, &journal);
    let phase = follow_the_parent();
    let session = connect(&orders, &phase).await?;
    let options = Options::new().with_trust(orders.trust);
    let session = session.with_options(options.clone());
    let process = History::to_journal(journal.clone()).process(Arc::clone(&name));
    // One that was started again must not do the same, nor add the same elements.
    let seed = name.bytes().fold(orders.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut random = Rng::with_seed(seed);
    let mut tasks = JoinSet::new();
    for (number, task) in (0..).zip(tasks_of(orders.workload)) {
        let worker = Worker {
            process: process.clone(),
            name: Arc::clone(&name),
            journal: journal.clone(),
            session: session.clone(),
            options: options.clone(),
            timeout: orders.session,
            register: orders.register.clone(),
            random: random.fork(),
            phase: phase.clone(),
            number,
        };
        tasks.spawn(task(worker));
    }
    let note = |what| journal.write(&Mark::new(&name, what));
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let left = leftover::of_session(&session.client(), orders.session).await;
    match left {
        Ok(left) => left.into_iter().try_for_each(|node| note(What::Left { node }))?,
        Err(error) => note(What::Wrong { text: format!("cannot see what is left: {error}") })?,
    }
    let closed = session.close().await;
    let what = match closed {
        Ok(()) => What::Closed,
        Err(error) => What::Wrong { text: format!("the session could not be closed: {error}") },
    };
    Ok(note(what)?)
}

type Task = fn(Worker) -> BoxFuture<'static, Result>;

/// What is done at the same time.
fn tasks_of(workload: Workload) -> Vec<Task> {
    match workload {
        Workload::Lock => vec![
            |worker| locks::mutex(worker).boxed(),
            |worker| locks::mutex(worker).boxed(),
            |worker| locks::fleeting(worker).boxed(),
            |worker| locks::reentrant(worker).boxed(),
            |worker| locks::reentrant(worker).boxed(),
        ],
        Workload::LockSet => {
            vec![|worker| locks::checked_set(worker).boxed(), |worker| locks::ignored_set(worker).boxed()]
        }
        Workload::Rw => vec![|worker| rw::read_and_write(worker).boxed(); 3],
        Workload::Permits => vec![|worker| permits::take(worker).boxed(); 3],
        Workload::Multi => {
            vec![|worker| multi::at_once(worker).boxed(), |worker| multi::at_once(worker).boxed(), |worker| {
                multi::one_by_one(worker).boxed()
            }]
        }
        Workload::Election => vec![|worker| election::lead(worker).boxed(); 2],
    }
}

/// Connects, however long it takes. Who is asked to end before has seen servers that serve nobody.
async fn connect(orders: &Orders, phase: &watch::Receiver<Phase>) -> Result<Session> {
    loop {
        let connector = Client::connector().with_session_timeout(orders.session);
        match Session::connect_with(connector, &orders.hosts).await {
            Ok(session) => return Ok(session),
            Err(zookeeper_recipes::Error::Unavailable { .. }) if *phase.borrow() == Phase::Stop => {
                return Err(format!("{} was never connected", orders.name).into());
            }
            Err(zookeeper_recipes::Error::Unavailable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A line of input calms the client, and the end of the input stops it.
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

/// Notes when the machine gives this process no time, in a thread of its own: a loss that is told late for that is
/// nobody's fault.
fn watch_the_machine(name: &Arc<str>, journal: &Journal) {
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
