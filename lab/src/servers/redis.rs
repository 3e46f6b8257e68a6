//! Redis, with the defaults of its package.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use rustix::process::Signal;

use crate::Outcome;
use crate::servers::process::{Process, cpu_time, find, folder};
use crate::servers::{Disk, Server, Setup, local};

/// A Redis server.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    client: redis::Client,
    port: u16,
    version: String,
}

impl Redis {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// If it is not installed, or does not start.
    pub async fn start(setup: &Setup) -> Outcome<Self> {
        let port = testbed::free_port();
        let mut command = Command::new(find("redis-server", "redis-server", &[])?);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        if setup.durable {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        command.envs(setup.clock.iter().flat_map(|clock| clock.environment()));
        let process = Process::start(command, folder()?)?.stopped_by(Signal::KILL);
        let client = redis::Client::open(("127.0.0.1", port))?;
        let mut server = Self { process, client, port, version: String::new() };
        let about = server.ready().await?;
        server.version = field(&about, "redis_version").unwrap_or("unknown").to_owned();
        Ok(server)
    }

    /// What connects to it.
    pub fn client(&self) -> &redis::Client {
        &self.client
    }

    /// A connection of its own.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn connect(&self) -> Outcome<MultiplexedConnection> {
        Ok(self.client.get_multiplexed_async_connection().await?)
    }

    /// Makes it copy the server at this address from now on.
    ///
    /// # Errors
    ///
    /// If it does not answer, or has no copy within a minute.
    pub async fn follow(&mut self, primary: SocketAddr) -> Outcome {
        let mut replica = redis::cmd("REPLICAOF");
        replica.arg(primary.ip().to_string()).arg(primary.port());
        let () = replica.query_async(&mut self.connect().await?).await?;
        let client = self.client.clone();
        let copied = move || {
            let client = client.clone();
            async move {
                match field(&info(&client, "replication").await?, "master_link_status") {
                    Some("up") => Ok(()),
                    other => Err(format!("the link to the primary is {other:?}").into()),
                }
            }
            .boxed()
        };
        self.process.ready(copied).await
    }

    /// Makes a replica take writes.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn promote(&self) -> Outcome {
        Ok(redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut self.connect().await?).await?)
    }

    /// Waits until it answers; returns what it reports of itself.
    async fn ready(&mut self) -> Outcome<String> {
        let client = self.client.clone();
        let ready = move || {
            let client = client.clone();
            async move { info(&client, "server").await }.boxed()
        };
        self.process.ready(ready).await
    }
}

#[async_trait]
impl Server for Redis {
    fn address(&self) -> SocketAddr {
        local(self.port)
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn requests(&self) -> Outcome<u64> {
        // One for each request, while none are sent together. Its count of commands includes those of scripts.
        let all = info(&self.client, "stats").await?;
        Ok(field(&all, "total_reads_processed").ok_or("no total_reads_processed")?.parse()?)
    }

    fn cpu_time(&self) -> Outcome<Duration> {
        cpu_time(self.process.id())
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    async fn restart(&mut self, disk: Disk) -> Outcome {
        if disk == Disk::Lost {
            let _ = fs::remove_file(self.process.folder().join("dump.rdb"));
            let _ = fs::remove_dir_all(self.process.folder().join("appendonlydir"));
        }
        self.process.restart()?;
        self.ready().await.map(drop)
    }
}

async fn info(client: &redis::Client, section: &str) -> Outcome<String> {
    let mut connection = client.get_multiplexed_async_connection().await?;
    Ok(redis::cmd("INFO").arg(section).query_async(&mut connection).await?)
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
