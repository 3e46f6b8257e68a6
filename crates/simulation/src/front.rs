//! An ensemble behind ports of 127.0.0.1.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::acl::{Acl, Identity};
use crate::code::Code;
use crate::ensemble::{Config, Ensemble, Output};
use crate::host::{Connection, Host, OwnThread};
use crate::message::{Connect, Message, Request, Write};
use crate::session::ConnectionId;
use crate::wire;

/// The longest frame that servers read, as they are configured when nobody configures it.
const LONGEST_FRAME: usize = 0xf_ffff;

const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// Simulated servers that any client can connect to. Dropping it shuts them down.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    host: Box<dyn Host>,
}

/// A way to the first server that can be cut, for the clients that use its address.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    id: LinkId,
    address: SocketAddr,
}

type LinkId = u64;

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    paused: watch::Sender<bool>,
    began: Instant,
}

#[derive(Debug)]
struct State {
    ensemble: Ensemble,
    config: Config,
    /// The link of each connection, and the sender of its frames. Dropping the sender closes the connection.
    connections: HashMap<ConnectionId, (LinkId, mpsc::UnboundedSender<Vec<u8>>)>,
    last_connection: ConnectionId,
    last_link: LinkId,
    cut: HashSet<LinkId>,
    is_down: bool,
    /// What ensembles that were forgotten have answered.
    answered: BTreeSet<(&'static str, Option<Code>)>,
}

impl Server {
    /// Starts one server on a free port, in a thread of its own.
    ///
    /// # Errors
    ///
    /// If there is no port to listen on, or no thread.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Config::default(), &[0])
    }

    /// Starts as many servers as there are ports, in a thread of their own; 0 is a free port. The count in `config` is ignored.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_with(config: Config, ports: &[u16]) -> io::Result<Self> {
        Self::start_on(OwnThread::start()?, config, ports)
    }

    /// Does the same on another host, such as a simulated network.
    ///
    /// # Errors
    ///
    /// If no port is given, or the host has none to listen on.
    pub fn start_on(host: impl Host, mut config: Config, ports: &[u16]) -> io::Result<Self> {
        if ports.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no ports, so no servers: give one for each"));
        }
        config.servers = ports.len();
        // Makes session numbers differ from those of an earlier run.
        config.last_session += i64::try_from(since_epoch().as_micros()).unwrap_or(0) << 4;
        let now = Instant::now();
        // A process cannot look at its sessions more often.
        let (every, began) = (config.tick.max(SHORTEST_TICK), now.checked_sub(config.phase).unwrap_or(now));
        let state = State {
            ensemble: Ensemble::new(config.clone()),
            config,
            connections: HashMap::new(),
            last_connection: 0,
            last_link: 0,
            cut: HashSet::new(),
            is_down: false,
            answered: BTreeSet::new(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), paused: watch::Sender::new(false), began });
        host.spawn(Box::pin(tick(shared.clone(), every)));
        let mut server = Self { shared, addresses: Vec::new(), host: Box::new(host) };
        for (index, port) in ports.iter().enumerate() {
            let (_, address) = server.listen(index, *port)?;
            server.addresses.push(address);
        }
        Ok(server)
    }

    fn listen(&self, server: usize, port: u16) -> io::Result<(LinkId, SocketAddr)> {
        let (accepted, connections) = mpsc::unbounded_channel();
        let address = self.host.listen(port, accepted)?;
        let link = self.shared.add_link();
        self.host.spawn(Box::pin(accept(self.shared.clone(), server, link, connections)));
        Ok((link, address))
    }

    /// Listens on another port of the first server, which can be cut off by itself.
    ///
    /// # Errors
    ///
    /// If there is no port to listen on.
    pub fn link(&self) -> io::Result<Link> {
        let (id, address) = self.listen(0, 0)?;
        Ok(Link { shared: self.shared.clone(), id, address })
    }

    /// `127.0.0.1:port` of each server, separated by commas, for clients.
    pub fn address(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(SocketAddr::to_string).collect();
        addresses.join(",")
    }

    /// The address of each server.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends a session, as if it had expired.
    pub fn expire(&self, session: i64) {
        self.shared.run(|ensemble, now| ensemble.expire(now, session));
    }

    /// Closes the connections of a session.
    pub fn disconnect(&self, session: i64) {
        self.shared.run(|ensemble, _| ensemble.cut(Some(session)));
    }

    /// Closes all connections.
    pub fn disconnect_all(&self) {
        self.shared.run(|ensemble, _| ensemble.cut(None));
    }

    /// Answers nothing from now on, as processes that are stopped. No session expires meanwhile.
    pub fn pause(&self) {
        self.shared.paused.send_replace(true);
    }

    /// Goes on after [`Server::pause`].
    pub fn resume(&self) {
        self.shared.paused.send_replace(false);
    }

    /// Closes all connections, and new ones at once, as servers that are killed. No session expires meanwhile. Each keeps its
    /// deadline, so one whose timeout has passed expires at [`Server::restart`].
    pub fn kill(&self) {
        self.shared.lock().is_down = true;
        self.host.refuse(&self.addresses, true);
        self.disconnect_all();
        self.pause();
    }

    /// Takes connections again after [`Server::kill`].
    pub fn restart(&self) {
        self.shared.lock().is_down = false;
        self.host.refuse(&self.addresses, false);
        self.resume();
    }

    /// Loses all nodes and sessions, as servers that are started on an empty disk.
    pub fn forget(&self) {
        let state = &mut *self.shared.lock();
        state.connections.clear();
        // Servers count their sessions from the time of their start.
        state.config.last_session += 1 << 40;
        let forgotten = std::mem::replace(&mut state.ensemble, Ensemble::new(state.config.clone()));
        state.answered.extend(forgotten.answered());
    }

    /// Lets a server, by its index, lag behind the others; see [`Ensemble::lag`].
    pub fn lag(&self, server: usize, lags: bool) {
        self.shared.run(|ensemble, _| ensemble.lag(server, lags));
    }

    /// Removes disused containers now.
    pub fn reap(&self) {
        self.shared.run(Ensemble::reap);
    }

    /// Creates a persistent node that everybody may use, and those above it.
    pub fn make_path(&self, path: &str) {
        // No connection of a client has this number.
        let ours = 0;
        self.shared.run(|ensemble, now| ensemble.connect(now, 0, ours, &Connect::new(Duration::ZERO)));
        let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
        for path in ends.map(|end| path[..end].to_owned()) {
            let acl = vec![Acl::new(31, Identity::new("world", "anyone"))];
            let create = Write::Create { path, data: Vec::new(), acl, flags: 0, with_stat: false };
            self.shared.run(|ensemble, now| ensemble.handle(now, ours, 0, Request::Write(create)));
        }
        self.shared.run(|ensemble, now| ensemble.handle(now, ours, 0, Request::CloseSession));
    }

    /// The operations that were answered, each with the codes of its answers, or `None` where it succeeded.
    pub fn answered(&self) -> BTreeSet<(&'static str, Option<Code>)> {
        let state = self.shared.lock();
        state.answered.union(state.ensemble.answered()).copied().collect()
    }

    /// Lets the next sequential child of a node get this number.
    pub fn set_counter(&self, path: &str, next: i32) {
        self.shared.lock().ensemble.set_counter(path, next);
    }
}

