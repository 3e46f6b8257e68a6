//! A relay that changes how the client opens its session.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::support::Result;

/// The first bytes of a `ConnectRequest`: length, version, last transaction, timeout, and the session's number.
pub(crate) type Opening = [u8; 28];

/// Passes connections on, on the present runtime.
pub(crate) struct Relay {
    pub(crate) hosts: String,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
    agreed: Arc<AtomicU32>,
}

impl Relay {
    /// Lets `change` rewrite the opening of every connection but the first.
    pub(crate) async fn start(upstream: &str, change: fn(&mut Opening)) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let hosts = listener.local_addr()?.to_string();
        let (upstream, connections) = (upstream.to_owned(), Arc::<Mutex<Vec<AbortHandle>>>::default());
        let agreed = Arc::<AtomicU32>::default();
        let (accepted, last) = (connections.clone(), agreed.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
                let change = if accepted.is_empty() { |_: &mut Opening| {} } else { change };
                accepted
                    .push(tokio::spawn(pass_on(client, upstream.clone(), change, last.clone())).abort_handle());
            }
        });
        Ok(Self { hosts, connections, agreed })
    }

    /// The session timeout that the server agreed to last.
    pub(crate) fn agreed(&self) -> Duration {
        Duration::from_millis(self.agreed.load(Ordering::Acquire).into())
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(AbortHandle::abort);
    }
}

async fn pass_on(
    mut client: TcpStream,
    upstream: String,
    change: fn(&mut Opening),
    agreed: Arc<AtomicU32>,
) -> Result<()> {
    let mut server = TcpStream::connect(upstream).await?;
    let mut opening = Opening::default();
    client.read_exact(&mut opening).await?;
    change(&mut opening);
    server.write_all(&opening).await?;
    // The rest of a `ConnectRequest`: the session's password, and whether a read-only server will do.
    let mut rest = [0; 21];
    client.read_exact(&mut rest).await?;
    server.write_all(&rest).await?;
    // A `ConnectResponse` begins with its length, the version and the timeout.
    let mut response = [0; 12];
    server.read_exact(&mut response).await?;
    let [.., a, b, c, d] = response;
    agreed.store(u32::from_be_bytes([a, b, c, d]), Ordering::Release);
    client.write_all(&response).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
