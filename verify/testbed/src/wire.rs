//! A TCP proxy that knows no protocol: it forwards, holds or cuts what passes, and can be pointed at another target.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use crate::relay::{Closing, Relay, Route, listen, pump};

const CHUNK: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Forward,
    Hold,
    Cut,
}

/// A proxy before one server of any kind. Dropping it closes its connections.
#[derive(Debug)]
pub struct Wire {
    flow: watch::Sender<Flow>,
    target: watch::Sender<SocketAddr>,
    port: u16,
    _relay: Relay,
}

impl Wire {
    /// Listens on a free port of 127.0.0.1, and forwards to `target`.
    ///
    /// # Errors
    ///
    /// If no port or no thread can be had.
    pub async fn to(target: SocketAddr) -> io::Result<Self> {
        let (listener, port) = listen()?;
        let (flow, target) = (watch::Sender::new(Flow::Forward), watch::Sender::new(target));
        let (flows, targets) = (flow.subscribe(), target.subscribe());
        let route = move || Passage { flow: flows.clone(), target: targets.clone() };
        let relay = Relay::start("wire", vec![(listener, route)]).await?;
        Ok(Self { flow, target, port, _relay: relay })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Forwards nothing in either direction and closes nothing, as a network that drops packets.
    pub fn hold(&self) {
        self.flow.send_replace(Flow::Hold);
    }

    /// Closes all connections, and new ones at once. Bytes that were held are lost.
    pub fn cut(&self) {
        self.flow.send_replace(Flow::Cut);
    }

    /// Forwards again, what was held first.
    pub fn heal(&self) {
        self.flow.send_replace(Flow::Forward);
    }

    /// Connects new connections to another target.
    pub fn point_to(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }
}

/// One connection.
struct Passage {
    flow: watch::Receiver<Flow>,
    target: watch::Receiver<SocketAddr>,
}

impl Route for Passage {
    async fn cut(&self) -> Closing {
        // Without its wire nothing cuts it but the end of the relay.
        let _ = self.flow.clone().wait_for(|flow| *flow == Flow::Cut).await;
        Closing::Reset
    }

    async fn connect(&self, _client: &mut TcpStream) -> io::Result<TcpStream> {
        forwards(&mut self.flow.clone()).await?;
        let target = *self.target.borrow();
        TcpStream::connect(target).await
    }

    async fn forward(&self, client: &mut TcpStream, server: &mut TcpStream) {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            _ = self.copy(from_client, to_server) => (),
            _ = self.copy(from_server, to_client) => (),
        }
    }

    fn closing(&self) -> Closing {
        Closing::Fin
    }
}

impl Passage {
    async fn copy(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut flow = self.flow.clone();
        forwards(&mut flow).await?;
        let read = async || {
            let mut chunk = vec![0; CHUNK];
            let length = from.read(&mut chunk).await?;
            chunk.truncate(length);
            Ok((length > 0).then_some(chunk))
        };
        let forward = async |bytes: Option<Vec<u8>>| {
            forwards(&mut flow).await?;
            to.write_all(&bytes.unwrap_or_default()).await
        };
        pump(read, self.flow.clone(), forward).await
    }
}

/// Waits until the wire forwards.
async fn forwards(flow: &mut watch::Receiver<Flow>) -> io::Result<()> {
    let forwards = flow.wait_for(|flow| *flow == Flow::Forward).await;
    forwards.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}
