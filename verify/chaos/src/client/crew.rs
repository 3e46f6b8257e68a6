//! The tasks of one session, and what they leave.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use testbed::history::{History, Journal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_recipes::{Options, Session};

use super::{Phase, Result, Worker, election, locks, multi, permits, quiet, rw};
use crate::leftover;
use crate::line::{Mark, What};

pub(crate) type Task = fn(Worker) -> BoxFuture<'static, Result>;

/// What all tasks of a session have in common.
pub(crate) struct Crew {
    pub(crate) name: Arc<str>,
    pub(crate) journal: Journal,
    pub(crate) session: Session,
    pub(crate) options: Options,
    pub(crate) timeout: Duration,
    pub(crate) register: PathBuf,
    pub(crate) random: Rng,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) neglects: u8,
}

impl Crew {
    /// Works until the phase ends it, and notes which nodes are left then.
    pub(crate) async fn work(mut self, tasks: Vec<Task>) -> Result {
        let process = History::to_journal(self.journal.clone()).process(Arc::clone(&self.name));
        let mut running = JoinSet::new();
        for (number, task) in (0..).zip(tasks) {
            running.spawn(task(Worker {
                process: process.clone(),
                name: Arc::clone(&self.name),
                journal: self.journal.clone(),
                session: self.session.clone(),
                options: self.options.clone(),
                timeout: self.timeout,
                register: self.register.clone(),
                random: self.random.fork(),
                phase: self.phase.clone(),
                number,
                neglects: self.neglects,
            }));
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        let note = |what| self.journal.write(&Mark::new(&self.name, what));
        match leftover::of_session(&self.session.client().expect("a client"), self.timeout).await {
            Ok(left) => left.into_iter().try_for_each(|node| note(What::Left { node }))?,
            Err(error) => note(What::Wrong { text: format!("cannot list leftover nodes: {error}") })?,
        }
        Ok(())
    }
}

/// Tasks of all recipes, which leave a session no rest.
pub(crate) fn busy() -> Vec<Task> {
    vec![
        |worker| locks::mutex(worker).boxed(),
        |worker| locks::fleeting(worker).boxed(),
        |worker| locks::again(worker).boxed(),
        |worker| locks::reentrant(worker).boxed(),
        |worker| rw::read_and_write(worker).boxed(),
        |worker| rw::read_and_write(worker).boxed(),
        |worker| permits::take(worker).boxed(),
        |worker| permits::take(worker).boxed(),
        |worker| multi::at_once(worker).boxed(),
        |worker| election::lead(worker).boxed(),
    ]
}

/// One task, after whose pauses nothing proves any more that the session lives.
pub(crate) fn idle() -> Vec<Task> {
    vec![|worker| quiet::seldom(worker).boxed()]
}

/// Tasks that create few nodes, and keep those for long.
pub(crate) fn keepers() -> Vec<Task> {
    vec![|worker| quiet::long(worker).boxed(), |worker| quiet::seldom(worker).boxed(), |worker| {
        quiet::seldom(worker).boxed()
    }]
}
