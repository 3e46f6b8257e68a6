//! One ZooKeeper server in virtual time: a simulated one, with the methods of [`Server`](crate::Server) that scenes use.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use zookeeper_simulation::Config;

/// An error of a server.
#[derive(Clone, Debug)]
pub struct ServerError(String);

impl Display for ServerError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServerError {}

impl From<io::Error> for ServerError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// A simulated server.
#[derive(Debug)]
pub struct Server(zookeeper_simulation::Server);

impl Server {
    pub async fn start() -> Result<Self, ServerError> {
        Self::builder().start().await
    }

    pub fn builder() -> ServerBuilder {
        ServerBuilder { config: Config::default(), counters: Vec::new() }
    }

    pub fn hosts(&self) -> String {
        self.0.address()
    }

    pub fn port(&self) -> u16 {
        self.0.addresses()[0].port()
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }

    pub async fn restart(&mut self) -> Result<(), ServerError> {
        self.0.kill();
        self.0.restart();
        Ok(())
    }

    pub async fn restart_empty(&mut self) -> Result<(), ServerError> {
        self.0.kill();
        self.0.forget();
        self.0.restart();
        Ok(())
    }

    pub fn pause(&self) {
        self.0.pause();
    }

    pub fn resume(&self) {
        self.0.resume();
    }

    pub async fn four_letter_word(&self, word: &str) -> Result<String, ServerError> {
        let mut stream = TcpStream::connect(self.hosts()).await?;
        stream.write_all(word.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

/// The configuration of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    config: Config,
    counters: Vec<(String, i32)>,
}

impl ServerBuilder {
    pub fn tick(mut self, tick: Duration) -> Self {
        self.config.tick = tick;
        self.config.timeouts.0 = 2 * tick;
        self
    }

    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        match key.as_str() {
            "znode.container.checkIntervalMs" => {
                self.config.container_check = Duration::from_millis(value.parse().expect("milliseconds"));
            }
            // Nothing is written to disks.
            "forceSync" | "zookeeper.forceSync" => {}
            _ => panic!("{key} needs a real server, so this scene cannot be in virtual time"),
        }
        self
    }

    pub fn config(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.property(key, value)
    }

    pub fn counter(mut self, path: impl Into<String>, next: i32) -> Self {
        self.counters.push((path.into(), next));
        self
    }

    pub async fn start(self) -> Result<Server, ServerError> {
        let server = zookeeper_simulation::Server::start_with(self.config, &[0])?;
        for (path, next) in self.counters {
            server.make_path(&path);
            server.set_counter(&path, next);
        }
        Ok(Server(server))
    }
}

/// A port that nobody listens at.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind_now((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("it has one").port()
}
