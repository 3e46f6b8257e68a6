//! The lock server is killed and started again: soon or late with its data, or with an empty disk.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Fault, Fit};
use crate::Outcome;
use crate::event::now;
use crate::servers::{Disk, Setup};
use crate::site::Site;
use crate::stage::{Outcomes, Stage, TOO_SLOW};
use crate::ways::{Kind, LEASE, Way};
use crate::work::Gate;

pub(super) const WITHIN_LEASE: Fault = Fault {
    id: "restart",
    title: "server restarts within lease",
    about: "The lock server (one of five, for RedLock and the multi-lock) is killed while the lock is held, and started \
            again at once with its data, before a lease is over. Redis writes each change to the disk here (appendfsync \
            always), which is not its default. Played five times.",
    in_short: false,
    times: 5,
    fit: fit_with_disk,
    play: |stage, site, _setup| play(stage, site, Disk::Kept, Outage::WithinLease),
};

pub(super) const AFTER_LEASE: Fault = Fault {
    id: "restart-late",
    title: "server restarts after lease",
    about: "As before, but the server stays away for a lease and a half. No lease can be renewed meanwhile. Of a row it is \
            the age at which the job removes it that passes.",
    in_short: false,
    times: 5,
    fit: fit_with_disk,
    play: |stage, site, _setup| play(stage, site, Disk::Kept, Outage::AfterLease),
};

pub(super) const LOST: Fault = Fault {
    id: "restart-empty",
    title: "server restarts empty",
    about: "The lock server is killed and started again at once, with an empty disk. With the defaults of its package Redis \
            does the same to a lock that is younger than its last snapshot. Memcached has no disk. Whether a holder notices \
            in time depends on the moment, so this is played five times, and a cell counts.",
    in_short: true,
    times: 5,
    fit,
    play: |stage, site, _setup| play(stage, site, Disk::Lost, Outage::AsItIs),
};

/// How long the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    /// For as long as it takes to start it, which is shorter than a lease.
    WithinLease,
    /// For a lease and a half.
    AfterLease,
    /// For as long as it takes to start it.
    AsItIs,
}

fn fit(way: &Way) -> Outcome<Fit> {
    Ok(match way.optimistic {
        true => Fit::Not("nobody holds anything"),
        false => Fit::Own(Setup { durable: true, ..Setup::default() }),
    })
}

fn fit_with_disk(way: &Way) -> Outcome<Fit> {
    Ok(if way.kind == Kind::Memcached { Fit::Not("it has no disk") } else { fit(way)? })
}

fn play<'a>(stage: &'a Stage, site: &'a mut Site, disk: Disk, outage: Outage) -> BoxFuture<'a, Outcome<Outcomes>> {
    async move {
        let wires = if stage.way.needs_majority() { site.wires().await? } else { Vec::new() };
        // The holder has the first three, of which one is restarted.
        wires.iter().skip(3).for_each(testbed::Wire::cut);
        let mut holder = stage.holder(Gate::Thinking, &wires).await?;
        let _others = stage.others().await?;
        stage.log.fault("the server is killed");
        let lease = stage.lease();
        let after = if outage == Outage::AfterLease { lease + LEASE / 2 } else { Duration::ZERO };
        let away = site.restart(disk, after).await?;
        stage.log.fault("the server is back");
        if outage == Outage::WithinLease && away >= LEASE {
            return Err(TOO_SLOW.into());
        }
        // A lease that nobody renews must not end by itself meanwhile.
        let limit = if outage == Outage::AfterLease { LEASE * 2 } else { stage.within_lease(LEASE * 2)? };
        stage.settle(limit).await;
        let due = now();
        holder.go()?;
        let outcomes = stage.finish(due).await?;
        if outage == Outage::WithinLease {
            stage.wrote_within_lease(&outcomes)?;
        }
        Ok(outcomes)
    }
    .boxed()
}
