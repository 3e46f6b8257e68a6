//! A waiter is cancelled, and its process lives on.

use std::time::Duration;

use futures_util::FutureExt;

use super::{Fault, locks};
use crate::event::{What, now};
use crate::stage::SOON;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "waiter-cancelled",
    title: "waiter cancelled",
    about: "A waiter gives up after half a second: its future is dropped, and its process lives on. Then the holder \
            releases.",
    in_short: false,
    times: 1,
    fit: locks,
    play: |stage, _site, _setup| {
        async move {
            let mut holder = stage.holder(Gate::Thinking, &[]).await?;
            let mut order = stage.order(1, Gate::None);
            order.cancel = Some(Duration::from_millis(500));
            let mut waiter = stage.enter("cancelled", &order, None).await?;
            waiter.go()?;
            waiter.wait(What::Requested, SOON).await?;
            let _others = stage.others().await?;
            waiter.wait(What::Cancelled, SOON).await?;
            let due = now();
            holder.go()?;
            stage.settle(stage.pause() * 2).await;
            stage.count(due).await
        }
        .boxed()
    },
};
