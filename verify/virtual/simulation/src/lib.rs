//! The simulated servers, on the network of a world.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use world::net::TcpListener;

pub use simulation::{Code, Config, Connection, Host, Link};

/// An operation, and the code of its answer, or `None` where it succeeded.
pub type Answered = (&'static str, Option<Code>);

thread_local! {
    /// The answers of servers of this world that were dropped.
    static ANSWERED: RefCell<BTreeSet<Answered>> = const { RefCell::new(BTreeSet::new()) };
}

/// Takes the answers of servers of this world that were dropped.
pub fn take_answered() -> BTreeSet<Answered> {
    ANSWERED.take()
}

/// Servers on the runtime of the world.
#[derive(Debug)]
pub struct Server(simulation::Server);

impl Server {
    pub fn start() -> io::Result<Self> {
        Self::start_with(Config::default(), &[0])
    }

    pub fn start_with(mut config: Config, ports: &[u16]) -> io::Result<Self> {
        // Sessions end at multiples of a tick, so each world starts at a different point of a tick.
        let tick = u64::try_from(config.tick.as_millis()).unwrap_or(u64::MAX).max(1);
        config.phase = Duration::from_millis(fastrand::u64(..tick));
        // Two servers that start at the same time have different sessions.
        config.last_session += i64::from(fastrand::u16(..)) << 32;
        simulation::Server::start_on(World::default(), config, ports).map(Self)
    }
}

impl Deref for Server {
    type Target = simulation::Server;

    fn deref(&self) -> &simulation::Server {
        &self.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails at the end of the thread, when nobody asks any more.
        _ = ANSWERED.try_with(|all| all.borrow_mut().extend(self.0.answered()));
    }
}

/// The network and the runtime of the world of this thread.
#[derive(Debug, Default)]
struct World {
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Host for World {
    fn listen(&self, port: u16, accepted: UnboundedSender<Box<dyn Connection>>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind_now((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        self.spawn(Box::pin(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if accepted.send(Box::new(stream)).is_err() {
                    return;
                }
            }
        }));
        Ok(address)
    }

    fn refuse(&self, addresses: &[SocketAddr], refuses: bool) {
        addresses.iter().for_each(|address| world::net::refuse(address, refuses));
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let task = tokio::spawn(task).abort_handle();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).iter().for_each(AbortHandle::abort);
    }
}
