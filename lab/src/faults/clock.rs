//! A clock jumps ahead by an hour: the time of day of the server, or of a client. Monotonic clocks do not jump.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Fault, Fit};
use crate::Outcome;
use crate::event::now;
use crate::servers::Setup;
use crate::servers::clock::Clock;
use crate::site::Site;
use crate::stage::{Outcomes, Stage};
use crate::ways::{Kind, LEASE};
use crate::work::Gate;

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) const OF_SERVER: Fault = Fault {
    id: "clock",
    title: "server's clock jumps",
    about: "The server's time of day jumps an hour ahead while the lock is held. For RedLock and the multi-lock it is that of \
            one of five servers. Two of RedLock's were out of the holder's reach. etcd is written in Go, which asks the kernel itself: \
            libfaketime does not reach it.",
    in_short: true,
    times: 1,
    fit: |way| match way.kind {
        _ if way.optimistic => Ok(Fit::Not("no clock is involved")),
        Kind::Etcd => Ok(Fit::Not("libfaketime does not reach a server in Go")),
        _ => Ok(Fit::Own(Setup { clock: Some(Clock::new()?), ..Setup::default() })),
    },
    play: |stage, site, setup| play(stage, site, setup, Whose::Server),
};

pub(super) const OF_CLIENT: Fault = Fault {
    id: "clock-client",
    title: "holder's clock jumps",
    about: "The holder's time of day jumps an hour ahead while it has the lock. For GETSET it is a waiter's, which compares \
            its clock with the time in the key.",
    in_short: false,
    times: 1,
    fit: |way| Ok(if way.optimistic { Fit::Not("no clock is involved") } else { Fit::Shared }),
    play: |stage, site, setup| {
        let is_waiter = stage.way.id == "redis-getset";
        play(stage, site, setup, if is_waiter { Whose::Waiter } else { Whose::Holder })
    },
};

/// Whose clock jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Server,
    Holder,
    Waiter,
}

fn play<'a>(
    stage: &'a Stage,
    site: &'a mut Site,
    setup: &'a Setup,
    whose: Whose,
) -> BoxFuture<'a, Outcome<Outcomes>> {
    async move {
        let clock = match whose {
            Whose::Server => setup.clock.clone().ok_or("no clock")?,
            Whose::Holder | Whose::Waiter => Clock::new()?,
        };
        let wires = if stage.way.needs_majority() { site.wires().await? } else { Vec::new() };
        // The holder has the first three.
        wires.iter().skip(3).for_each(testbed::Wire::cut);
        let mut order = stage.order(1, Gate::Thinking);
        if !wires.is_empty() {
            order.place.addresses = wires.iter().map(testbed::Wire::address).collect();
        }
        // They are connected before, so that all is done within a lease that nobody renews.
        let mut others = match whose {
            Whose::Waiter => vec![stage.enter("second", &stage.order(3, Gate::None), Some(&clock)).await?],
            Whose::Server | Whose::Holder => stage.connected_others().await?,
        };
        let mut holder = stage.holder_of(&order, (whose == Whose::Holder).then_some(&clock)).await?;
        stage.start(&mut others).await?;
        let limit = stage.within_lease(LEASE * 3 / 2)?;
        stage.log.fault("the clock jumps an hour ahead");
        clock.jump(HOUR)?;
        stage.settle(limit).await;
        let due = now();
        holder.go()?;
        stage.finish(due).await
    }
    .boxed()
}
