//! Shards that are served. The lock of each is an object of the history.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use testbed::history::{Acquire, now};
use tokio::time::{Instant, timeout};
use zookeeper_groups::Shards;
use zookeeper_groups::shards::Shard;
use zookeeper_recipes::{Error, FencingToken, HoldMonitor, HoldState, LockGuard, Loss, Result as Outcome};

use super::visit::Visit;
use super::{Phase, Result, Worker};
use crate::workload::{SHARDS, path};

/// For how long a member that has gone keeps its shards, and the set of members has to stay the same.
const GRACE: Duration = Duration::from_millis(300);
const SETTLING: Duration = Duration::from_millis(300);

/// The hold of a shard as a guard like any other. The member releases it.
#[derive(Debug)]
struct Owned(HoldMonitor);

impl LockGuard for Owned {
    fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    fn state(&self) -> HoldState {
        self.0.state()
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        self.0.lost().boxed()
    }

    fn release<'a>(self: Box<Self>) -> Pin<Box<dyn Future<Output = Outcome<()>> + Send + 'a>>
    where
        Self: 'a,
    {
        std::future::ready(Ok(())).boxed()
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }
}

/// Serves the shards of this process, and stops, leaves or breaks off now and then while there are faults.
pub(super) async fn serve(mut worker: Worker) -> Result {
    let (path, name) = (path("shards"), worker.client().to_owned());
    while !worker.should_stop() {
        let shards = Shards::builder(&path, SHARDS)
            .name(&name)
            .grace(GRACE)
            .settling_time(SETTLING)
            .patience(Duration::from_secs(2))
            .drain_limit(Duration::from_millis(500))
            .moves_at_once(2)
            .build(&worker.session)?;
        let (since, each) = (now(), worker.clone());
        let mut running = Box::pin(shards.run(move |shard| one(each.clone(), shard, since)));
        let ends_at = Instant::now() + worker.up_to(8.0);
        let ended = tokio::select! {
            ended = &mut running => Some(ended),
            () = until(&mut worker, ends_at) => None,
        };
        let ended = match (ended, worker.random.u8(..4)) {
            (Some(ended), _) => ended,
            (None, 0) if !worker.should_stop() => {
                drop(running);
                Ok(())
            }
            (None, 1 | 2) if !worker.should_stop() => {
                shards.leave();
                let limit = worker.up_to(1.0);
                match timeout(limit, &mut running).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        shards.stop();
                        running.await
                    }
                }
            }
            _ => {
                shards.stop();
                running.await
            }
        };
        match ended {
            Ok(()) | Err(Error::NameTaken { .. } | Error::Unavailable { .. }) => {}
            Err(error) => worker.wrong(format!("cannot serve shards: {error:?}")),
        }
    }
    Ok(())
}

/// Waits until then while there are faults, or until the client is to end.
async fn until(worker: &mut Worker, end: Instant) {
    worker.pause(end.saturating_duration_since(Instant::now()), Phase::Calm).await;
    if *worker.phase.borrow() != Phase::Storm {
        worker.pause(Duration::MAX, Phase::Stop).await;
    }
}

/// Serves one shard until it is asked to end.
async fn one(mut worker: Worker, shard: Shard, since: u64) {
    let (token, owned) = (shard.fencing_token().get(), Owned(shard.monitor().clone()));
    worker.random = Rng::with_seed(token.cast_unsigned());
    let object = owned.path().to_owned();
    let held = worker.process.acquire_since(Acquire::exclusive(object.as_str()), since).ok(token);
    let mut serving = Serving { visit: Visit::new(&mut worker, vec![held], &object), hold: owned.0.clone() };
    serving.visit.stay(&mut worker, &owned, shard.revoke_requested()).await;
}

/// A shard that is served. It may be dropped at any moment.
struct Serving {
    visit: Visit,
    hold: HoldMonitor,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Until now, and not only until the last look.
        self.visit.held.iter().for_each(|held| _ = held.confirm(|| !self.hold.state().has_ended()));
    }
}
