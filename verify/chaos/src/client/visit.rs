//! The time between a grant and its end: observes the guard, then releases it.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use testbed::history::{Held, Releasing, now};
use tokio::time::{MissedTickBehavior, interval, timeout};
use zookeeper_recipes::{Error, HoldState, LockGuard};

use super::Worker;

pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Holds a lock for a while and releases it.
pub(super) async fn visit(worker: &mut Worker, held: Vec<Held>, object: &str, guard: impl LockGuard) {
    let visit = Visit::new(worker, held, object);
    visit.complete(worker, guard).await;
}

/// A grant which has not ended.
pub(super) struct Visit {
    pub(super) held: Vec<Held>,
    pub(super) object: String,
    /// Whether it awaits `lost()`, or only polls `state()`.
    watches: bool,
    lost: bool,
    suspended: bool,
}

impl Visit {
    pub(super) fn new(worker: &mut Worker, held: Vec<Held>, object: &str) -> Self {
        let watches = worker.random.u8(0..4) > 0;
        Self { held, object: object.to_owned(), watches, lost: false, suspended: false }
    }

    /// Stays for a while and leaves.
    pub(super) async fn complete(mut self, worker: &mut Worker, guard: impl LockGuard) {
        let work = worker.work();
        self.stay(worker, &guard, tokio::time::sleep(work)).await;
        self.leave(worker, guard).await;
    }

    /// Completes `work`, even if the lock is lost meanwhile, and records a loss when the guard reports it. While the
    /// guard is suspended it stays, until the guard is resumed or lost.
    pub(super) async fn stay<F: Future>(
        &mut self,
        worker: &mut Worker,
        guard: &impl LockGuard,
        work: F,
    ) -> F::Output {
        let mut work = pin!(work);
        let mut done = None;
        let watches = self.watches;
        let mut reported = pin!(async {
            match watches {
                true => guard.lost().await,
                false => std::future::pending().await,
            }
        });
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_look = now();
        loop {
            if (self.lost || !self.suspended)
                && let Some(done) = done.take()
            {
                return done;
            }
            tokio::select! {
                biased;
                _ = &mut reported, if !self.lost => {
                    self.lost = true;
                    self.held.iter().for_each(Held::lost);
                }
                _ = looks.tick() => {
                    if self.look(worker, guard, &mut last_look) {
                        // `state()` found it first, and must wake `lost()`.
                        if timeout(LOOK, &mut reported).await.is_err() {
                            worker.wrong(format!("{}: state() reported a loss and lost() did not", self.object));
                        }
                        self.lost = true;
                        self.held.iter().for_each(Held::lost);
                    }
                }
                output = &mut work, if done.is_none() => done = Some(output),
            }
        }
    }

    /// Returns whether it found a loss which `lost()` has not reported yet.
    fn look(&mut self, worker: &Worker, guard: &impl LockGuard, last_look: &mut u64) -> bool {
        let before = now();
        match guard.state() {
            HoldState::Lost(_) if self.lost => {}
            HoldState::Lost(_) if self.watches => return true,
            HoldState::Lost(_) => {
                self.lost = true;
                self.held.iter().for_each(|held| held.lost_since(*last_look));
            }
            state if self.lost => worker.wrong(format!("{}: {state:?} after it was lost", self.object)),
            state => {
                self.suspended = state == HoldState::Suspended;
                for held in &self.held {
                    held.confirm(|| !matches!(guard.state(), HoldState::Lost(_)));
                }
            }
        }
        *last_look = before;
        false
    }

    /// Releases the guard and records the outcome, or just drops it.
    pub(super) async fn leave(self, worker: &mut Worker, guard: impl LockGuard) {
        if worker.random.u8(0..4) == 0 {
            drop(self.held);
            return drop(guard);
        }
        let releasing: Vec<_> = self.held.into_iter().map(Held::release).collect();
        match Box::new(guard).release().await {
            Ok(()) => releasing.into_iter().for_each(Releasing::ok),
            Err(Error::Lost(_)) => releasing.into_iter().for_each(Releasing::lost),
            Err(error) => worker.wrong(format!("{}: cannot release: {error:?}", self.object)),
        }
    }
}
