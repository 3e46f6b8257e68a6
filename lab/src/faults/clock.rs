//! A clock jumps ahead by an hour: that of a server, or of a client where no server's clock matters or can be faked.

use std::time::Duration;

use futures_util::FutureExt;

use super::{Fault, Fit};
use crate::Outcome;
use crate::event::{What, now};
use crate::servers::Setup;
use crate::servers::clock::Clock;
use crate::stage::SOON;
use crate::ways::{Kind, LEASE, Way};
use crate::work::Gate;

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) const FAULT: Fault = Fault {
    id: "clock",
    title: "clock jumps",
    about: "A clock jumps an hour ahead while the lock is held: that of the server (MariaDB, PostgreSQL, Redis), of one \
            of five servers, of which two were out of the holder's reach (RedLock), of a waiter (GETSET), or of the \
            holder (etcd and ZooKeeper, whose servers count by monotonic clocks that the laboratory cannot fake).",
    in_short: true,
    fit,
    play: |stage, site, setup| {
        async move {
            let clock = setup.clock.as_ref().ok_or("no clock")?;
            let in_server = in_server(stage.way);
            let is_waiter = stage.way.id == "redis-getset";
            let wires = if stage.way.kind == Kind::FiveRedis { site.wires().await? } else { Vec::new() };
            // The holder has the first three.
            wires.iter().skip(3).for_each(testbed::Wire::cut);
            let mut order = stage.order(1, Gate::Thinking);
            if !wires.is_empty() {
                order.place.addresses = wires.iter().map(testbed::Wire::address).collect();
            }
            let holder_clock = (!in_server && !is_waiter).then_some(clock);
            let mut holder = stage.holder_of(&order, holder_clock).await?;
            let _others = if is_waiter {
                let mut second = stage.enter("second", &stage.order(3, Gate::None), Some(clock)).await?;
                second.go()?;
                second.wait(What::Requested, SOON).await?;
                vec![second]
            } else {
                stage.others().await?
            };
            stage.log.fault("the clock jumps an hour ahead");
            clock.jump(HOUR)?;
            // Well within a lease that nobody renews, so that only the clock can have ended it.
            let renewed =
                !matches!(stage.way.kind, Kind::Redis | Kind::FiveRedis) || stage.way.id == "redis-watchdog";
            stage.settle(if renewed { LEASE * 3 / 2 } else { LEASE / 2 }).await;
            let due = now();
            holder.go()?;
            stage.finish(due).await
        }
        .boxed()
    },
};

fn in_server(way: &Way) -> bool {
    matches!(way.kind, Kind::MariaDb | Kind::PostgreSql | Kind::Redis | Kind::FiveRedis)
        && way.id != "redis-getset"
}

fn fit(way: &Way) -> Outcome<Fit> {
    if way.optimistic {
        return Ok(Fit::Not("no clock is involved"));
    }
    Ok(Fit::Own(Setup { clock: Some(Clock::new()?), ..Setup::default() }))
}
