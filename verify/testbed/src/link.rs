//! Connections from one server of an ensemble to another, through a proxy that breaks them on demand.

use std::io;
use std::mem::take;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::frames::FrameReader;
use crate::quorum_wire::{Packets, read_introduction};
use crate::relay::{Closing, Relay, Route, listen, pump};

// A follower may connect before the elected leader listens. ZooKeeper retries a refused connection, but gives up an
// election when a connection is closed, and a proxy can only close it. So the link waits for the leader.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(20);

/// Which packets a link forwards, from all to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flow {
    Forward,
    HoldPings,
    Cut,
    BlackHole,
}

/// The TCP connections that one server opens to another: to its leader, and for elections.
///
/// In elections the server with the larger index opens the connection, so a server is cut off only when the links
/// *from and to* it are broken.
#[derive(Debug)]
pub struct Link {
    flow: watch::Sender<Flow>,
    quorum_port: u16,
    election_port: u16,
}

impl Link {
    /// Forwards nothing in either direction and closes nothing. New connections are accepted and stay silent.
    pub fn black_hole(&self) {
        self.set(Flow::BlackHole);
    }

    /// Closes the connections, and new ones at once.
    pub fn cut(&self) {
        self.set(Flow::Cut);
    }

    /// Holds back the answers to the leader's pings, which report live sessions, and forwards everything else. For the
    /// link from a follower to its leader.
    pub fn hold_pings(&self) {
        self.set(Flow::HoldPings);
    }

    /// Forwards again.
    ///
    /// Black-holed connections continue where they stopped, as after an outage of the network. Nothing is lost unless a
    /// server gave up meanwhile. Held pings are forwarded first.
    pub fn heal(&self) {
        self.set(Flow::Forward);
    }

    pub(crate) fn set(&self, flow: Flow) {
        self.flow.send_replace(flow);
    }

    pub(crate) fn quorum_port(&self) -> u16 {
        self.quorum_port
    }

    pub(crate) fn election_port(&self) -> u16 {
        self.election_port
    }
}

/// The listening sockets of a link whose proxy does not run yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    quorum: TcpListener,
    election: TcpListener,
}

/// The target of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) quorum_port: u16,
    pub(crate) election_port: u16,
    /// The election port of the link in the other direction.
    pub(crate) call_back_port: u16,
}

impl Link {
    pub(crate) fn bind() -> io::Result<(Self, Sockets)> {
        let (quorum, quorum_port) = listen()?;
        let (election, election_port) = listen()?;
        let link = Self { flow: watch::Sender::new(Flow::Forward), quorum_port, election_port };
        Ok((link, Sockets { quorum, election }))
    }
}

/// Runs all links.
pub(crate) async fn start<'a>(links: impl Iterator<Item = (&'a Link, Sockets, Target)>) -> io::Result<Relay> {
    let listeners = links.flat_map(|(link, Sockets { quorum, election }, target)| {
        [(quorum, Role::Quorum), (election, Role::Election)].map(|(listener, role)| {
            let flow = link.flow.subscribe();
            (listener, move || Wire { role, target, flow: flow.clone() })
        })
    });
    Relay::start("quorum links", listeners.collect()).await
}

#[derive(Clone, Copy)]
enum Role {
    Quorum,
    Election,
}

/// One connection.
struct Wire {
    role: Role,
    target: Target,
    flow: watch::Receiver<Flow>,
}

impl Route for Wire {
    async fn cut(&self) -> Closing {
        // The sender is dropped with the ensemble.
        let _ = self.flow.clone().wait_for(|flow| *flow == Flow::Cut).await;
        Closing::Fin
    }

    async fn connect(&self, _client: &mut TcpStream) -> io::Result<TcpStream> {
        let port = match self.role {
            Role::Quorum => self.target.quorum_port,
            Role::Election => self.target.election_port,
        };
        passing(&mut self.flow.clone()).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                Err(_) if Instant::now() < deadline => sleep(RETRY).await,
                result => return result,
            }
        }
    }

    /// Servers never close only one direction.
    async fn forward(&self, client: &mut TcpStream, server: &mut TcpStream) {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            _ = self.send_on(from_client, to_server) => (),
            _ = self.copy(from_server, to_client) => (),
        }
    }

    fn closing(&self) -> Closing {
        Closing::Fin
    }
}

impl Wire {
    async fn send_on(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        match self.role {
            Role::Quorum => self.copy_packets(from, to).await,
            Role::Election => {
                let introduction = read_introduction(&mut from, self.target.call_back_port).await?;
                passing(&mut self.flow.clone()).await?;
                to.write_all(&introduction).await?;
                self.copy(from, to).await
            }
        }
    }

    async fn copy(&self, from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut flow = self.flow.clone();
        let forward = async |bytes: Option<Vec<u8>>| {
            passing(&mut flow).await?;
            to.write_all(&bytes.unwrap_or_default()).await
        };
        self.pump(from, forward).await
    }

    /// Copies the packets from a learner to its leader. They are parsed from the first byte on, so that pings can be
    /// held at any time.
    async fn copy_packets(&self, from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut flow = self.flow.clone();
        let mut packets = Packets::default();
        let mut held = Vec::new();
        let forward = async |bytes: Option<Vec<u8>>| {
            let holds = passing(&mut flow).await? == Flow::HoldPings;
            let mut passed = if holds { Vec::new() } else { take(&mut held) };
            packets.push(&bytes.unwrap_or_default());
            while let Some(packet) = packets.pop()? {
                let side = if holds && packet.is_ping() { &mut held } else { &mut passed };
                side.extend_from_slice(&packet.0);
            }
            to.write_all(&passed).await
        };
        self.pump(from, forward).await
    }

    async fn pump(
        &self,
        from: ReadHalf<'_>,
        forward: impl AsyncFnMut(Option<Vec<u8>>) -> io::Result<()>,
    ) -> io::Result<()> {
        // A black hole reads nothing. The flow may have changed before this call.
        passing(&mut self.flow.clone()).await?;
        let mut from = FrameReader::new(from);
        pump(async || from.chunk().await, self.flow.clone(), forward).await
    }
}

/// Waits until the link forwards at least some packets.
async fn passing(flow: &mut watch::Receiver<Flow>) -> io::Result<Flow> {
    let passes = |flow: &Flow| matches!(flow, Flow::Forward | Flow::HoldPings);
    // The sender is dropped with the ensemble.
    flow.wait_for(passes).await.map(|flow| *flow).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}
