//! The network between the holder and the lock server is cut: packets vanish, and no connection is closed.

use futures_util::FutureExt;
use tokio::time::sleep;

use super::{Fault, locks};
use crate::event::now;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "network-cut",
    title: "network cut",
    about: "The network between the holder and the lock server drops everything past the lease. The holder still \
            reaches the store: it checks that it has the lock, as far as it can, and writes.",
    in_short: true,
    times: 1,
    fit: locks,
    play: |stage, site, _setup| {
        async move {
            let wires = site.wires().await?;
            let mut holder = stage.holder(Gate::Thinking, &wires).await?;
            let _others = stage.others().await?;
            let due = now();
            stage.log.fault("the network is cut");
            wires.iter().for_each(testbed::Wire::hold);
            sleep(stage.pause()).await;
            holder.go()?;
            // Nobody else has anything to do with it.
            stage.settle(stage.pause() / 2).await;
            stage.log.fault("the network is back");
            wires.iter().for_each(testbed::Wire::heal);
            stage.finish(due).await
        }
        .boxed()
    },
};
