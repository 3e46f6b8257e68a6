//! The unlock is lost: it is sent, and the connection breaks before it arrives.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;

use super::{Fault, locks};
use crate::event::now;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "unlock-lost",
    title: "unlock lost",
    about: "The unlock is sent, and the connection breaks before it arrives. The network is back a moment later, and \
            the process lives on.",
    in_short: false,
    times: 1,
    fit: locks,
    play: |stage, site, _setup| {
        async move {
            let wires = site.wires().await?;
            let mut holder = stage.holder(Gate::Releasing, &wires).await?;
            let _others = stage.others().await?;
            wires.iter().for_each(testbed::Wire::hold);
            let due = now();
            stage.log.fault("the network loses the unlock");
            holder.go()?;
            // It has been sent by then.
            sleep(Duration::from_millis(200)).await;
            wires.iter().for_each(testbed::Wire::cut);
            // Much shorter than the lease, which must not end for it.
            sleep(Duration::from_millis(100)).await;
            stage.log.fault("the network is back");
            wires.iter().for_each(testbed::Wire::heal);
            stage.settle(stage.pause() * 2).await;
            stage.count(due).await
        }
        .boxed()
    },
};
