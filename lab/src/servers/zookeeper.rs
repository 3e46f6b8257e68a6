//! ZooKeeper: the testbed's server, which `zk-docker` finds and installs.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::Outcome;
use crate::servers::process::cpu_time;
use crate::servers::{Disk, Server, Setup, local};

/// A ZooKeeper server.
#[derive(Debug)]
pub struct ZooKeeper {
    server: testbed::Server,
    version: String,
}

impl ZooKeeper {
    /// Starts one. With a clock, the virtual machine sees it as the time of day only.
    ///
    /// # Errors
    ///
    /// If it is not installed, or does not start.
    pub async fn start(setup: &Setup) -> Outcome<Self> {
        let mut server = testbed::Server::builder();
        for (key, value) in setup.clock.iter().flat_map(|clock| clock.environment_of_java()) {
            server = server.environment(key, value);
        }
        let server = server.start().await?;
        let about = server.four_letter_word("srvr").await?;
        let version = about.lines().find_map(|line| line.strip_prefix("Zookeeper version: "));
        let version = version.and_then(|version| version.split([',', '-']).next()).unwrap_or("unknown").to_owned();
        Ok(Self { server, version })
    }
}

#[async_trait]
impl Server for ZooKeeper {
    fn address(&self) -> SocketAddr {
        local(self.server.port())
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn requests(&self) -> Outcome<u64> {
        let counts = self.server.four_letter_word("mntr").await?;
        let count = counts.lines().find_map(|line| line.strip_prefix("zk_packets_received"));
        Ok(count.ok_or("no zk_packets_received")?.trim().parse()?)
    }

    /// The watches that have fired.
    async fn notifications(&self) -> Outcome<Option<u64>> {
        let counts = self.server.four_letter_word("mntr").await?;
        let watches = counts.lines().filter_map(|line| line.split_once('\t'));
        let watches =
            watches.filter(|(name, _)| name.starts_with("zk_sum_node_") && name.ends_with("_watch_count"));
        Ok(Some(watches.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()))
    }

    fn cpu_time(&self) -> Outcome<Duration> {
        cpu_time(self.server.process_id().ok_or("ZooKeeper does not run")?)
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self, disk: Disk) -> Outcome {
        match disk {
            Disk::Kept => self.server.restart().await?,
            Disk::Lost => self.server.restart_empty().await?,
        }
        Ok(())
    }
}
