//! Several ZooKeeper servers that elect a leader, and whose links to each other can be broken.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::link::{self, Link, Sockets, Target};
use crate::ports::free_port;
use crate::relay::Relay;
use crate::server::{Server, ServerBuilder, ServerError, mode};

const LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);
const TRIES: usize = 3;

/// Servers that know each other only through [`Link`]s.
///
/// Servers are numbered from 0. Dropping the ensemble kills them and removes their folders.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Server>,
    // By `from`, then `to`; a server has no link to itself.
    links: Links,
    // Held for its `Drop`. It comes after the servers, which would otherwise log that their peers vanish.
    _relay: Relay,
}

impl Ensemble {
    /// Starts `n` servers and waits until each takes requests.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub async fn start(n: usize) -> Result<Self, ServerError> {
        Self::builder().servers(n).start().await
    }

    /// Three servers with ticks of 200 ms, so with sessions from 400 ms to 60 s. They give up a silent peer after
    /// 20 ticks (4 s).
    pub fn builder() -> EnsembleBuilder {
        EnsembleBuilder {
            servers: 3,
            sync_limit: 20,
            init_limit: 50,
            server: Server::builder().tick(Duration::from_millis(200)),
        }
    }

    /// The number of servers.
    #[allow(clippy::len_without_is_empty, reason = "an ensemble is never empty")]
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// All servers, separated by commas, for clients.
    pub fn hosts(&self) -> String {
        self.servers.iter().map(Server::hosts).collect::<Vec<_>>().join(",")
    }

    /// Server `i`.
    pub fn server(&self, i: usize) -> &Server {
        &self.servers[i]
    }

    /// Server `i`, to kill and restart it.
    pub fn server_mut(&mut self, i: usize) -> &mut Server {
        &mut self.servers[i]
    }

    /// Kills all servers that run, starts all of them at once, and waits until they are settled.
    ///
    /// # Errors
    ///
    /// If a server cannot be started, or some are not settled in time.
    pub async fn restart(&mut self) -> Result<(), ServerError> {
        for server in &mut self.servers {
            server.kill();
            server.launch()?;
        }
        self.wait_until_up().await?;
        self.settled().await
    }

    /// Waits until exactly one of the servers that answer reports that it leads.
    ///
    /// A leader that is cut off from the others reports it for up to `sync_limit` ticks. A paused one does not answer.
    ///
    /// # Errors
    ///
    /// If there is none within a minute.
    pub async fn leader(&self) -> Result<usize, ServerError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let modes = self.modes().await;
            if let [leader] = with_mode(&modes, "leader")[..] {
                return Ok(leader);
            }
            if Instant::now() > deadline {
                return Err(ServerError::new(format!("no single leader within {LIMIT:?}: {modes:?}")));
            }
            sleep(POLL).await;
        }
    }

    /// The servers that report within `limit` that they lead: none during an election, and two while a deposed leader
    /// does not know it yet.
    pub async fn leaders_within(&self, limit: Duration) -> Vec<usize> {
        let mut asked = JoinSet::new();
        for (i, server) in self.servers.iter().enumerate() {
            let port = server.port();
            asked.spawn(async move { (i, timeout(limit, mode(port)).await.unwrap_or_default()) });
        }
        let modes = asked.join_all().await;
        modes.into_iter().filter(|(_, mode)| mode.as_deref() == Some("leader")).map(|(i, _)| i).collect()
    }

    /// Waits for a [`leader`](Self::leader) and returns its current followers.
    ///
    /// # Errors
    ///
    /// If there is no leader within a minute.
    pub async fn followers(&self) -> Result<Vec<usize>, ServerError> {
        self.leader().await?;
        Ok(with_mode(&self.modes().await, "follower"))
    }

    /// Waits until every server takes requests, one as the leader and the others as followers.
    ///
    /// # Errors
    ///
    /// If it takes more than a minute, as it does while a server is killed, paused or cut off.
    pub async fn settled(&self) -> Result<(), ServerError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let modes = self.modes().await;
            if with_mode(&modes, "leader").len() == 1 && modes.iter().all(Option::is_some) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(ServerError::new(format!("not settled within {LIMIT:?}: {modes:?}")));
            }
            sleep(POLL).await;
        }
    }

    /// The connections that server `from` opens to server `to`.
    ///
    /// # Panics
    ///
    /// If both are the same.
    pub fn link(&self, from: usize, to: usize) -> &Link {
        self.links[from][to].as_ref().expect("a link between two servers")
    }

    /// Black-holes every link from and to server `i`. Clients still reach it.
    pub fn isolate(&self, i: usize) {
        let from = self.links[i].iter();
        let to = self.links.iter().map(|links| &links[i]);
        from.chain(to).flatten().for_each(Link::black_hole);
    }

    /// Makes every link forward again. The servers then need some time to form a quorum; see
    /// [`settled`](Self::settled).
    pub fn heal(&self) {
        self.links.iter().flatten().flatten().for_each(Link::heal);
    }

    /// The mode that each server reports. All are asked at once, because a paused server runs into the time limit.
    async fn modes(&self) -> Vec<Option<String>> {
        let mut asked = JoinSet::new();
        for (i, server) in self.servers.iter().enumerate() {
            let port = server.port();
            asked.spawn(async move { (i, mode(port).await) });
        }
        let mut modes = asked.join_all().await;
        modes.sort_unstable_by_key(|(i, _)| *i);
        modes.into_iter().map(|(_, mode)| mode).collect()
    }

    async fn wait_until_up(&mut self) -> Result<(), ServerError> {
        let deadline = Instant::now() + LIMIT;
        for server in &mut self.servers {
            while !server.serves().await {
                if server.has_exited() || Instant::now() > deadline {
                    return Err(server.start_error());
                }
                sleep(POLL).await;
            }
        }
        Ok(())
    }
}

