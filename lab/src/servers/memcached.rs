//! Memcached, with the defaults of its package. It keeps everything in memory.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::Outcome;
use crate::servers::process::{Process, User, cpu_time, find, folder};
use crate::servers::{Disk, Server, Setup, local};

/// A Memcached server.
#[derive(Debug)]
pub struct Memcached {
    process: Process,
    port: u16,
    version: String,
}

impl Memcached {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// If it is not installed, or does not start.
    pub async fn start(setup: &Setup) -> Outcome<Self> {
        let program = find("memcached", "memcached", &["/usr/bin".into()])?;
        // It refuses to run as root.
        let user = User::ordinary(&["memcache", "nobody"])?;
        let folder = folder()?;
        user.own(folder.path())?;
        let port = testbed::free_port();
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-U", "0", "-p", &port.to_string()]);
        command.envs(setup.clock.iter().flat_map(|clock| clock.environment()));
        user.run(&mut command);
        let process = Process::start(command, folder)?.stopped_by(Signal::KILL);
        let mut server = Self { process, port, version: String::new() };
        server.version = server.ready().await?;
        Ok(server)
    }

    /// Waits until it answers; returns its version.
    async fn ready(&mut self) -> Outcome<String> {
        let address = self.address();
        let ready = move || {
            async move {
                let answer = Client::connect(address).await?.ask("version\r\n").await?;
                Ok(answer.trim_start_matches("VERSION ").to_owned())
            }
            .boxed()
        };
        self.process.ready(ready).await
    }
}

#[async_trait]
impl Server for Memcached {
    fn address(&self) -> SocketAddr {
        local(self.port)
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn requests(&self) -> Outcome<u64> {
        let mut client = Client::connect(self.address()).await?;
        let mut line = client.ask("stats\r\n").await?;
        let mut all = 0;
        while line != "END" {
            if let Some((name, value)) = line.strip_prefix("STAT ").and_then(|line| line.split_once(' '))
                && ["cmd_get", "cmd_set", "delete_hits", "delete_misses"].contains(&name)
            {
                all += value.parse::<u64>()?;
            }
            line = client.ask("").await?;
        }
        Ok(all)
    }

    fn cpu_time(&self) -> Outcome<Duration> {
        cpu_time(self.process.id())
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    async fn restart(&mut self, _disk: Disk) -> Outcome {
        self.process.restart()?;
        self.ready().await.map(drop)
    }
}

/// A connection, which speaks the text protocol.
#[derive(Debug)]
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If there is no server.
    pub async fn connect(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command with its line end; returns the next line of the answer without it.
    ///
    /// # Errors
    ///
    /// If the connection ends.
    pub async fn ask(&mut self, command: &str) -> Outcome<String> {
        self.0.write_all(command.as_bytes()).await?;
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err("the server has closed the connection".into());
        }
        Ok(line.trim_end().to_owned())
    }
}
