//! A network of one computer in memory: listeners at ports, and streams that take a few milliseconds.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use libc::{c_int, sockaddr, socklen_t};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::trace::note;

/// How long a segment is on its way, in milliseconds.
const DELAY: std::ops::RangeInclusive<u64> = 1..=3;
/// The first port that is given to a listener that names none.
const FIRST_PORT: u16 = 20_000;

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

struct Network {
    listeners: HashMap<SocketAddr, Arc<Mutex<Backlog>>>,
    refused: HashSet<SocketAddr>,
    next_port: u16,
    pipes: u64,
    random: fastrand::Rng,
}

pub(crate) struct Here;

impl Here {
    pub(crate) fn enter(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed.rotate_left(32));
        NETWORK.set(Some(Network {
            listeners: HashMap::new(),
            refused: HashSet::new(),
            next_port: FIRST_PORT,
            pipes: 0,
            random,
        }));
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // Streams that wait to be accepted end when there is no network any more.
        drop(NETWORK.take());
    }
}

fn network<T>(use_it: impl FnOnce(&mut Network) -> T) -> T {
    NETWORK.with_borrow_mut(|network| use_it(network.as_mut().expect("this thread is in no virtual world")))
}

fn delay() -> Duration {
    let millis = NETWORK.with_borrow_mut(|network| network.as_mut().map(|network| network.random.u64(DELAY)));
    Duration::from_millis(millis.unwrap_or(1))
}

