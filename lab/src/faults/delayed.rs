//! The holder's write is delayed past its lease, on the way to the store.

use futures_util::FutureExt;
use testbed::Wire;
use tokio::time::sleep;

use super::{Fault, any};
use crate::event::now;
use crate::ways::LEASE;
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "write-delayed",
    title: "write delayed",
    about: "The holder's write is held up between it and the store. After one and a half leases without an answer the \
            holder gives up and releases. The others have their turns; then the write arrives.",
    in_short: true,
    times: 1,
    fit: any,
    play: |stage, site, _setup| {
        async move {
            let mut order = stage.order(1, Gate::Writing);
            order.write_limit = Some(LEASE + LEASE / 2);
            // The row with a version is its own store.
            let target = order.store.or(site.addresses().first().copied()).ok_or("no store")?;
            let wire = Wire::to(target).await?;
            if stage.way.optimistic {
                order.place.addresses = vec![wire.address()];
            } else {
                order.store = Some(wire.address());
            }
            let mut holder = stage.holder_of(&order, None).await?;
            let _others = stage.others().await?;
            let due = now();
            stage.log.fault("the way to the store is held up");
            wire.hold();
            holder.go()?;
            sleep(stage.pause()).await;
            stage.settle(LEASE).await;
            stage.log.fault("the write arrives");
            wire.heal();
            // Until the store has answered it.
            sleep(LEASE / 2).await;
            stage.finish(due).await
        }
        .boxed()
    },
};
