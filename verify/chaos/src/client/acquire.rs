//! One attempt to acquire a lock, in one of several ways.

use std::future::Future;
use std::time::Duration;

use testbed::history::{Acquire, Acquiring, Held};
use tokio::time::timeout;
use zookeeper_recipes::{Error, LockGuard, Result, Waiting};

use super::Worker;
use crate::line::What;

/// How to acquire a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Wait,
    Enqueue,
    Try(Duration),
    /// The future is dropped after this time.
    GiveUp(Duration),
}

impl Way {
    pub(super) fn any(worker: &mut Worker) -> Self {
        match worker.random.u8(0..16) {
            0 => Self::Try(Duration::ZERO),
            1 => Self::Try(worker.up_to(1.0)),
            2 => Self::GiveUp(worker.up_to(0.02)),
            3 => Self::GiveUp(worker.up_to(0.5)),
            4..9 => Self::Enqueue,
            _ => Self::Wait,
        }
    }

    /// Any way but `enqueue`, for locks which do not have it.
    pub(super) fn without_enqueue(worker: &mut Worker) -> Self {
        match Self::any(worker) {
            Self::Enqueue => Self::Wait,
            way => way,
        }
    }

    /// The time limit of [`Way::Try`], zero for the others.
    pub(super) fn limit(self) -> Duration {
        match self {
            Self::Try(limit) => limit,
            Self::Wait | Self::Enqueue | Self::GiveUp(_) => Duration::ZERO,
        }
    }
}

/// The futures of one lock, one for each way; none has been polled.
pub(super) struct Futures<W, E, T> {
    pub(super) wait: W,
    pub(super) enqueue: E,
    pub(super) attempt: T,
}

/// Acquires, and records the outcome. `tokens` returns the token of each object.
pub(super) async fn acquire<G: LockGuard>(
    worker: &Worker,
    way: Way,
    objects: Vec<Acquire>,
    futures: Futures<
        impl Future<Output = Result<G>>,
        impl Future<Output = Result<Waiting<G>>>,
        impl Future<Output = Result<Option<G>>>,
    >,
    tokens: impl Fn(&G) -> Vec<i64>,
) -> Option<(Vec<Held>, G)> {
    let session = worker.session.id();
    let mut acquiring: Vec<_> = objects.into_iter().map(|object| worker.process.acquire(object)).collect();
    let acquired = match way {
        Way::Wait => futures.wait.await.map(Some),
        Way::Try(_) => futures.attempt.await,
        Way::GiveUp(after) => match timeout(after, futures.wait).await {
            Ok(acquired) => acquired.map(Some),
            Err(_) => return None,
        },
        Way::Enqueue => match futures.enqueue.await {
            Ok(waiting) => {
                acquiring.iter().for_each(|acquiring| acquiring.enqueued(None));
                waiting.await.map(Some)
            }
            Err(error) => Err(error),
        },
    };
    match acquired {
        Ok(Some(guard)) => {
            let tokens = tokens(&guard);
            // In a new session it has a new position in the queue, taken at an unknown time.
            let moved = way == Way::Enqueue && worker.session.id() != session;
            let held = acquiring.drain(..).zip(tokens).map(|(acquiring, token)| {
                if moved {
                    acquiring.enqueued(Some(token));
                }
                acquiring.ok(token)
            });
            return Some((held.collect(), guard));
        }
        Ok(None) | Err(Error::Unavailable { .. }) if matches!(way, Way::Try(_)) => {}
        // It was admitted, and nobody looked until its node was deleted.
        Err(Error::Lost(_)) if way == Way::Enqueue => {}
        Err(Error::Evicted { node }) => worker.note(What::Evicted { node }),
        Ok(None) => worker.wrong("was refused a lock that it waited for".to_owned()),
        Err(error) => worker.wrong(format!("cannot acquire: {error:?}")),
    }
    acquiring.into_iter().for_each(Acquiring::fail);
    None
}

/// The token of a guard of one lock.
pub(super) fn token(guard: &impl LockGuard) -> Vec<i64> {
    vec![guard.fencing_token().get()]
}
