//! One client's connection: forwards frames both ways and closes both sides together.

mod answers;
mod requests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time;

use super::faults::Closing;
use super::history::Direction;
use super::shared::{Shared, Step};
use super::state::Fate;
use crate::frames::{Frame, FrameReader, Kind, Opening};

/// How long a closed connection is drained, so that what was forwarded arrives before the end.
const LINGER: Duration = Duration::from_secs(1);

/// A connection in the shared state, for as long as its task lives.
struct Link {
    shared: Arc<Shared>,
    id: usize,
}

/// Serves a client until either side closes, or the connection's fate is to be closed.
pub(super) async fn serve(shared: Arc<Shared>, mut client: TcpStream, upstream: Arc<[SocketAddr]>) {
    let id = shared.state().add();
    let mut orders = shared.orders();
    let link = Link { shared, id };
    // A new connection in a black hole never reaches the server.
    let mut server = None;
    if link.fate() == Fate::Flows {
        server = tokio::select! {
            server = TcpStream::connect(&*upstream) => server.ok(),
            _ = link.closing(&mut orders) => None,
        };
        if server.is_none() {
            return drop(client);
        }
    }
    let closing = tokio::select! {
        biased;
        closing = link.closing(&mut orders) => closing,
        () = link.forward(&mut client, server.as_mut()) => link.shared.state().faults.closing,
    };
    drop(link);
    match closing {
        Closing::Fin => drop(tokio::spawn(drain(client))),
        // Dropped without it, the socket closes in order, and the client still sees an end.
        Closing::Reset => client.set_zero_linger().unwrap_or_default(),
    }
    if let Some(server) = server {
        tokio::spawn(drain(server));
    }
}

impl Link {
    fn fate(&self) -> Fate {
        self.shared.state().fate(self.id)
    }

    /// Resolves when the connection is to be closed.
    async fn closing(&self, orders: &mut watch::Receiver<()>) -> Closing {
        loop {
            orders.mark_unchanged();
            if let Fate::Closes(closing) = self.fate() {
                return closing;
            }
            orders.changed().await.expect("the sender lives in what the link owns");
        }
    }

    /// Returns when both sides are to be closed.
    async fn forward(&self, client: &mut TcpStream, server: Option<&mut TcpStream>) {
        client.set_nodelay(true).unwrap_or_default();
        let (from_client, to_client) = client.split();
        let mut from_client = FrameReader::new(from_client);
        let Some(server) = server else {
            return self.swallow(from_client).await;
        };
        server.set_nodelay(true).unwrap_or_default();
        let (from_server, to_server) = server.split();
        let from_server = FrameReader::new(from_server);
        match from_client.opening().await {
            Ok(Opening::Frames) => tokio::select! {
                () = self.requests(from_client, to_server) => (),
                () = self.answers(from_server, to_client) => (),
            },
            Ok(Opening::Command) => {
                self.shared.aside(self.id, Direction::ToServer, Kind::Command);
                tokio::select! {
                    () = self.bytes(from_client, to_server) => (),
                    () = self.bytes(from_server, to_client) => (),
                }
            }
            Ok(Opening::Nothing) | Err(_) => self.end(Direction::ToServer).await,
        }
    }

    /// One side has closed. In a black hole the other must not learn of it, so then this never
    /// resolves.
    async fn end(&self, direction: Direction) {
        if self.fate() == Fate::Holed {
            if direction == Direction::ToServer {
                self.shared.state().client_is_gone(self.id);
            }
            std::future::pending::<()>().await;
        }
    }

    async fn swallow(&self, mut reader: FrameReader<ReadHalf<'_>>) {
        while reader.chunk().await.is_ok_and(|chunk| !chunk.is_empty()) {}
        self.end(Direction::ToServer).await;
    }

    async fn bytes(&self, mut reader: FrameReader<ReadHalf<'_>>, mut writer: WriteHalf<'_>) {
        while let Ok(chunk) = reader.chunk().await {
            let flows = self.fate() == Fate::Flows;
            if chunk.is_empty() || (flows && writer.write_all(&chunk).await.is_err()) {
                break;
            }
        }
        self.end(Direction::ToServer).await;
    }

    /// Forwards a frame that does not count.
    async fn send(&self, writer: &mut WriteHalf<'_>, frame: &Frame) -> Step {
        if self.fate() != Fate::Flows {
            return Step::Swallow;
        }
        match writer.write_all(frame.wire()).await {
            Ok(()) => Step::Forward,
            Err(_) => self.failed(),
        }
    }

    /// The other side has closed, which shows when it is written to.
    fn failed(&self) -> Step {
        if self.fate() == Fate::Holed { Step::Swallow } else { Step::Cut }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.state().remove(self.id);
    }
}

/// Closes a stream in order: a socket that is dropped with unread bytes is reset, and that may
/// destroy what was written.
async fn drain(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut sink = [0; 4 << 10];
    let reading = async {
        while stream.read(&mut sink).await? > 0 {}
        Ok(())
    };
    time::timeout(LINGER, reading).await.unwrap_or(Ok(()))
}