/// A chance of one half.
fn coin() -> bool {
    NETWORK.with_borrow_mut(|network| network.as_mut().is_some_and(|network| network.random.bool()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
enum Segment {
    Data(Vec<u8>),
    Fin,
    Reset,
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Pipe {
    id: u64,
    segments: VecDeque<(Instant, Segment)>,
    reader: Option<Waker>,
    sleep: Option<Pin<Box<Sleep>>>,
    is_shut: bool,
    /// The end that reads is closed.
    is_unread: bool,
}

impl Pipe {
    fn new() -> Arc<Mutex<Self>> {
        let id = network(|network| {
            network.pipes += 1;
            network.pipes
        });
        Arc::new(Mutex::new(Self { id, ..Self::default() }))
    }

    fn push(&mut self, segment: Segment) {
        match &segment {
            Segment::Data(bytes) => note(b'D', self.id, bytes),
            Segment::Fin => note(b'F', self.id, &[]),
            Segment::Reset => note(b'R', self.id, &[]),
        }
        let mut due = Instant::now() + delay();
        if let Some((last, _)) = self.segments.back() {
            due = due.max(*last);
        }
        self.segments.push_back((due, segment));
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn has_reset(&self) -> bool {
        let now = Instant::now();
        self.segments.iter().any(|(due, segment)| *due <= now && matches!(segment, Segment::Reset))
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        loop {
            let Some((due, segment)) = self.segments.front_mut() else {
                self.reader = Some(cx.waker().clone());
                return Poll::Pending;
            };
            if *due > Instant::now() {
                let due = *due;
                let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
                if sleep.deadline() != due {
                    sleep.as_mut().reset(due);
                }
                ready!(sleep.as_mut().poll(cx));
                continue;
            }
            return Poll::Ready(match segment {
                Segment::Data(bytes) => {
                    let length = bytes.len().min(room);
                    take(&bytes[..length]);
                    bytes.drain(..length);
                    if bytes.is_empty() {
                        self.segments.pop_front();
                    }
                    Ok(length)
                }
                Segment::Fin => Ok(0),
                Segment::Reset => Err(ErrorKind::ConnectionReset.into()),
            });
        }
    }
}

/// Both ends of a connection have one.
#[derive(Debug)]
pub struct TcpStream {
    from: Arc<Mutex<Pipe>>,
    to: Arc<Mutex<Pipe>>,
    local: SocketAddr,
    peer: SocketAddr,
    resets: AtomicBool,
}

impl TcpStream {
    /// # Errors
    ///
    /// If nothing listens there.
    pub async fn connect(to: impl Addresses) -> io::Result<Self> {
        let mut failed = ErrorKind::AddrNotAvailable.into();
        let addresses = to.addresses();
        if addresses.is_err() {
            // It takes some time to find out that a name does not resolve.
            sleep(delay()).await;
        }
        for address in addresses? {
            match Self::connect_to(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn connect_to(peer: SocketAddr) -> io::Result<Self> {
        note(b'C', peer.port().into(), &[]);
        sleep(delay()).await;
        let backlog = network(|network| network.backlog(&peer));
        let Some(backlog) = backlog else {
            sleep(delay()).await;
            return Err(ErrorKind::ConnectionRefused.into());
        };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, network(Network::port)));
        let (there, here) = (Pipe::new(), Pipe::new());
        let stream = Self { from: here.clone(), to: there.clone(), local, peer, resets: false.into() };
        let other = Self { from: there, to: here, local: peer, peer: local, resets: false.into() };
        {
            let mut backlog = lock(&backlog);
            backlog.streams.push_back(other);
            backlog.acceptor.take().into_iter().for_each(Waker::wake);
        }
        sleep(delay()).await;
        Ok(stream)
    }

    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// Lets the end of it be a reset.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.resets.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }

    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(self), WriteHalf(self))
    }

    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        (OwnedReadHalf(stream.clone()), OwnedWriteHalf(stream))
    }

    fn read(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        lock(&self.from).poll_read(cx, room, |bytes| buffer.put_slice(bytes)).map_ok(drop)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut to = lock(&self.to);
        if to.is_shut || lock(&self.from).has_reset() {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let length = bytes.len();
        if to.is_unread {
            // Data for an end that is closed is answered with a reset.
            lock(&self.from).push(Segment::Reset);
        } else if length > 0 {
            to.push(Segment::Data(bytes));
        }
        Poll::Ready(Ok(length))
    }

    fn shut(&self) -> Poll<io::Result<()>> {
        let mut to = lock(&self.to);
        if !std::mem::replace(&mut to.is_shut, true) {
            to.push(Segment::Fin);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let mut from = lock(&self.from);
        from.is_unread = true;
        // A socket that is closed before all its data are read resets the stream, also for data still on their way.
        let is_unread = from.segments.iter().any(|(_, segment)| matches!(segment, Segment::Data(_)));
        from.segments.clear();
        drop(from);
        let mut to = lock(&self.to);
        if to.is_unread {
            return;
        }
        if self.resets.load(Ordering::Relaxed) || is_unread {
            // A reset may discard data that the other end has not read yet.
            if coin() {
                to.segments.retain(|(_, segment)| !matches!(segment, Segment::Data(_)));
            }
            to.push(Segment::Reset);
        } else if !to.is_shut {
            to.push(Segment::Fin);
        }
        to.is_shut = true;
    }
}

#[derive(Debug)]
pub struct ReadHalf<'a>(&'a TcpStream);
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a TcpStream);
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);
#[derive(Debug)]
pub struct OwnedWriteHalf(Arc<TcpStream>);

macro_rules! halves {
    ($($half:ty, $this:ident => $stream:expr;)*) => {$(
        impl AsyncRead for $half {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                $stream.read(cx, buffer)
            }
        }

        impl AsyncWrite for $half {
            fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                let $this = self.get_mut();
                $stream.write(&[IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
                parts: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $this = self.get_mut();
                $stream.write(parts)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $this = self.get_mut();
                $stream.shut()
            }
        }
    )*};
}

halves! {
    TcpStream, this => this;
    ReadHalf<'_>, this => this.0;
    WriteHalf<'_>, this => this.0;
    OwnedReadHalf, this => this.0;
    OwnedWriteHalf, this => this.0;
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        let _ = self.0.shut();
    }
}

impl futures_io::AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = buffer.len();
        lock(&self.from).poll_read(cx, room, |bytes| buffer[..bytes.len()].copy_from_slice(bytes))
    }
}

impl futures_io::AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(&[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(parts)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shut()
    }
}

#[derive(Debug, Default)]
struct Backlog {
    streams: VecDeque<TcpStream>,
    acceptor: Option<Waker>,
}

#[derive(Debug)]
pub struct TcpListener {
    address: SocketAddr,
    backlog: Arc<Mutex<Backlog>>,
}

impl Network {
    fn backlog(&self, address: &SocketAddr) -> Option<Arc<Mutex<Backlog>>> {
        self.listeners.get(address).filter(|_| !self.refused.contains(address)).cloned()
    }

