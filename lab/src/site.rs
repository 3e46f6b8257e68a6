//! The servers of one way, and the wires to them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testbed::Wire;
use tokio::time::sleep;

use crate::Outcome;
use crate::servers::etcd::Etcd;
use crate::servers::mariadb::MariaDb;
use crate::servers::memcached::Memcached;
use crate::servers::postgresql::PostgreSql;
use crate::servers::redis::Redis;
use crate::servers::zookeeper::ZooKeeper;
use crate::servers::{Disk, Server, Setup};
use crate::ways::Kind;

/// Running servers.
#[derive(Debug)]
pub struct Site {
    servers: Vec<Box<dyn Server>>,
}

impl Site {
    /// Starts the servers; each with its own setup, if there are several, and the last one's for the rest.
    ///
    /// # Errors
    ///
    /// If one is not installed, or does not start.
    pub async fn start(kind: Kind, setup: &Setup) -> Outcome<Self> {
        let mut servers: Vec<Box<dyn Server>> = Vec::new();
        match kind {
            Kind::MariaDb => servers.push(Box::new(MariaDb::start(setup).await?)),
            Kind::PostgreSql => servers.push(Box::new(PostgreSql::start(setup).await?)),
            Kind::Redis => servers.push(Box::new(Redis::start(setup).await?)),
            Kind::FiveRedis => {
                // Only one has another clock.
                servers.push(Box::new(Redis::start(setup).await?));
                let others = Setup { clock: None, ..setup.clone() };
                for _ in 1..5 {
                    servers.push(Box::new(Redis::start(&others).await?));
                }
            }
            Kind::Memcached => servers.push(Box::new(Memcached::start(setup).await?)),
            Kind::Etcd => servers.push(Box::new(Etcd::start(setup).await?)),
            Kind::ZooKeeper => servers.push(Box::new(ZooKeeper::start(setup).await?)),
        }
        Ok(Self { servers })
    }

    /// Where clients connect.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.address()).collect()
    }

    /// The version of the servers.
    pub fn version(&self) -> &str {
        self.servers.first().map_or("", |server| server.version())
    }

    /// Wires before all servers.
    ///
    /// # Errors
    ///
    /// If there is no port.
    pub async fn wires(&self) -> Outcome<Vec<Wire>> {
        let mut wires = Vec::new();
        for server in &self.servers {
            wires.push(Wire::to(server.address()).await?);
        }
        Ok(wires)
    }

    /// Requests so far, of all servers.
    ///
    /// # Errors
    ///
    /// If one does not answer.
    pub async fn requests(&self) -> Outcome<u64> {
        let mut all = 0;
        for server in &self.servers {
            all += server.requests().await?;
        }
        Ok(all)
    }

    /// Notifications so far, if the servers count them.
    ///
    /// # Errors
    ///
    /// If one does not answer.
    pub async fn notifications(&self) -> Outcome<Option<u64>> {
        let mut all = None;
        for server in &self.servers {
            if let Some(count) = server.notifications().await? {
                all = Some(all.unwrap_or(0) + count);
            }
        }
        Ok(all)
    }

    /// The CPU time so far, of all servers.
    ///
    /// # Errors
    ///
    /// If one does not run.
    pub fn cpu_time(&self) -> Outcome<Duration> {
        self.servers.iter().map(|server| server.cpu_time()).sum()
    }

    /// Kills the first server, and starts it again after this time; returns how long it was away.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn restart(&mut self, disk: Disk, after: Duration) -> Outcome<Duration> {
        let first = self.servers.first_mut().ok_or("no server")?;
        first.kill();
        let killed = Instant::now();
        sleep(after).await;
        first.restart(disk).await?;
        Ok(killed.elapsed())
    }
}
