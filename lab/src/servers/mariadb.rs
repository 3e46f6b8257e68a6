//! MariaDB, with the defaults of its package, except for the size of its files.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use rustix::process::Signal;

use crate::Outcome;
use crate::servers::process::{Process, User, cpu_time, find, folder};
use crate::servers::{Disk, Server, Setup, local};

const DATA: &str = "data";

/// A MariaDB server.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    port: u16,
    version: String,
}

impl MariaDb {
    /// Starts one, with a database `lab` whose tables anyone may use.
    ///
    /// # Errors
    ///
    /// If it is not installed, or does not start.
    pub async fn start(setup: &Setup) -> Outcome<Self> {
        let program = find("mariadbd", "mariadb-server-core", &["/usr/sbin".into()])?;
        let user = user()?;
        let folder = folder()?;
        user.own(folder.path())?;
        initialize(folder.path())?;
        let port = testbed::free_port();
        let mut command = Command::new(program);
        // Without grant tables it needs no other system tables either: there is nobody else to keep out of 127.0.0.1
        // for these minutes.
        command.args(["--no-defaults", "--skip-grant-tables", "--skip-networking=0", "--skip-log-error"]);
        command.args(["--bind-address=127.0.0.1", &format!("--port={port}"), "--innodb-log-file-size=16M"]);
        for (option, file) in [("datadir", DATA), ("socket", "socket"), ("pid-file", "pid"), ("tmpdir", "")] {
            command.arg(format!("--{option}={}", folder.path().join(file).display()));
        }
        command.envs(setup.clock.iter().flat_map(|clock| clock.environment()));
        user.run(&mut command);
        let process =
            Process::start(command, folder)?.stopped_by(if setup.durable { Signal::TERM } else { Signal::KILL });
        let mut server = Self { process, port, version: String::new() };
        server.version = server.ready().await?;
        if setup.durable {
            // A server that was never stopped may have written its first files in part.
            server.process.stop();
            server.process.restart()?;
            server.ready().await?;
        }
        Ok(server)
    }

    /// Waits until it takes statements; returns its version.
    async fn ready(&mut self) -> Outcome<String> {
        let address = self.address();
        let ready = move || async move { Self::prepare(address).await }.boxed();
        let version = self.process.ready(ready).await?;
        Ok(version.split('-').next().unwrap_or_default().to_owned())
    }

    async fn prepare(address: SocketAddr) -> Outcome<String> {
        let mut connection = Conn::new(OptsBuilder::from_opts(options(address)).db_name(None::<String>)).await?;
        connection.query_drop("CREATE DATABASE IF NOT EXISTS lab").await?;
        let version: Option<String> = connection.query_first("SELECT VERSION()").await?;
        Ok(version.unwrap_or_default())
    }
}

/// How clients connect.
pub(crate) fn options(address: SocketAddr) -> Opts {
    let options = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(address.port());
    options.user(Some("root")).db_name(Some("lab")).prefer_socket(false).into()
}

#[async_trait]
impl Server for MariaDb {
    fn address(&self) -> SocketAddr {
        local(self.port)
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn requests(&self) -> Outcome<u64> {
        let mut connection = Conn::new(options(self.address())).await?;
        let row: Option<(String, u64)> = connection.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await?;
        connection.disconnect().await?;
        Ok(row.ok_or("no Questions")?.1)
    }

    fn cpu_time(&self) -> Outcome<Duration> {
        cpu_time(self.process.id())
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    async fn restart(&mut self, disk: Disk) -> Outcome {
        if disk == Disk::Lost {
            fs::remove_dir_all(self.process.folder().join(DATA))?;
            initialize(self.process.folder())?;
        }
        self.process.restart()?;
        self.ready().await.map(drop)
    }
}

/// A folder for the data of a new server, which creates the rest itself.
fn initialize(folder: &Path) -> Outcome {
    let data = folder.join(DATA);
    fs::create_dir(&data)?;
    user()?.own(&data)
}

/// It refuses to run as root.
fn user() -> Outcome<User> {
    User::ordinary(&["mysql", "nobody"])
}
