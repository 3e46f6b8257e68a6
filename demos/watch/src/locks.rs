//! Owns [`Locks`]: all locks below a path as last seen, and who is shown them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use zookeeper_recipes::{Contender, path};

use crate::Result;
use crate::history::History;
use crate::queue::Queue;

pub(crate) struct Locks {
    pub(crate) parent: String,
    pub(crate) history: History,
    queues: Mutex<BTreeMap<String, watch::Sender<Queue>>>,
    status: watch::Sender<Status>,
    rounds: watch::Sender<Round>,
    /// Whether a queue has changed since the list was shown.
    has_news: AtomicBool,
}

/// How the looks fare.
#[derive(Clone, Default)]
pub(crate) struct Status {
    /// When one succeeded last.
    pub(crate) looked: Option<SystemTime>,
    /// Why the last one failed.
    pub(crate) error: Option<String>,
}

/// What is known of the list of locks.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct Round {
    /// Whether all of it was seen, at least once.
    pub(crate) is_complete: bool,
    /// How many nodes the ACLs hide.
    pub(crate) denied: usize,
}

impl Locks {
    pub(crate) fn new(parent: &str, history: History) -> Self {
        let queues = Mutex::default();
        let (status, rounds) = (watch::channel(Status::default()).0, watch::channel(Round::default()).0);
        Self { parent: parent.to_owned(), history, queues, status, rounds, has_news: AtomicBool::new(false) }
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn rounds(&self) -> watch::Receiver<Round> {
        self.rounds.subscribe()
    }

    /// The queue of a lock, which is looked at more often for as long as the receiver is kept. `None` if it is none of ours.
    pub(crate) fn open(&self, lock: &str) -> Option<watch::Receiver<Queue>> {
        let below = lock.strip_prefix(self.parent.trim_end_matches('/'))?;
        if path::validate(lock).is_err() || !(below.is_empty() || below.starts_with('/')) {
            return None;
        }
        Some(self.queues().entry(lock.to_owned()).or_default().subscribe())
    }

    /// The open lock that was looked at longest ago, if that is more than `every` ago.
    pub(crate) fn due(&self, every: Duration) -> Option<String> {
        let queues = self.queues();
        let open = queues.iter().filter(|(_, queue)| queue.receiver_count() > 0);
        let open = open.map(|(path, queue)| (queue.borrow().looked, path));
        let due = open.filter(|(looked, _)| looked.is_none_or(|looked| looked.elapsed() > every));
        due.min().map(|(_, path)| path.clone())
    }

    /// Takes in who was seen at a path. `is_known`: whether all locks were followed until now.
    pub(crate) fn see(&self, path: &str, contenders: Vec<Contender>, is_known: bool) -> Result<()> {
        let mut queues = self.queues();
        if !contenders.is_empty() {
            queues.entry(path.to_owned()).or_default();
        }
        if let Some(queue) = queues.get(path) {
            let (mut recorded, now) = (Ok(()), SystemTime::now());
            queue.send_if_modified(|queue| {
                let seen = is_known || queue.is_followed;
                let has_changed = queue.update(contenders);
                if has_changed {
                    self.has_news.store(true, Ordering::Relaxed);
                    recorded = self.history.record(path, queue.holders(), now, seen);
                }
                has_changed
            });
            recorded?;
        }
        drop(queues);
        self.status.send_if_modified(|status| {
            status.looked = Some(SystemTime::now());
            status.error.take().is_some()
        });
        Ok(())
    }

    /// Takes in that the ACLs do not let us look at a path.
    pub(crate) fn hide(&self, path: &str) {
        if let Some(queue) = self.queues().get(path) {
            queue.send_if_modified(Queue::hide);
        }
    }

    /// Takes in that all paths were looked at since `began`, but for those that the ACLs hide.
    pub(crate) fn end_round(&self, began: Instant, hidden: &BTreeSet<String>, is_known: bool) -> Result<()> {
        let gone = |queue: &Queue| queue.looked.is_none_or(|looked| looked < began);
        let mut paths: BTreeSet<_> = self.history.held()?.into_iter().map(|grant| grant.path).collect();
        {
            let queues = self.queues();
            paths.retain(|path| !queues.contains_key(path));
            paths.extend(queues.iter().filter(|(_, queue)| gone(&queue.borrow())).map(|(path, _)| path.clone()));
        }
        for path in paths.difference(hidden) {
            self.see(path, Vec::new(), is_known)?;
            if !self.queues().contains_key(path) {
                self.history.record(path, std::iter::empty(), SystemTime::now(), is_known)?;
            }
        }
        let is_kept = |queue: &watch::Sender<Queue>| {
            queue.receiver_count() > 0 || queue.borrow().contenders().next().is_some()
        };
        self.queues().retain(|_, queue| is_kept(queue));
        self.show(Round { is_complete: true, denied: hidden.len() });
        Ok(())
    }

    /// Shows the list of locks as far as it is known, if it has changed.
    pub(crate) fn show(&self, round: Round) {
        self.rounds.send_if_modified(|shown| {
            let has_changed = *shown != round;
            *shown = round;
            self.has_news.swap(false, Ordering::Relaxed) || has_changed
        });
    }

    /// Takes in that a look has failed.
    pub(crate) fn fail(&self, error: &str) {
        for queue in self.queues().values() {
            queue.send_if_modified(|queue| {
                queue.is_followed = false;
                false
            });
        }
        self.status.send_if_modified(|status| status.error.replace(error.to_owned()).as_deref() != Some(error));
    }

    /// Shows the queue of each lock in turn, in the order of their paths.
    pub(crate) fn each(&self, mut show: impl FnMut(&str, &Queue)) {
        for (path, queue) in self.queues().iter() {
            show(path, &queue.borrow());
        }
    }
}
