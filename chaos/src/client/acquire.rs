//! One attempt to hold a lock, in one of the ways that there are.

use std::future::Future;
use std::time::Duration;

use testbed::history::{Acquire, Acquiring, Held};
use tokio::time::timeout;
use zookeeper_recipes::{Error, LockGuard, Result, Waiting};

use super::Worker;
use crate::line::What;

/// How a lock is asked for.
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

    /// For locks without places as values.
    pub(super) fn without_places(worker: &mut Worker) -> Self {
        match Self::any(worker) {
            Self::Enqueue => Self::Wait,
            way => way,
        }
    }

    /// How long at most, where that matters.
    pub(super) fn limit(self) -> Duration {
        match self {
            Self::Try(limit) => limit,
            Self::Wait | Self::Enqueue | Self::GiveUp(_) => Duration::ZERO,
        }
    }
}

/// The ways to ask for one lock, none of which has begun.
pub(super) struct Asked<W, E, T> {
    pub(super) wait: W,
    pub(super) enqueue: E,
    pub(super) attempt: T,
}

/// Asks, and writes down what comes of it. `tokens` tells the token of each of the objects.
pub(super) async fn acquire<G: LockGuard>(
    worker: &Worker,
    way: Way,
    objects: Vec<Acquire>,
    asked: Asked<
        impl Future<Output = Result<G>>,
        impl Future<Output = Result<Waiting<G>>>,
        impl Future<Output = Result<Option<G>>>,
    >,
    tokens: impl Fn(&G) -> Vec<i64>,
) -> Option<(Vec<Held>, G)> {
    let session = worker.session.id();
    let mut acquiring: Vec<_> = objects.into_iter().map(|object| worker.process.acquire(object)).collect();
    let acquired = match way {
        Way::Wait => asked.wait.await.map(Some),
        Way::Try(_) => asked.attempt.await,
        Way::GiveUp(after) => match timeout(after, asked.wait).await {
            Ok(acquired) => acquired.map(Some),
            Err(_) => return None,
        },
        Way::Enqueue => match asked.enqueue.await {
            Ok(place) => {
                acquiring.iter().for_each(|acquiring| acquiring.enqueued(None));
                place.await.map(Some)
            }
            Err(error) => Err(error),
        },
    };
    match acquired {
        Ok(Some(guard)) => {
            let tokens = tokens(&guard);
            // In another session it has another place, which it took at a time unknown.
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
        Err(Error::Evicted { node }) => worker.note(What::Evicted { node }),
        Ok(None) => worker.wrong("was told that somebody is ahead, without having asked".to_owned()),
        Err(error) => worker.wrong(format!("cannot acquire: {error:?}")),
    }
    acquiring.into_iter().for_each(Acquiring::fail);
    None
}