    fn port(&mut self) -> u16 {
        loop {
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            if !self.listeners.keys().any(|address| address.port() == self.next_port) {
                return self.next_port;
            }
        }
    }
}

/// Refuses connections to an address, although it is listened to, or no longer.
pub fn refuse(address: &SocketAddr, refuses: bool) {
    NETWORK.with_borrow_mut(|network| {
        let Some(network) = network else { return };
        if refuses {
            network.refused.insert(*address)
        } else {
            network.refused.remove(address)
        };
    });
}

impl TcpListener {
    /// # Errors
    ///
    /// If the port is taken.
    pub async fn bind(at: impl Addresses) -> io::Result<Self> {
        Self::bind_now(at)
    }

    /// # Errors
    ///
    /// If the port is taken.
    pub fn bind_now(at: impl Addresses) -> io::Result<Self> {
        let mut address = at.addresses()?.into_iter().next().ok_or(ErrorKind::AddrNotAvailable)?;
        network(|network| {
            if address.port() == 0 {
                address.set_port(network.port());
            }
            let backlog = Arc::default();
            if network.listeners.contains_key(&address) {
                return Err(ErrorKind::AddrInUse.into());
            }
            network.listeners.insert(address, Arc::clone(&backlog));
            Ok(Self { address, backlog })
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        poll_fn(|cx| {
            let mut backlog = lock(&self.backlog);
            let Some(stream) = backlog.streams.pop_front() else {
                backlog.acceptor = Some(cx.waker().clone());
                return Poll::Pending;
            };
            let peer = stream.peer;
            Poll::Ready(Ok((stream, peer)))
        })
        .await
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        NETWORK.with_borrow_mut(|network| network.as_mut().map(|network| network.listeners.remove(&self.address)));
        let waiting = std::mem::take(&mut lock(&self.backlog).streams);
        waiting.iter().for_each(|stream| drop(stream.set_zero_linger()));
    }
}

/// The addresses that an argument of `connect`, `bind` or `lookup_host` names.
pub trait Addresses {
    /// # Errors
    ///
    /// If it is no address.
    fn addresses(self) -> io::Result<Vec<SocketAddr>>;
}

impl Addresses for SocketAddr {
    fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![self])
    }
}

impl Addresses for &[SocketAddr] {
    fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.to_vec())
    }
}

impl Addresses for (Ipv4Addr, u16) {
    fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![self.into()])
    }
}

impl Addresses for (&str, u16) {
    fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        let host = match self.0 {
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            host => host.parse::<IpAddr>().map_err(|_| io::Error::other(format!("no such host: {host}")))?,
        };
        Ok(vec![SocketAddr::new(host, self.1)])
    }
}

impl Addresses for &str {
    fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = self.rsplit_once(':').ok_or(ErrorKind::InvalidInput)?;
        (host, port.parse().map_err(|_| ErrorKind::InvalidInput)?).addresses()
    }
}

impl Addresses for String {
    fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        self.as_str().addresses()
    }
}

impl Addresses for &String {
    fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        self.as_str().addresses()
    }
}

/// # Errors
///
/// If it is no address.
pub async fn lookup_host(host: impl Addresses) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    host.addresses().map(Vec::into_iter)
}

/// In place of that of the C library: who knocks at a port from within a world is answered by its listener, in no time.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller gives a valid pointer, and an address of this family is of this type.
    let to = unsafe {
        ((*address).sa_family == libc::AF_INET as u16).then(|| {
            let to = &*address.cast::<libc::sockaddr_in>();
            SocketAddr::from((Ipv4Addr::from(u32::from_be(to.sin_addr.s_addr)), u16::from_be(to.sin_port)))
        })
    };
    let listens = NETWORK
        .with_borrow(|network| network.as_ref().map(|network| to.and_then(|to| network.backlog(&to)).is_some()));
    match listens {
        // SAFETY: the arguments are the caller's.
        None => unsafe { libc::syscall(libc::SYS_connect, socket, address, length) as c_int },
        Some(true) => 0,
        Some(false) => {
            // SAFETY: it is always valid.
            unsafe { *libc::__errno_location() = libc::ECONNREFUSED };
            -1
        }
    }
}