impl Link {
    /// The address, for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the connections that have come by this link, and refuses others.
    pub fn cut(&self) {
        self.shared.cut(self.id);
    }

    /// Lets clients connect again after [`Link::cut`].
    pub fn heal(&self) {
        self.shared.lock().cut.remove(&self.id);
    }
}

/// The wall-clock time, which can be set while the program runs.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the ensemble do a step, and sends what comes of it. Steps and what they send have the same order.
    fn run(&self, step: impl FnOnce(&mut Ensemble, Duration) -> Vec<Output>) {
        let state = &mut *self.lock();
        let now = self.began.elapsed();
        state.ensemble.set_wall_ahead(since_epoch().saturating_sub(now));
        for Output { connection, message } in step(&mut state.ensemble, now) {
            if message == Message::Close {
                state.connections.remove(&connection);
            } else if let (Some((_, sender)), Some(frame)) =
                (state.connections.get(&connection), wire::frame(&message))
            {
                // It fails when the client is gone, of which its reader learns.
                _ = sender.send(frame);
            }
        }
    }

    fn add_link(&self) -> LinkId {
        let mut state = self.lock();
        state.last_link += 1;
        state.last_link
    }

    fn cut(&self, link: LinkId) {
        let state = &mut *self.lock();
        state.cut.insert(link);
        let (ensemble, connections) = (&mut state.ensemble, &mut state.connections);
        connections.retain(|connection, (its, _)| {
            if *its == link {
                ensemble.disconnect(*connection);
            }
            *its != link
        });
    }

    /// None if the link is cut, or the servers are down.
    fn open(&self, link: LinkId) -> Option<(ConnectionId, mpsc::UnboundedReceiver<Vec<u8>>)> {
        let mut state = self.lock();
        if state.is_down || state.cut.contains(&link) {
            return None;
        }
        let (sender, frames) = mpsc::unbounded_channel();
        state.last_connection += 1;
        let connection = state.last_connection;
        state.connections.insert(connection, (link, sender));
        Some((connection, frames))
    }

    fn close(&self, connection: ConnectionId) {
        let mut state = self.lock();
        state.ensemble.disconnect(connection);
        state.connections.remove(&connection);
    }

    /// The answer to a command of four letters.
    fn command(&self, server: usize, command: &[u8]) -> String {
        match command {
            b"ruok" => "imok".to_owned(),
            b"dump" => {
                let state = self.lock();
                let owned = state.ensemble.ephemerals().map(|(session, paths)| {
                    let lines: String = paths.map(|path| format!("\t{path}\n")).collect();
                    format!("0x{session:x}:\n{lines}")
                });
                format!("Sessions with Ephemerals:\n{}", owned.collect::<String>())
            }
            b"wchp" => {
                let watches = self.lock().ensemble.watches_by_path(server);
                let watchers =
                    |sessions: Vec<i64>| sessions.iter().map(|one| format!("\t0x{one:x}\n")).collect::<String>();
                watches.into_iter().map(|(path, sessions)| format!("{path}\n{}", watchers(sessions))).collect()
            }
            b"mntr" => format!("zk_watch_count\t{}\n", self.lock().ensemble.watch_count(server)),
            _ => String::new(),
        }
    }

    /// Waits while the server is paused.
    async fn unpaused(&self) {
        // The sender is ours, so there is one.
        _ = self.paused.subscribe().wait_for(|paused| !paused).await;
    }
}

