//! Relays on a thread of their own, and real sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::{self, JoinHandle};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::oneshot;

use super::{Route, accept};

fn listen_at(address: Ipv4Addr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind((address, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A listener on a free port of 127.0.0.1, and the port.
pub(crate) fn listen() -> io::Result<(std::net::TcpListener, u16)> {
    let (listener, address) = listen_at(Ipv4Addr::LOCALHOST)?;
    Ok((listener, address.port()))
}

/// A listener on a free port of an address that no other listener of this process has had: a client that is not closed yet may
/// try to reconnect to an earlier one. Where the system has only one loopback address, that of [`listen`].
pub(crate) fn listen_apart() -> io::Result<(std::net::TcpListener, SocketAddr)> {
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
        listeners: Vec<(std::net::TcpListener, impl Fn() -> R + Send + 'static)>,
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
fn listening<R: Route>(
    listeners: Vec<(std::net::TcpListener, impl Fn() -> R + 'static)>,
) -> io::Result<LocalRuntime> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    for (listener, route) in listeners {
        let _context = runtime.enter();
        runtime.spawn_local(accept(TcpListener::from_std(listener)?, route));
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
