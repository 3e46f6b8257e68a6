//! The loop of every proxy: accepts connections, connects each to its target, forwards both ways, and closes both sides.

#[cfg(not(virtual_time))]
mod thread;
#[cfg(virtual_time)]
mod world;

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, timeout};

#[cfg(not(virtual_time))]
pub(crate) use self::thread::{Relay, listen, listen_apart};
#[cfg(virtual_time)]
pub(crate) use self::world::{Relay, listen_apart};

/// How long a closed connection is drained, so that forwarded bytes arrive before the end.
const LINGER: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(10);

/// How a connection of a client is closed. The server's side always gets the forwarded bytes, then a FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closing {
    /// In order: the client reads the forwarded bytes, then the end of the stream.
    Fin,
    /// By a reset: a client that is writing, or has not read yet, may see an error before the forwarded bytes.
    Reset,
}

/// A proxy's handling of one connection.
pub(crate) trait Route: 'static {
    /// Resolves when the connection must be closed.
    async fn cut(&self) -> Closing;

    /// Connects to the target.
    async fn connect(&self, client: &mut TcpStream) -> io::Result<TcpStream>;

    /// Forwards in both directions until one of them ends.
    async fn forward(&self, client: &mut TcpStream, server: &mut TcpStream);

    /// How the connection is closed when it ends without a cut.
    fn closing(&self) -> Closing;
}

async fn accept<R: Route>(listener: TcpListener, route: impl Fn() -> R) {
    // Dropping this set ends all served connections.
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => drop(served.spawn_local(serve(client, route()))),
                // Probably too many files are open, which may pass soon.
                Err(_) => sleep(RETRY).await,
            },
            Some(_) = served.join_next() => {}
        }
    }
}

async fn serve(mut client: TcpStream, route: impl Route) {
    let mut server = None;
    let closing = tokio::select! {
        biased;
        closing = route.cut() => closing,
        () = async {
            if let Ok(onward) = route.connect(&mut client).await {
                let server = server.insert(onward);
                client.set_nodelay(true).unwrap_or_default();
                server.set_nodelay(true).unwrap_or_default();
                route.forward(&mut client, server).await;
            }
        } => route.closing(),
    };
    drop(route);
    match closing {
        Closing::Fin => drop(spawn_local(drain(client))),
        // Without a linger of zero the socket closes in order, and the client still sees the end.
        Closing::Reset => client.set_zero_linger().unwrap_or_default(),
    }
    if let Some(server) = server {
        spawn_local(drain(server));
    }
}

/// Closes a stream in order. Dropping a socket with unread bytes resets it, which may destroy written bytes.
async fn drain(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut sink = [0; 4 << 10];
    let reading = async {
        while stream.read(&mut sink).await? > 0 {}
        Ok(())
    };
    timeout(LINGER, reading).await.unwrap_or(Ok(()))
}

/// Passes everything that `read` returns to `hook`, until the stream ends or fails, or the hook fails. The hook is also
/// called, with `None`, after every change of `orders`. `read` must be cancel safe.
pub(crate) async fn pump<T, O>(
    mut read: impl AsyncFnMut() -> io::Result<Option<T>>,
    mut orders: watch::Receiver<O>,
    mut hook: impl AsyncFnMut(Option<T>) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let unit = tokio::select! {
            unit = read() => match unit {
                Ok(Some(unit)) => Some(unit),
                Ok(None) | Err(_) => return Ok(()),
            },
            _ = orders.changed() => None,
        };
        hook(unit).await?;
    }
}
