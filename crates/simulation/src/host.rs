//! Where servers run: what listens for them, and what runs their tasks.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::sleep;

const RETRY: Duration = Duration::from_millis(10);

/// A stream between a client and a server.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Where servers run: it needs a tokio runtime with time, whose clock is that of the caller. Dropping it ends their tasks and
/// closes their ports. [`OwnThread`] has real sockets; a simulated network has its own.
pub trait Host: fmt::Debug + Send + Sync + 'static {
    /// Listens at a port of 127.0.0.1, where 0 is a free one, and sends each new connection to `accepted`. It may stop
    /// when the receiver is dropped.
    ///
    /// # Errors
    ///
    /// If there is no such port.
    fn listen(&self, port: u16, accepted: mpsc::UnboundedSender<Box<dyn Connection>>) -> io::Result<SocketAddr>;

    /// Refuses new connections to these addresses, or no longer: their servers are killed. A host that does nothing accepts them,
    /// and the servers close them at once.
    fn refuse(&self, _addresses: &[SocketAddr], _refuses: bool) {}

    /// Runs a task until it ends.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);
}

/// A thread with a runtime, and ports of the operating system. A test that blocks the runtime of its clients does not block it.
#[derive(Debug)]
pub struct OwnThread {
    /// There is one until it is dropped.
    runtime: Option<Runtime>,
}

impl OwnThread {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If there can be none.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("there is one until it is dropped")
    }
}

impl Host for OwnThread {
    fn listen(&self, port: u16, accepted: mpsc::UnboundedSender<Box<dyn Connection>>) -> io::Result<SocketAddr> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let _context = self.runtime().enter();
        let listener = TcpListener::from_std(listener)?;
        self.runtime().spawn(async move {
            while !accepted.is_closed() {
                let Ok((stream, _)) = listener.accept().await else {
                    // Probably the process has too many files open, which may pass soon.
                    sleep(RETRY).await;
                    continue;
                };
                // Or small answers wait for the acknowledgement of earlier ones. It fails when the client is gone.
                _ = stream.set_nodelay(true);
                _ = accepted.send(Box::new(stream));
            }
        });
        Ok(address)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.runtime().spawn(task);
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It may be dropped by a task, which may not wait for threads.
            runtime.shutdown_background();
        }
    }
}