/// Sessions end at multiples of a tick, so nothing is due in between.
async fn tick(shared: Arc<Shared>, every: Duration) {
    let mut next = shared.began;
    loop {
        while next <= Instant::now() {
            next += every;
        }
        sleep_until(next).await;
        shared.unpaused().await;
        shared.run(Ensemble::tick);
    }
}

async fn accept(
    shared: Arc<Shared>,
    server: usize,
    link: LinkId,
    mut connections: mpsc::UnboundedReceiver<Box<dyn Connection>>,
) {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            Some(connection) = connections.recv() => {
                clients.spawn(serve(shared.clone(), server, link, connection));
            }
            Some(_) = clients.join_next() => {}
            // The host has stopped listening.
            else => return,
        }
    }
}

async fn serve(shared: Arc<Shared>, server: usize, link: LinkId, stream: Box<dyn Connection>) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut head = [0; 4];
    if reader.read_exact(&mut head).await.is_err() {
        return;
    }
    // Read as a length, the letters would exceed one gigabyte.
    if head.iter().all(u8::is_ascii_lowercase) {
        if shared.lock().is_down {
            return;
        }
        shared.unpaused().await;
        // It fails when the client is gone.
        _ = writer.write_all(shared.command(server, &head).as_bytes()).await;
        return;
    }
    let Some((connection, frames)) = shared.open(link) else { return };
    let reader = BufReader::new(reader);
    tokio::select! {
        // An error of either is the end of the connection.
        _ = receive(&shared, server, connection, head, reader) => {}
        _ = send(writer, frames) => {}
    }
    shared.close(connection);
}

async fn receive(
    shared: &Shared,
    server: usize,
    connection: ConnectionId,
    head: [u8; 4],
    mut reader: BufReader<impl AsyncRead + Unpin>,
) -> io::Result<()> {
    let first = frame(head, &mut reader).await?;
    shared.unpaused().await;
    let request = wire::connect(&first).map_err(|_| io::ErrorKind::InvalidData)?;
    shared.run(|ensemble, now| ensemble.connect(now, server, connection, &request));
    loop {
        let head = reader.read_i32().await?.to_be_bytes();
        let frame = frame(head, &mut reader).await?;
        shared.unpaused().await;
        let (xid, request) = wire::request(&frame).map_err(|_| io::ErrorKind::InvalidData)?;
        shared.run(|ensemble, now| ensemble.handle(now, connection, xid, request));
    }
}

/// The frame that follows its length.
async fn frame(head: [u8; 4], reader: &mut BufReader<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(i32::from_be_bytes(head)).ok().filter(|length| *length <= LONGEST_FRAME);
    let mut frame = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    reader.read_exact(&mut frame).await?;
    Ok(frame)
}

/// Writes frames until there are no more to come.
async fn send(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        writer.write_all(&frame).await?;
    }
    writer.shutdown().await
}
