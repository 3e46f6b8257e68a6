//! Another contender wants another lock of the same servers.

use std::time::Duration;

use futures_util::FutureExt;

use super::{Fault, locks};
use crate::event::{What, now};
use crate::stage::{Property, SOON};
use crate::ways::LEASE;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "other-key",
    title: "another key",
    about: "While the lock is held, another contender wants another lock on the same server. It should not have to wait.",
    in_short: false,
    times: 1,
    fit: locks,
    play: |stage, _site, _setup| {
        async move {
            let mut order = stage.order(1, Gate::None);
            order.place.lock += "-other";
            // It is connected before: the row of its lock must be there.
            let mut second = stage.enter("second", &order, None).await?;
            // It stays at its gate, and does not write.
            let _holder = stage.holder(Gate::Thinking, &[]).await?;
            let due = now();
            second.go()?;
            second.wait(What::Requested, SOON).await?;
            stage.log.wait(LEASE / 2, |events| events.iter().any(|event| event.what == What::Done)).await;
            let mut outcomes = stage.count(due).await?;
            let waits = outcomes.waited.is_none_or(|waited| waited > Duration::from_millis(500));
            let text = if waits { "waits for another lock" } else { "does not wait" };
            outcomes.property = Some(Property { text, is_fault: waits });
            Ok(outcomes)
        }
        .boxed()
    },
};
