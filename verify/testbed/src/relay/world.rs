//! Relays on the runtime of a test in virtual time.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;
use tokio::task::{AbortHandle, spawn_local};

use super::{Route, accept};

/// A listener on a port that no other listener of this world has had.
pub(crate) fn listen_apart() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind_now((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Tasks that relay connections. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Relay(Vec<AbortHandle>);

impl Relay {
    /// Accepts the connections of all listeners, each with its own route.
    pub(crate) async fn start<R: Route>(
        _name: &str,
        listeners: Vec<(TcpListener, impl Fn() -> R + 'static)>,
    ) -> io::Result<Self> {
        let accepts =
            listeners.into_iter().map(|(listener, route)| spawn_local(accept(listener, route)).abort_handle());
        Ok(Self(accepts.collect()))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}