fn with_mode(modes: &[Option<String>], wanted: &str) -> Vec<usize> {
    (0..modes.len()).filter(|&i| modes[i].as_deref() == Some(wanted)).collect()
}

/// The configuration of an [`Ensemble`].
#[derive(Clone, Debug)]
pub struct EnsembleBuilder {
    servers: usize,
    sync_limit: u32,
    init_limit: u32,
    server: ServerBuilder,
}

impl EnsembleBuilder {
    /// Sets the number of servers.
    pub fn servers(mut self, n: usize) -> Self {
        self.servers = n;
        self
    }

    /// Sets the length of a tick, in whole milliseconds. The shortest session is two ticks.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.server = self.server.tick(tick);
        self
    }

    /// Sets the number of silent ticks after which a leader and a follower give each other up.
    pub fn sync_limit(mut self, ticks: u32) -> Self {
        self.sync_limit = ticks;
        self
    }

    /// Sets the number of ticks that a follower has to catch up with its leader.
    pub fn init_limit(mut self, ticks: u32) -> Self {
        self.init_limit = ticks;
        self
    }

    /// Sets a system property of every server, as `java -Dkey=value` does.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.server = self.server.property(key, value);
        self
    }

    /// Adds a line `key=value` to every `zoo.cfg`. The last line of a key counts.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.server = self.server.config(key, value);
        self
    }

    /// Creates a persistent node at `path` before the start, as [`ServerBuilder::counter`] does.
    pub fn counter(mut self, path: impl Into<String>, next: i32) -> Self {
        self.server = self.server.counter(path, next);
        self
    }

    /// Starts the servers and waits until each takes requests.
    ///
    /// # Errors
    ///
    /// As [`Server::start`], and if not all servers take requests within a minute.
    pub async fn start(self) -> Result<Ensemble, ServerError> {
        for _ in 0..TRIES {
            let mut ensemble = self.launch().await?;
            match ensemble.wait_until_up().await {
                Err(_) if ensemble.servers.iter().any(Server::failed_to_bind) => {}
                result => return result.map(|()| ensemble),
            }
        }
        Err(ServerError::new("other processes took the free ports before the servers bound them"))
    }

    async fn launch(&self) -> Result<Ensemble, ServerError> {
        let ports: Vec<Ports> = (0..self.servers).map(|_| Ports::take()).collect();
        let (links, _relay) =
            link_up(&ports).await.map_err(|error| ServerError::new(format!("no links: {error}")))?;
        let mut servers = Vec::new();
        for (i, own) in ports.iter().enumerate() {
            let builder = linked_members(self.configured(), i, own, &links[i]);
            let mut server = builder.prepare_member(own.client, i + 1).await?;
            server.launch()?;
            servers.push(server);
        }
        Ok(Ensemble { servers, links, _relay })
    }

    /// The configuration of a server, without the members.
    fn configured(&self) -> ServerBuilder {
        let server = Server::builder()
            // Servers would send their own view of the ports to the others.
            .config("reconfigEnabled", "false")
            .config("standaloneEnabled", "false")
            .config("initLimit", self.init_limit.to_string())
            .config("syncLimit", self.sync_limit.to_string())
            // A server that was cut off asks for a new election this often. The default is up to a minute.
            .property("zookeeper.fastleader.maxNotificationInterval", "500");
        server.overlaid_by(&self.server)
    }
}

/// The members as server `i` sees them: its own ports directly, those of the others through the links.
fn linked_members(server: ServerBuilder, i: usize, own: &Ports, links: &[Option<Link>]) -> ServerBuilder {
    links.iter().enumerate().fold(server, |server, (j, link)| {
        let (quorum, election) = match link {
            Some(link) => (link.quorum_port(), link.election_port()),
            None => (own.quorum, own.election),
        };
        debug_assert_eq!(link.is_none(), i == j);
        server.config(format!("server.{}", j + 1), format!("127.0.0.1:{quorum}:{election}:participant"))
    })
}

/// The ports on which a server listens.
#[derive(Debug)]
struct Ports {
    client: u16,
    quorum: u16,
    election: u16,
}

impl Ports {
    fn take() -> Self {
        Self { client: free_port(), quorum: free_port(), election: free_port() }
    }
}

type Links = Vec<Vec<Option<Link>>>;

async fn link_up(ports: &[Ports]) -> std::io::Result<(Links, Relay)> {
    let mut links: Links = Vec::new();
    let mut sockets: Vec<(usize, usize, Sockets)> = Vec::new();
    for from in 0..ports.len() {
        links.push(Vec::new());
        for to in 0..ports.len() {
            links[from].push(None);
            if from != to {
                let (link, listening) = Link::bind()?;
                links[from][to] = Some(link);
                sockets.push((from, to, listening));
            }
        }
    }
    let link = |from: usize, to: usize| links[from][to].as_ref().expect("bound above");
    let relay = link::start(sockets.into_iter().map(|(from, to, listening)| {
        let target = Target {
            quorum_port: ports[to].quorum,
            election_port: ports[to].election,
            call_back_port: link(to, from).election_port(),
        };
        (link(from, to), listening, target)
    }))
    .await?;
    Ok((links, relay))
}
