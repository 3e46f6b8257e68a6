//! PostgreSQL, with the defaults of its package.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio_postgres::{Client, Config, NoTls};

use crate::Outcome;
use crate::servers::process::{Process, User, cpu_time, find, folder, output};
use crate::servers::{Disk, Server, Setup, local};

/// Where Debian has a folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
const DATA: &str = "data";

/// A PostgreSQL server.
#[derive(Debug)]
pub struct PostgreSql {
    process: Process,
    port: u16,
    version: String,
}

impl PostgreSql {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// If it is not installed, or does not start.
    pub async fn start(setup: &Setup) -> Outcome<Self> {
        let program = find("postgres", "postgresql", &debian_folders())?;
        // It refuses to run as root.
        let user = User::ordinary(&["postgres", "nobody"])?;
        let folder = folder()?;
        user.own(folder.path())?;
        initialize(folder.path())?;
        let port = testbed::free_port();
        let mut command = Command::new(program);
        command.args(["-D", DATA, "-p", &port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        if setup.counts {
            command.args(["-c", "shared_preload_libraries=pg_stat_statements"]);
        }
        command.envs(setup.clock.iter().flat_map(|clock| clock.environment()));
        user.run(&mut command);
        let mut server = Self { process: Process::start(command, folder)?, port, version: String::new() };
        let client = server.ready().await?;
        server.version = client.query_one("SHOW server_version", &[]).await?.get::<_, String>(0);
        server.version = server.version.split(' ').next().unwrap_or_default().to_owned();
        Ok(server)
    }

    /// A connection of its own.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn connect(&self) -> Outcome<Client> {
        connect(self.address()).await
    }

    async fn ready(&mut self) -> Outcome<Client> {
        let address = self.address();
        self.process.ready(move || connect(address).boxed()).await
    }
}

/// Connects as a client does.
pub(crate) async fn connect(address: SocketAddr) -> Outcome<Client> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(address.port()).user("lab").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await?;
    // It ends when the client is dropped; the client reports its errors, too.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

#[async_trait]
impl Server for PostgreSql {
    fn address(&self) -> SocketAddr {
        local(self.port)
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn requests(&self) -> Outcome<u64> {
        let client = self.connect().await?;
        client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await?;
        let count = "SELECT coalesce(sum(calls), 0)::int8 FROM pg_stat_statements";
        let count: i64 = client.query_one(count, &[]).await?.get(0);
        Ok(count.unsigned_abs())
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

fn initialize(folder: &Path) -> Outcome {
    let mut prepare = Command::new(find("initdb", "postgresql", &debian_folders())?);
    prepare.args(["--pgdata", DATA, "--username", "lab", "--auth", "trust", "--no-locale", "--no-sync"]);
    let user = User::ordinary(&["postgres", "nobody"])?;
    output(user.run(&mut prepare).current_dir(folder)).map(drop)
}

/// The newest first.
fn debian_folders() -> Vec<PathBuf> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut versions: Vec<_> =
        versions.filter_map(|version| version.file_name().to_str()?.parse::<u32>().ok()).collect();
    versions.sort();
    versions.iter().rev().map(|version| format!("{VERSIONS}/{version}/bin").into()).collect()
}
