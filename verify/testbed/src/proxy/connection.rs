//! One client's connection: forwards frames both ways and closes both sides together.

mod answers;
mod requests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::history::Direction;
use super::shared::{Shared, Step};
use super::state::Fate;
use crate::frames::{Frame, FrameReader, Kind, Opening};
use crate::relay::{Closing, Route, pump};

/// Keeps a connection in the shared state while it is served.
pub(super) struct Link {
    shared: Arc<Shared>,
    upstream: Arc<[SocketAddr]>,
    id: usize,
}

impl Route for Link {
    async fn cut(&self) -> Closing {
        let mut orders = self.shared.orders();
        loop {
            if let Fate::Closes(closing) = self.fate() {
                return closing;
            }
            orders.changed().await.expect("the sender lives in what the link owns");
        }
    }

    /// A new connection in a black hole never reaches the server.
    async fn connect(&self, client: &mut TcpStream) -> io::Result<TcpStream> {
        if self.fate() == Fate::Holed {
            let mut reader = FrameReader::new(client);
            while let Ok(Some(_)) = reader.chunk().await {}
            self.end(Direction::ToServer).await;
        }
        TcpStream::connect(&*self.upstream).await
    }

    async fn forward(&self, client: &mut TcpStream, server: &mut TcpStream) {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (mut from_client, from_server) = (FrameReader::new(from_client), FrameReader::new(from_server));
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

    fn closing(&self) -> Closing {
        self.shared.state().faults.closing
    }
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, upstream: Arc<[SocketAddr]>) -> Self {
        let id = shared.state().add();
        Self { shared, upstream, id }
    }

    fn fate(&self) -> Fate {
        self.shared.state().fate(self.id)
    }

    /// Called when one side has closed. In a black hole the other side must not learn of it, so this
    /// then never resolves.
    async fn end(&self, direction: Direction) {
        if self.fate() == Fate::Holed {
            if direction == Direction::ToServer {
                self.shared.state().client_is_gone(self.id);
            }
            std::future::pending::<()>().await;
        }
    }

    async fn bytes(&self, mut reader: FrameReader<ReadHalf<'_>>, mut writer: WriteHalf<'_>) {
        let forward = async |bytes: Option<Vec<u8>>| match bytes {
            Some(bytes) if self.fate() == Fate::Flows => writer.write_all(&bytes).await,
            _ => Ok(()),
        };
        // If either side fails, both are closed.
        let _ = pump(async || reader.chunk().await, self.shared.orders(), forward).await;
        self.end(Direction::ToServer).await;
    }

    /// Forwards an uncounted frame.
    async fn send(&self, writer: &mut WriteHalf<'_>, frame: &Frame) -> Step {
        if self.fate() != Fate::Flows {
            return Step::Swallow;
        }
        match writer.write_all(frame.wire()).await {
            Ok(()) => Step::Forward,
            Err(_) => self.failed(),
        }
    }

    /// Called when a write fails: the other side has closed.
    fn failed(&self) -> Step {
        if self.fate() == Fate::Holed { Step::Swallow } else { Step::Cut }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.state().remove(self.id);
    }
}
