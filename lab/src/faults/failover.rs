//! The lock server dies, and a replica that lags takes its place.

use futures_util::FutureExt;
use testbed::Wire;

use super::{Fault, Fit};
use crate::event::now;
use crate::servers::Server;
use crate::servers::Setup;
use crate::servers::redis::Redis;
use crate::stage::Stage;
use crate::ways::{Kind, LEASE};
use crate::work::Gate;

pub(super) const FAULT: Fault = Fault {
    id: "failover",
    title: "fails over to a replica",
    about: "The connection from the primary to its replica is held up. A contender locks, the primary is killed, the \
            replica is promoted, and everybody connects to it.",
    in_short: true,
    times: 1,
    fit: |way| {
        Ok(match way.kind {
            Kind::Redis => Fit::Shared,
            Kind::FiveRedis | Kind::Memcached => Fit::Not("its servers have no replicas"),
            Kind::MariaDb | Kind::PostgreSql => Fit::Not("its replication is not in the laboratory"),
            Kind::Etcd | Kind::ZooKeeper => Fit::Not("a write is on a majority before its answer"),
        })
    },
    play: |stage, _site, _setup| {
        async move {
            let mut primary = Redis::start(&Setup::default()).await?;
            let mut replica = Redis::start(&Setup::default()).await?;
            let between = Wire::to(primary.address()).await?;
            replica.follow(between.address()).await?;
            // What Sentinel is for, or a name in DNS.
            let clients = Wire::to(primary.address()).await?;
            let mut place = stage.place().clone();
            place.addresses = vec![clients.address()];
            let stage = Stage::new(stage.way, &format!("{}-pair", place.lock), place.addresses, &[]).await?;
            between.hold();
            let mut holder = stage.holder(Gate::Thinking, &[]).await?;
            let _others = stage.others().await?;
            stage.log.fault("the primary is killed");
            primary.kill();
            replica.promote().await?;
            clients.point_to(replica.address());
            stage.log.fault("the replica is promoted");
            // The lease must not end by itself meanwhile.
            stage.settle(LEASE / 2).await;
            let due = now();
            holder.go()?;
            stage.finish(due).await
        }
        .boxed()
    },
};
