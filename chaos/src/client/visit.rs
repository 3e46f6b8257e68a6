//! The time between a grant and its end: what is looked at meanwhile, and how it is given back.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use testbed::history::{Held, Releasing, now};
use tokio::time::{MissedTickBehavior, interval, timeout};
use zookeeper_recipes::{Error, HoldState, LockGuard};

use super::Worker;
use crate::line::What;

const LOOK: Duration = Duration::from_millis(50);

/// What is known of a hold that goes on.
pub(super) struct Visit {
    pub(super) held: Vec<Held>,
    pub(super) object: String,
    /// Whether it waits to be told of a loss, or only looks now and then.
    watches: bool,
    lost: bool,
    suspended: bool,
}

impl Visit {
    pub(super) fn new(worker: &mut Worker, held: Vec<Held>, object: &str) -> Self {
        let watches = worker.random.u8(0..4) > 0;
        Self { held, object: object.to_owned(), watches, lost: false, suspended: false }
    }

    /// Does its work to the end, even if the lock is lost meanwhile; notes the loss when it hears of it. Who hears that
    /// the connection is gone does not leave before it knows more.
    pub(super) async fn stay<F: Future>(
        &mut self,
        worker: &mut Worker,
        guard: &impl LockGuard,
        work: F,
    ) -> F::Output {
        let mut work = pin!(work);
        let mut done = None;
        let watches = self.watches;
        let mut told = pin!(async {
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
                _ = &mut told, if !self.lost => {
                    self.lost = true;
                    self.held.iter().for_each(Held::lost);
                }
                _ = looks.tick() => {
                    if self.look(worker, guard, &mut last_look) {
                        // Who looks hears of it first, and wakes who waits for it.
                        if timeout(LOOK, &mut told).await.is_err() {
                            worker.wrong(format!("{}: lost() has not told of a loss that state() told", self.object));
                        }
                        self.lost = true;
                        self.held.iter().for_each(Held::lost);
                    }
                }
                output = &mut work, if done.is_none() => done = Some(output),
            }
        }
    }

    /// Says whether it found a loss that is still to be told.
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
                let suspended = state == HoldState::Suspended;
                if suspended != self.suspended {
                    self.suspended = suspended;
                    let object = self.object.as_str().into();
                    worker.note(if suspended { What::Suspended { object } } else { What::Resumed { object } });
                }
                for held in &self.held {
                    held.confirm(|| !matches!(guard.state(), HoldState::Lost(_)));
                }
            }
        }
        *last_look = before;
        false
    }

    /// Gives it back, and writes down what came of that; or just drops it.
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
