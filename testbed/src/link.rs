//! What one server of an ensemble opens to another, through a proxy that breaks it on demand.

use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::quorum_wire::{Packets, read_introduction};

// A follower may call before the elected leader listens. ZooKeeper tries again when it is refused, but gives up an
// election when a connection is closed, which is all that a proxy can do.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(20);

/// What a link lets through, from all to nothing.
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

    /// Keeps back the answers to the leader's pings, which tell it which sessions are alive, while everything else
    /// passes. For the link from a follower to its leader.
    pub fn hold_pings(&self) {
        self.set(Flow::HoldPings);
    }

    /// Forwards again.
    ///
    /// Connections that were black-holed go on where they stopped, as after a break of the network; nothing is lost
    /// unless a server gave up meanwhile. Held pings are sent, before what follows them.
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
    quorum: StdListener,
    election: StdListener,
}

/// Where a link leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) quorum_port: u16,
    pub(crate) election_port: u16,
    /// The election port of the link in the other direction.
    pub(crate) call_back_port: u16,
}

impl Link {
    pub(crate) fn bind() -> io::Result<(Self, Sockets)> {
        let bind = || {
            let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            let port = listener.local_addr()?.port();
            Ok::<_, io::Error>((listener, port))
        };
        let (quorum, quorum_port) = bind()?;
        let (election, election_port) = bind()?;
        let link = Self { flow: watch::Sender::new(Flow::Forward), quorum_port, election_port };
        Ok((link, Sockets { quorum, election }))
    }
}

/// The thread on which the proxies run, so that they go on when a test's runtime is busy.
#[derive(Debug)]
pub(crate) struct Proxies {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxies {
    pub(crate) fn start<'a>(links: impl Iterator<Item = (&'a Link, Sockets, Target)>) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        {
            let _context = runtime.enter();
            for (link, sockets, target) in links {
                let quorum = TcpListener::from_std(sockets.quorum)?;
                runtime.spawn(accept(quorum, Role::Quorum, target, link.flow.subscribe()));
                let election = TcpListener::from_std(sockets.election)?;
                runtime.spawn(accept(election, Role::Election, target, link.flow.subscribe()));
            }
        }
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("quorum links".to_owned()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy)]
enum Role {
    Quorum,
    Election,
}

async fn accept(listener: TcpListener, role: Role, target: Target, flow: watch::Receiver<Flow>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(carry(stream, role, target, flow.clone()))),
            Err(_) => sleep(RETRY).await,
        }
    }
}

/// Carries one connection until a side ends it or the link is cut. Servers never close only one direction.
async fn carry(stream: TcpStream, role: Role, target: Target, flow: watch::Receiver<Flow>) {
    let mut cut = flow.clone();
    tokio::select! {
        _ = cut.wait_for(|flow| *flow == Flow::Cut) => {}
        _ = forward(stream, role, target, flow) => {}
    }
}

async fn forward(
    stream: TcpStream,
    role: Role,
    target: Target,
    mut flow: watch::Receiver<Flow>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let port = match role {
        Role::Quorum => target.quorum_port,
        Role::Election => target.election_port,
    };
    passing(&mut flow).await?;
    let (down, up) = connect(port).await?.into_split();
    let (from, to) = stream.into_split();
    tokio::select! {
        result = send_on(from, up, role, target, flow.clone()) => result,
        result = copy(down, to, flow) => result,
    }
}

async fn connect(port: u16) -> io::Result<TcpStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            Err(_) if Instant::now() < deadline => sleep(RETRY).await,
            result => {
                let stream = result?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
        }
    }
}

async fn send_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    role: Role,
    target: Target,
    mut flow: watch::Receiver<Flow>,
) -> io::Result<()> {
    match role {
        Role::Quorum => copy_packets(from, to, flow).await,
        Role::Election => {
            let introduction = read_introduction(&mut from, target.call_back_port).await?;
            passing(&mut flow).await?;
            to.write_all(&introduction).await?;
            copy(from, to, flow).await
        }
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut flow: watch::Receiver<Flow>) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        passing(&mut flow).await?;
        let length = tokio::select! {
            length = from.read(&mut buffer) => length?,
            _ = flow.changed() => continue,
        };
        if length == 0 {
            return Ok(());
        }
        passing(&mut flow).await?;
        to.write_all(&buffer[..length]).await?;
    }
}

/// What a learner sends to its leader. It is understood from its first byte on, so that pings can be held any time.
async fn copy_packets(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flow: watch::Receiver<Flow>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut packets = Packets::default();
    let mut held = Vec::new();
    loop {
        if passing(&mut flow).await? == Flow::Forward {
            to.write_all(&held).await?;
            held.clear();
        }
        let length = tokio::select! {
            length = from.read(&mut buffer) => length?,
            _ = flow.changed() => continue,
        };
        if length == 0 {
            return Ok(());
        }
        packets.push(&buffer[..length]);
        let holds = passing(&mut flow).await? == Flow::HoldPings;
        let mut passed = if holds { Vec::new() } else { std::mem::take(&mut held) };
        while let Some(packet) = packets.pop()? {
            let side = if holds && packet.is_ping() { &mut held } else { &mut passed };
            side.extend_from_slice(&packet.0);
        }
        to.write_all(&passed).await?;
    }
}

/// Waits until the link forwards at least something.
async fn passing(flow: &mut watch::Receiver<Flow>) -> io::Result<Flow> {
    let passes = |flow: &Flow| matches!(flow, Flow::Forward | Flow::HoldPings);
    // The sender is gone when the ensemble is.
    flow.wait_for(passes).await.map(|flow| *flow).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}
