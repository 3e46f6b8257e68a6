//! Who is compared, and how each of them does its cycles.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use zookeeper_recipes::zookeeper_client::{Acls, CreateMode};
use zookeeper_recipes::{Servers, Session};

use crate::client_lock::{self, ClientLock};
use crate::floor::{self, Bare};
use crate::ours::{self, Ours};
use crate::peer::{self, Peer};
use crate::workloads::{Shape, Workload};
use crate::{Outcome, SESSION_TIMEOUT, crew};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Floor,
    Ours,
    ClientLock,
    Curator,
    Kazoo,
}

impl Contender {
    pub(crate) const ALL: [Self; 5] = [Self::Floor, Self::Ours, Self::ClientLock, Self::Curator, Self::Kazoo];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "bare requests",
            Self::Ours => "this crate",
            Self::ClientLock => "client's lock",
            Self::Curator => "Curator",
            Self::Kazoo => "kazoo",
        }
    }

    /// Its client, if it runs in a process of its own.
    pub(crate) fn peer(self) -> Option<peer::Client> {
        match self {
            Self::Curator => Some(peer::Client::Curator),
            Self::Kazoo => Some(peer::Client::Kazoo),
            Self::Floor | Self::Ours | Self::ClientLock => None,
        }
    }

    fn has(self, shape: Shape) -> bool {
        match self {
            Self::Floor | Self::Ours => true,
            Self::ClientLock => client_lock::has(shape),
            Self::Curator => peer::Client::Curator.has(shape),
            Self::Kazoo => peer::Client::Kazoo.has(shape),
        }
    }
}

/// A contender that is ready for a workload.
pub(crate) enum Entry {
    Floor(Vec<Bare>),
    Ours(Vec<Ours>),
    ClientLock(Vec<ClientLock>),
    Peer(peer::Client, String),
}

/// Why a contender does not take part in a workload.
#[derive(Debug)]
pub(crate) enum Absence {
    NoSuchLock,
    NotInstalled,
}

/// The sessions of this process, and the other processes.
pub(crate) struct Field {
    hosts: String,
    /// The contenders here use the same sessions, because a session's connection has its own habits for its whole life:
    /// the client writes requests in an order that depends on an address.
    sessions: Vec<Session>,
    peers: Vec<(peer::Client, Peer)>,
    /// How many paths exist for first locks, by the path above them.
    existing: HashMap<String, usize>,
}

impl Field {
    pub(crate) async fn new(hosts: String) -> Outcome<Self> {
        let mut field = Self { hosts, sessions: Vec::new(), peers: Vec::new(), existing: HashMap::new() };
        for client in Contender::ALL.into_iter().filter_map(Contender::peer) {
            field.start(client).await?;
        }
        Ok(field)
    }

    /// Starts a peer if it is installed, and ends the process that it has.
    pub(crate) async fn start(&mut self, client: peer::Client) -> Outcome {
        self.peers.retain(|(other, _)| *other != client);
        if let Some(peer) = Peer::start(client, &self.hosts).await? {
            self.peers.push((client, peer));
        }
        Ok(())
    }

    /// The peer, if it is installed.
    pub(crate) fn peer(&mut self, client: peer::Client) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|(other, _)| *other == client).map(|(_, peer)| peer)
    }

    /// Prepares a contender, which has `path` for itself.
    pub(crate) async fn enter(
        &mut self,
        contender: Contender,
        workload: &Workload,
        path: &str,
    ) -> Outcome<Result<Entry, Absence>> {
        if !contender.has(workload.shape) {
            return Ok(Err(Absence::NoSuchLock));
        }
        if let Some(client) = contender.peer() {
            let is_installed = self.peer(client).is_some();
            return Ok(is_installed.then(|| Entry::Peer(client, path.to_owned())).ok_or(Absence::NotInstalled));
        }
        // One more holds what the others try.
        while self.sessions.len() <= workload.sessions {
            let servers = Servers::new(&self.hosts).with_session_timeout(SESSION_TIMEOUT);
            self.sessions.push(Session::connect(servers).await?);
        }
        let clients: Option<Vec<_>> = self.sessions.iter().map(Session::client).collect();
        let clients = clients.ok_or("a session has expired")?;
        Ok(Ok(match contender {
            Contender::Floor => Entry::Floor(floor::workers(&clients, workload, path).await?),
            Contender::Ours => Entry::Ours(ours::workers(&self.sessions, workload, path).await?),
            _ => Entry::ClientLock(client_lock::workers(&clients, workload, path)),
        }))
    }

    /// Makes what the next cycles of a contender, which has `path` for itself, need and what does not count.
    pub(crate) async fn prepare(&mut self, workload: &Workload, path: &str, cycles: usize) -> Outcome {
        if workload.shape == Shape::First {
            // By another session: to that of the contender they are new.
            let client = self.sessions[workload.sessions].client().ok_or("a session has expired")?;
            let next = self.existing.entry(path.to_owned()).or_default();
            let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
            client.mkdir(path, &persistent).await?;
            let paths: Vec<_> = (*next..*next + cycles).map(|number| format!("{path}/{number}")).collect();
            try_join_all(paths.iter().map(|path| client.create(path, b"", &persistent))).await?;
            *next += cycles;
        }
        Ok(())
    }

    /// Lets each worker do `cycles` cycles; returns the elapsed time and the CPU time of the client's process.
    pub(crate) async fn time(
        &mut self,
        entry: &mut Entry,
        workload: &Workload,
        cycles: usize,
    ) -> Outcome<(Duration, Duration)> {
        match entry {
            Entry::Floor(workers) => crew::time(workers, cycles).await,
            Entry::Ours(workers) => crew::time(workers, cycles).await,
            Entry::ClientLock(workers) => crew::time(workers, cycles).await,
            Entry::Peer(client, path) => {
                self.peer(*client).ok_or("not running")?.time(workload, path, cycles).await
            }
        }
    }
}
