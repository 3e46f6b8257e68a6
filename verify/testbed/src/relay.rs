//! The loop of every proxy: accepts connections, connects each to its target, forwards both ways, and closes both sides.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

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

fn listen_at(address: Ipv4Addr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((address, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A listener on a free port of 127.0.0.1, and the port.
pub(crate) fn listen() -> io::Result<(TcpListener, u16)> {
    let (listener, address) = listen_at(Ipv4Addr::LOCALHOST)?;
    Ok((listener, address.port()))
}

/// A listener on a free port of an address that no other listener of this process has had: a client that is not closed yet may
/// try to reconnect to an earlier one. Where the system has only one loopback address, that of [`listen`].
pub(crate) fn listen_apart() -> io::Result<(TcpListener, SocketAddr)> {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    // Seldom that of another process that runs at the same time, and never 127.0.0.1.
    let of_process = (std::process::id() % 254 + 1) as u8;
    let apart = Ipv4Addr::new(127, of_process, high, low);
    listen_at(apart).or_else(|_| listen_at(Ipv4Addr::LOCALHOST))
}

/// A thread that relays connections, also while the runtime of a test is busy, blocked or gone. Dropping it closes all
/// connections.
#[derive(Debug)]
pub(crate) struct Relay {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Accepts the connections of all listeners, each with its own route.
    pub(crate) async fn start<R: Route>(
        name: &str,
        listeners: Vec<(TcpListener, impl Fn() -> R + Send + 'static)>,
    ) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (report, started) = oneshot::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || match listening(listeners) {
            Ok(runtime) => {
                report.send(Ok(())).unwrap_or_default();
                let _ = runtime.block_on(stopped);
            }
            Err(error) => report.send(Err(error)).unwrap_or_default(),
        })?;
        let relay = Self { stop: Some(stop), thread: Some(thread) };
        started.await.map_err(|_| io::Error::other("the relay's thread ended before it listened"))??;
        Ok(relay)
    }
}

/// A runtime of one thread, because the compiler cannot prove that the futures of async closures are `Send`.
fn listening<R: Route>(listeners: Vec<(TcpListener, impl Fn() -> R + 'static)>) -> io::Result<LocalRuntime> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    for (listener, route) in listeners {
        let _context = runtime.enter();
        runtime.spawn_local(accept(tokio::net::TcpListener::from_std(listener)?, route));
    }
    Ok(runtime)
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A hook may own the last handle, and drop it on the relay's own thread.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic of the thread must not become an abort here; its test has already failed.
            let _ = thread.join();
        }
    }
}

async fn accept<R: Route>(listener: tokio::net::TcpListener, route: impl Fn() -> R) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(spawn_local(serve(client, route()))),
            // Probably too many files are open, which may pass soon.
            Err(_) => sleep(RETRY).await,
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
