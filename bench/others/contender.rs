//! A lock on some server, and the clients that take it.

use futures_util::future::BoxFuture;

use crate::Outcome;

/// A client with a connection and a lock of its own.
pub(crate) trait Client: Send {
    /// Acquires the lock, which nobody else wants, and releases it.
    fn cycle(&mut self) -> BoxFuture<'_, Outcome>;
}

/// A running server. Dropping it stops it.
pub(crate) trait Server: Send + Sync {
    /// A client whose lock has this number.
    fn connect(&self, number: usize) -> BoxFuture<'_, Outcome<Box<dyn Client>>>;
}

pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// Of the server.
    pub(crate) version: String,
    /// When a lock is on the disk.
    pub(crate) durability: String,
    pub(crate) not_promised: &'static str,
    pub(crate) server: Box<dyn Server>,
    pub(crate) clients: Vec<Box<dyn Client>>,
}

impl Contender {
    /// Connects until it has this number of clients.
    pub(crate) async fn connect(&mut self, clients: usize) -> Outcome {
        while self.clients.len() < clients {
            self.clients.push(self.server.connect(self.clients.len()).await?);
        }
        Ok(())
    }
}
