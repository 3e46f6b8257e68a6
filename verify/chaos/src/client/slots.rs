//! Numbers that are claimed. Each is an object of the history.

use testbed::history::{Acquire, now};
use tokio::time::timeout;
use zookeeper_groups::Slots;
use zookeeper_recipes::Error;

use super::acquire::Way;
use super::visit::visit;
use super::{Result, Worker};
use crate::line::What;
use crate::workload::{SLOTS, path};

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
            Way::Try(after) | Way::GiveUp(after) => match timeout(after, slots.claim()).await {
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
                visit(&mut worker, held, &object, slot.into_guard()).await;
            }
            Ok(None) | Err(Error::Unavailable { .. }) if matches!(way, Way::Try(_)) => {}
            Ok(None) => worker.wrong("was refused a number that it waited for".to_owned()),
            Err(Error::Evicted { node }) => worker.note(What::Evicted { node }),
            Err(error) => worker.wrong(format!("cannot claim a number: {error:?}")),
        }
    }
    Ok(())
}
