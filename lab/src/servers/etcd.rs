//! etcd, one member. It elects itself faster than by default, because the shortest lease is one and a half elections.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use prost::Message;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::Outcome;
use crate::servers::process::{Process, cpu_time, find, folder, output};
use crate::servers::{Disk, Server, Setup, local};

const DATA: &str = "data";

/// An etcd server.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    port: u16,
    version: String,
}

impl Etcd {
    /// Starts one. Libfaketime does not reach programs in Go, so it has the machine's clock.
    ///
    /// # Errors
    ///
    /// If it is not installed, or does not start.
    pub async fn start(_setup: &Setup) -> Outcome<Self> {
        let program = find("etcd", "etcd-server", &[])?;
        let version = output(Command::new(&program).arg("--version"))?;
        let version = version.lines().next().and_then(|line| line.strip_prefix("etcd Version: "));
        let port = testbed::free_port();
        let [clients, peers] = [port, testbed::free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(program);
        command.args(["--data-dir", DATA, "--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        let process = Process::start(command, folder()?)?.stopped_by(Signal::KILL);
        let mut server = Self { process, port, version: version.unwrap_or("unknown").to_owned() };
        server.ready().await?;
        Ok(server)
    }

    /// A lease needs a leader.
    async fn ready(&mut self) -> Outcome {
        let address = self.address();
        let leased = move || async move { lease(&connect(address).await?, 1).await }.boxed();
        self.process.ready(leased).await.map(drop)
    }
}

#[async_trait]
impl Server for Etcd {
    fn address(&self) -> SocketAddr {
        local(self.port)
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn requests(&self) -> Outcome<u64> {
        let mut stream = TcpStream::connect(self.address()).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        // What it received on streams, too.
        let counts = text.lines().filter(|line| line.starts_with("grpc_server_msg_received_total{"));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        Ok(counts.sum::<f64>() as u64)
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
        }
        self.process.restart()?;
        self.ready().await
    }
}

/// Connects as a client does.
///
/// # Errors
///
/// If it does not answer.
pub async fn connect(address: SocketAddr) -> Outcome<Channel> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect().await?)
}

/// Grants a lease of this number of seconds.
///
/// # Errors
///
/// If it does not answer, or has no leader.
pub async fn lease(channel: &Channel, seconds: i64) -> Outcome<i64> {
    let request = LeaseGrantRequest { ttl: seconds };
    let grant: LeaseGrantResponse = call(channel, "/etcdserverpb.Lease/LeaseGrant", request).await?;
    Ok(grant.id)
}

/// Sends one request.
///
/// # Errors
///
/// If it does not answer, or refuses.
pub async fn call<Request, Answer>(channel: &Channel, method: &'static str, request: Request) -> Outcome<Answer>
where
    Request: Message + 'static,
    Answer: Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await?;
    let codec = ProstCodec::default();
    let answer = client.unary(tonic::Request::new(request), PathAndQuery::from_static(method), codec).await?;
    Ok(answer.into_inner())
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}
