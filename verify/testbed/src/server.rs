//! One ZooKeeper server, a process that tests kill, pause and restart.

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::java::{Installation, Java, Program};
use crate::ports::free_port;
use crate::snapshot;

const MAIN_CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// Longer than a server that runs takes to start or to answer, also on a machine that stalls.
const LIMIT: Duration = Duration::from_secs(300);

/// How long a server is asked for its state that may be paused, or not up yet.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
const TRIES: usize = 4;

/// An error of a server: it could not be started, or does not answer.
#[derive(Clone, Debug)]
pub struct ServerError(String);

impl ServerError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl Display for ServerError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServerError {}

/// A ZooKeeper server on a port of 127.0.0.1, with its own temporary folder.
///
/// Dropping it kills the process and removes the folder. Both also happen when the test's process is killed.
#[derive(Debug)]
pub struct Server {
    // Comes before the folder: the process must be gone when its files are removed.
    java: Option<Java>,
    folder: TempDir,
    port: u16,
    program: Program,
    installation: &'static Installation,
    is_member: bool,
}

impl Server {
    /// Starts a standalone server and waits until it takes requests.
    ///
    /// # Errors
    ///
    /// If this machine has no ZooKeeper or no Java; the message explains how to get them.
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    /// A standalone server with ticks of 500 ms, so with sessions from 1 s to 60 s.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::new()
    }

    /// `127.0.0.1:port`, for clients.
    pub fn hosts(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its transaction log and its snapshots.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data/version-2")
    }

    /// The id of the process, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.java.as_ref().map(Java::process_id)
    }

    /// Kills the process with SIGKILL and waits until it has ended. Its data remain for [`restart`](Self::restart).
    pub fn kill(&mut self) {
        self.java = None;
    }

    /// Kills the server if it runs, starts it on the same port and data, and waits until it answers.
    ///
    /// A standalone server then takes requests. A member of an ensemble is then running, but may still be joining;
    /// [`Ensemble::settled`](crate::Ensemble::settled) waits for that.
    ///
    /// # Errors
    ///
    /// If it does not answer within a minute; the message contains the end of its log.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.kill();
        self.launch()?;
        self.wait_until_up().await
    }

    /// Kills the server if it runs, deletes its data, then does as [`restart`](Self::restart). All nodes and sessions
    /// are gone, and the first transaction is number one again.
    ///
    /// # Errors
    ///
    /// As [`restart`](Self::restart), and if the data cannot be deleted.
    pub async fn restart_empty(&mut self) -> Result<(), ServerError> {
        self.kill();
        // The file next to it, the number of a member of an ensemble, must stay.
        fs::remove_dir_all(self.data())
            .map_err(|error| ServerError::new(format!("cannot delete the server's data: {error}")))?;
        self.restart().await
    }

    /// Stops the process with SIGSTOP. It keeps its connections, and does nothing once this returns.
    pub fn pause(&self) {
        if let Some(java) = &self.java {
            java.pause();
        }
    }

    /// Resumes a paused process with SIGCONT.
    pub fn resume(&self) {
        if let Some(java) = &self.java {
            java.resume();
        }
    }

    /// Sends one of ZooKeeper's four letter words, like `srvr` or `mntr`, and returns the answer.
    ///
    /// # Errors
    ///
    /// If it is not running, or does not answer within some minutes.
    pub async fn four_letter_word(&self, word: &str) -> Result<String, ServerError> {
        ask(self.port, word, LIMIT).await
    }

    /// `standalone`, `leader` or `follower`; `None` while it takes no requests or does not answer.
    pub async fn mode(&self) -> Option<String> {
        mode(self.port).await
    }

    /// The temporary folder, where `server.log` is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn launch(&mut self) -> Result<(), ServerError> {
        self.java = Some(Java::launch(self.installation, &self.program, self.folder.path())?);
        Ok(())
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        self.java.as_mut().is_none_or(Java::has_exited)
    }

    /// Whether this server, and not another that took its port, takes requests.
    pub(crate) async fn serves(&self) -> bool {
        let name = self.folder.path().file_name().expect("a temporary folder has a name").to_string_lossy();
        ask(self.port, "conf", ANSWER_LIMIT).await.is_ok_and(|answer| answer.contains(&*name))
    }

    pub(crate) fn log(&self) -> String {
        let log = fs::read(self.folder.path().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    pub(crate) fn failed_to_bind(&self) -> bool {
        self.log().contains("BindException")
    }

    pub(crate) fn start_error(&self) -> ServerError {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        ServerError::new(format!("the server on port {} did not start; the end of its log:\n{tail}", self.port))
    }

    async fn wait_until_up(&mut self) -> Result<(), ServerError> {
        let deadline = Instant::now() + LIMIT;
        while !self.is_up().await {
            if self.has_exited() || Instant::now() > deadline {
                return Err(self.start_error());
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn java(&self) -> Option<&Java> {
        self.java.as_ref()
    }

    async fn is_up(&self) -> bool {
        if self.is_member {
            return ask(self.port, "ruok", ANSWER_LIMIT).await.is_ok_and(|answer| answer == "imok");
        }
        self.serves().await
    }
}

/// The configuration of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    tick: Duration,
    config: Vec<(String, String)>,
    counters: Vec<(String, i32)>,
    last_transaction: i64,
    program: Program,
}

impl ServerBuilder {
    fn new() -> Self {
        let program = Program {
            class_path: Vec::new(),
            properties: Vec::new(),
            environment: Vec::new(),
            main_class: MAIN_CLASS.to_owned(),
        };
        let (config, counters) = (Vec::new(), Vec::new());
        Self { tick: Duration::from_millis(500), config, counters, last_transaction: 0, program }
    }

    /// Sets the length of a tick, in whole milliseconds. The shortest session is two ticks.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets a system property, as `java -Dkey=value` does.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.program.properties.push((key.into(), value.into()));
        self
    }

    /// Sets a variable of the environment of the process.
    pub fn environment(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.program.environment.push((key.into(), value.into()));
        self
    }

    /// Adds a line `key=value` to `zoo.cfg`. The last line of a key counts.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.push((key.into(), value.into()));
        self
    }

    /// Creates a persistent node at `path` before the start. Its next sequential child gets the number `next`. So a test
    /// can reach the end of the counter, which takes a real server weeks.
    pub fn counter(mut self, path: impl Into<String>, next: i32) -> Self {
        self.counters.push((path.into(), next));
        self
    }

    /// Lets the server count its transactions from the one after this. So a test can reach numbers that take a real ensemble
    /// millions of elections. Of a member of an ensemble it has no meaning.
    pub fn last_transaction(mut self, number: i64) -> Self {
        self.last_transaction = number;
        self
    }

    /// Puts a folder or jar before the server's class path, and before earlier prefixes.
    pub fn class_path(mut self, prefix: impl Into<PathBuf>) -> Self {
        self.program.class_path.insert(0, prefix.into());
        self
    }

    /// Starts this class instead of ZooKeeper's own main class. Its argument is `zoo.cfg`, in the working folder, and it
    /// must serve what that configures.
    pub fn main_class(mut self, name: impl Into<String>) -> Self {
        self.program.main_class = name.into();
        self
    }

    /// Starts the server and waits until it takes requests.
    ///
    /// # Errors
    ///
    /// As [`Server::start`], and if the server does not take requests within a minute.
    pub async fn start(self) -> Result<Server, ServerError> {
        for _ in 0..TRIES {
            let mut server = self.prepare(free_port()).await?;
            server.launch()?;
            match server.wait_until_up().await {
                Err(_) if server.failed_to_bind() => {}
                result => return result.map(|()| server),
            }
        }
        Err(ServerError::new("other processes took each free port before the server bound it"))
    }

    /// A member of an ensemble, not yet launched.
    pub(crate) async fn prepare_member(&self, port: u16, id: usize) -> Result<Server, ServerError> {
        let mut server = self.prepare(port).await?;
        server.is_member = true;
        fs::write(server.folder.path().join("data/myid"), id.to_string()).map_err(cannot_write)?;
        Ok(server)
    }

    /// Applies the settings of `other` on top.
    pub(crate) fn overlaid_by(mut self, other: &Self) -> Self {
        self.tick = other.tick;
        self.config.extend(other.config.iter().cloned());
        self.counters.extend(other.counters.iter().cloned());
        self.program.properties.extend(other.program.properties.iter().cloned());
        self.program.environment.extend(other.program.environment.iter().cloned());
        self
    }

    async fn prepare(&self, port: u16) -> Result<Server, ServerError> {
        let installation = Installation::find().await?;
        let folder = tempfile::Builder::new().prefix("testbed-server.").tempdir().map_err(cannot_write)?;
        fs::create_dir(folder.path().join("data")).map_err(cannot_write)?;
        fs::write(folder.path().join("zoo.cfg"), self.zoo_cfg(port)).map_err(cannot_write)?;
        if !self.counters.is_empty() || self.last_transaction > 0 {
            let data = folder.path().join("data");
            snapshot::write(&data, &self.counters, self.last_transaction).map_err(cannot_write)?;
        }
        Ok(Server { java: None, folder, port, program: self.program.clone(), installation, is_member: false })
    }

    fn zoo_cfg(&self, port: u16) -> String {
        let mut lines = format!(
            "dataDir=./data\nclientPortAddress=127.0.0.1\nclientPort={port}\ntickTime={}\nmaxSessionTimeout=300000\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
            self.tick.as_millis()
        );
        for (key, value) in &self.config {
            lines += &format!("{key}={value}\n");
        }
        lines
    }
}

/// Sends a four letter word to the server on `port`.
async fn ask(port: u16, word: &str, limit: Duration) -> Result<String, ServerError> {
    let exchange = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match timeout(limit, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ServerError::new(format!("{word} to port {port}: {error}"))),
        Err(_) => Err(ServerError::new(format!("{word} to port {port}: no answer within {limit:?}"))),
    }
}

/// The mode that the server on `port` reports, if it takes requests.
pub(crate) async fn mode(port: u16) -> Option<String> {
    let answer = ask(port, "srvr", ANSWER_LIMIT).await.ok()?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

fn cannot_write(error: std::io::Error) -> ServerError {
    ServerError::new(format!("cannot write the server's files: {error}"))
}
