//! The lock server is killed and started again, with its data or with an empty disk.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Fault, Fit};
use crate::Outcome;
use crate::event::now;
use crate::servers::{Disk, Setup};
use crate::site::Site;
use crate::stage::{Outcomes, Stage};
use crate::ways::{Kind, LEASE, Way};
use crate::work::Gate;

pub(super) const KEPT: Fault = Fault {
    id: "restart",
    title: "server restarts",
    about: "The lock server (one of five, for RedLock) is killed and started again with its data, while the lock is \
            held. Redis writes each change to the disk here (appendfsync always), which is not its default.",
    in_short: false,
    times: 1,
    fit: |way| Ok(if way.kind == Kind::Memcached { Fit::Not("it has no disk") } else { fit(way)? }),
    play: |stage, site, _setup| play(stage, site, Disk::Kept),
};

pub(super) const LOST: Fault = Fault {
    id: "restart-empty",
    title: "server restarts empty",
    about: "As before, but with an empty disk. With the defaults of its package Redis does the same to a lock that is \
            younger than its last snapshot. Memcached has no disk. Whether a holder notices in time depends on the \
            moment, so this is played five times, and a cell counts.",
    in_short: true,
    times: 5,
    fit,
    play: |stage, site, _setup| play(stage, site, Disk::Lost),
};

fn fit(way: &Way) -> Outcome<Fit> {
    Ok(match way.optimistic {
        true => Fit::Not("nobody holds anything"),
        false => Fit::Own(Setup { durable: true, ..Setup::default() }),
    })
}

fn play<'a>(stage: &'a Stage, site: &'a mut Site, disk: Disk) -> BoxFuture<'a, Outcome<Outcomes>> {
    async move {
        let wires = if stage.way.kind == Kind::FiveRedis { site.wires().await? } else { Vec::new() };
        // The holder has the first three, of which one is restarted.
        wires.iter().skip(3).for_each(testbed::Wire::cut);
        let mut holder = stage.holder(Gate::Thinking, &wires).await?;
        let _others = stage.others().await?;
        stage.log.fault("the server is killed");
        site.restart(disk).await?;
        stage.log.fault("the server is back");
        // A lease that nobody renews must not end by itself meanwhile.
        stage.settle(stage.within_lease(LEASE * 2)?).await;
        let due = now();
        holder.go()?;
        stage.finish(due).await
    }
    .boxed()
}
