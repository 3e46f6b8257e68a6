//! The holder locks again what it holds, and releases that second lock.

use std::time::Duration;

use futures_util::FutureExt;

use super::{Fault, locks};
use crate::event::{What, now};
use crate::stage::Property;
use crate::ways::LEASE;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "again",
    title: "re-entrancy",
    about: "The holder locks a second time and gives up after 300 ms. If it gets the lock, it releases that second lock and \
            works on under the first. No way has to be re-entrant, but one that is must keep the lock until the last \
            release.",
    in_short: false,
    times: 1,
    fit: locks,
    play: |stage, _site, _setup| {
        async move {
            // They are connected before, so that all is done within a lease that nobody renews.
            let mut others = stage.connected_others().await?;
            let mut order = stage.order(1, Gate::Thinking);
            order.again = Some(Duration::from_millis(300));
            let mut holder = stage.holder_of(&order, None).await?;
            stage.start(&mut others).await?;
            stage.settle(stage.within_lease(LEASE / 4)?).await;
            let due = now();
            holder.go()?;
            let mut outcomes = stage.finish(due).await?;
            let has = |what| outcomes.events.iter().any(|event| event.contender == "holder" && event.what == what);
            let text = if has(What::Again) { "re-entrant" } else { "waits for itself" };
            outcomes.property = Some(Property { text, is_fault: false });
            Ok(outcomes)
        }
        .boxed()
    },
};
