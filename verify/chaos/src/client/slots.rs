//! Numbers that are claimed. Each is an object of the history.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use testbed::history::{Acquire, now};
use tokio::time::timeout;
use zookeeper_recipes::{Error, FencingToken, HoldState, LockGuard, Loss, Result as Claimed, Slot, Slots};

use super::acquire::Way;
use super::visit::visit;
use super::{Result, Worker};
use crate::line::What;
use crate::workload::{SLOTS, path};

/// A slot as a guard like any other.
#[derive(Debug)]
struct Number(Slot);

impl LockGuard for Number {
    fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    fn state(&self) -> HoldState {
        self.0.state()
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        self.0.lost().boxed()
    }

    fn release<'a>(self: Box<Self>) -> Pin<Box<dyn Future<Output = Claimed<()>> + Send + 'a>>
    where
        Self: 'a,
    {
        self.0.release().boxed()
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }
}

/// Claims a number in a loop.
pub(super) async fn claim(mut worker: Worker) -> Result {
    let path = path("slots");
    let all = Slots::new(&worker.session, &path, SLOTS)?;
    while !worker.should_stop() {
        let slots = if worker.random.bool() {
            all.clone()
        } else {
            all.clone().with_preferred(worker.random.u32(..SLOTS))
        };
        let (way, since) = (Way::without_enqueue(&mut worker), now());
        let claimed = match way {
            Way::Try(limit) if limit.is_zero() => slots.try_claim().await,
            Way::Try(limit) => slots.try_claim_for(limit).await,
            Way::GiveUp(after) => match timeout(after, slots.claim()).await {
                Ok(claimed) => claimed.map(Some),
                Err(_) => continue,
            },
            _ => slots.claim().await.map(Some),
        };
        match claimed {
            Ok(Some(slot)) => {
                let object = format!("{path}/{}", slot.number());
                let acquiring = worker.process.acquire_since(Acquire::exclusive(object.as_str()), since);
                let held = vec![acquiring.ok(slot.fencing_token().get())];
                visit(&mut worker, held, &object, Number(slot)).await;
            }
            Ok(None) | Err(Error::Unavailable { .. }) if matches!(way, Way::Try(_)) => {}
            Ok(None) => worker.wrong("was refused a number that it waited for".to_owned()),
            Err(Error::Evicted { node }) => worker.note(What::Evicted { node }),
            Err(error) => worker.wrong(format!("cannot claim a number: {error:?}")),
        }
    }
    Ok(())
}
