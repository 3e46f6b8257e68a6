//! The servers: one log of transactions, of which each has applied a prefix.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::acl::{self, Identity};
use crate::code::Code;
use crate::message::{Connect, Connected, Event, Message, Reply, Request, Write};
use crate::multi;
use crate::session::{ConnectionId, Sessions, password};
use crate::tree::{Change, Node, Stat, Tree, length};
use crate::watch::{NO_ZXID, Watches};
use crate::write::Draft;

/// Whose answers the servers give, where versions of ZooKeeper differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Version {
    /// 3.6.3.
    V3_6,
    /// 3.8.0 of Debian, with its patches.
    #[default]
    V3_8,
    /// 3.9.5.
    V3_9,
}

/// What an ensemble is configured with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How many servers there are.
    pub servers: usize,
    /// How often sessions are looked at: one lives up to this much longer than its timeout.
    pub tick: Duration,
    /// The part of a tick that has already passed when the servers start.
    pub phase: Duration,
    /// The shortest and the longest timeout that a session can have.
    pub timeouts: (Duration, Duration),
    /// How often containers are looked at.
    pub container_check: Duration,
    /// The first session gets the number after this.
    pub last_session: i64,
    /// Whose answers they give.
    pub version: Version,
}

impl Default for Config {
    /// One server, configured as those of the test suite: with ticks of half a second, and sessions from one second to sixty.
    fn default() -> Self {
        Self {
            servers: 1,
            tick: Duration::from_millis(500),
            phase: Duration::ZERO,
            timeouts: (Duration::from_secs(1), Duration::from_secs(60)),
            container_check: Duration::from_secs(60),
            last_session: 1 << 56,
            version: Version::default(),
        }
    }
}

/// A message, and the connection that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// For whom.
    pub connection: ConnectionId,
    /// What.
    pub message: Message,
}

/// A transaction. One that failed has no changes, but a number all the same.
#[derive(Debug)]
struct Entry {
    time: i64,
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Replica {
    tree: Tree,
    watches: Watches,
    applied: i64,
    lags: bool,
}

#[derive(Debug)]
struct Connection {
    server: usize,
    session: i64,
    timeout: Duration,
    identities: Vec<Identity>,
}

/// Some servers, and what they know of clients.
#[derive(Debug)]
pub struct Ensemble {
    config: Config,
    /// The tree after all transactions, by which writes are decided.
    head: Tree,
    /// The number of the last transaction.
    zxid: i64,
    /// The last transactions, as far back as a server lacks them.
    log: VecDeque<Entry>,
    replicas: Vec<Replica>,
    sessions: Sessions,
    connections: BTreeMap<ConnectionId, Connection>,
    next_container_check: Duration,
    wall_ahead: Duration,
    outputs: Vec<Output>,
    /// Connections of sessions that have ended, to be closed once they have their answers.
    ended: Vec<ConnectionId>,
    answered: BTreeSet<(&'static str, Option<Code>)>,
}

impl Ensemble {
    /// Servers without clients, and with no nodes but their own.
    pub fn new(config: Config) -> Self {
        let replica = || Replica { tree: Tree::new(), watches: Watches::default(), applied: 0, lags: false };
        Self {
            head: Tree::new(),
            zxid: 0,
            log: VecDeque::new(),
            replicas: (0..config.servers).map(|_| replica()).collect(),
            sessions: Sessions::new(config.tick, config.last_session),
            connections: BTreeMap::new(),
            next_container_check: Duration::ZERO,
            wall_ahead: Duration::ZERO,
            outputs: Vec::new(),
            ended: Vec::new(),
            answered: BTreeSet::new(),
            config,
        }
    }

    /// Sets by how much the wall clock, which stats show, is ahead of the clock that each step is given, by which sessions end.
    pub fn set_wall_ahead(&mut self, by: Duration) {
        self.wall_ahead = by;
    }

    /// A client connects to a server.
    pub fn connect(
        &mut self,
        now: Duration,
        server: usize,
        connection: ConnectionId,
        request: &Connect,
    ) -> Vec<Output> {
        if request.last_zxid > self.replicas[server].applied {
            self.send(connection, Message::Close);
            return self.finish();
        }
        let timeout = request.timeout.clamp(self.config.timeouts.0, self.config.timeouts.1);
        let mut session = request.session;
        let mut is_valid = true;
        if session == 0 {
            session = self.sessions.open();
            self.append(now, Vec::new());
            self.advance(server, self.zxid);
        } else {
            // Before the password is looked at, as servers do.
            let is_older = |one: &Connection| one.session == session && one.server == server;
            let older = self.connections.iter().filter(|(_, one)| is_older(one)).map(|(id, _)| *id);
            self.ended.extend(older);
            is_valid = request.password == password(session) && self.sessions.owner(session).is_some();
        }
        if is_valid {
            self.sessions.assign(session, connection, now, timeout);
            // Any client may use the name of its address.
            let identities = vec![Identity::new("ip", "127.0.0.1")];
            self.connections.insert(connection, Connection { server, session, timeout, identities });
            let connected = Connected { timeout, session, password: password(session) };
            self.send(connection, Message::Connected(connected));
        } else {
            self.send(connection, Message::Connected(Connected::default()));
            self.send(connection, Message::Close);
        }
        self.finish()
    }

    /// A connection has broken. Its session lives on until it expires.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        if let Some(gone) = self.connections.remove(&connection) {
            self.replicas[gone.server].watches.forget(connection);
        }
    }

    /// A client sends a request with this number.
    pub fn handle(&mut self, now: Duration, connection: ConnectionId, xid: i32, request: Request) -> Vec<Output> {
        let Some(client) = self.connections.get(&connection) else {
            return Vec::new();
        };
        let (server, session) = (client.server, client.session);
        self.sessions.touch(session, now, client.timeout);
        let is_write =
            matches!(request, Request::Write(_) | Request::Multi(_) | Request::Refused(_) | Request::CloseSession);
        match self.sessions.owner(session) {
            Some(owner) if owner != connection && is_write => {
                // The session has moved, and the client has not noticed.
                self.ended.push(connection);
                return self.finish();
            }
            None if is_write => {
                self.answered.insert((request.name(), Some(Code::SessionExpired)));
                self.reply(connection, xid, Err(Code::SessionExpired));
                return self.finish();
            }
            _ => {}
        }
        let closes = match request {
            Request::Unknown => true,
            // ZOOKEEPER-3969: before 3.7.0 servers do not know it.
            Request::WhoAmI => self.config.version == Version::V3_6,
            _ => false,
        };
        let operation = request.name();
        let result = match request {
            Request::Write(write) => self.write(now, connection, &write),
            Request::Multi(writes) => self.multi(now, connection, &writes),
            Request::Refused(code) => {
                self.append(now, Vec::new());
                self.advance(server, self.zxid);
                Err(code)
            }
            Request::CloseSession => {
                self.end_session(now, session);
                self.advance(server, self.zxid);
                Ok(Reply::Nothing)
            }
            Request::Auth { scheme, credentials } => {
                return self.authenticate(connection, xid, &scheme, &credentials);
            }
            Request::Sync(path) => {
                self.advance(server, self.zxid);
                Ok(Reply::Sync(path))
            }
            request => self.read(connection, request),
        };
        self.note_answer(operation, &result);
        self.reply(connection, xid, result);
        if closes {
            self.ended.push(connection);
        }
        self.finish()
    }

    /// Time has passed: sessions expire, and disused containers go.
    pub fn tick(&mut self, now: Duration) -> Vec<Output> {
        for session in self.sessions.expired(now) {
            self.end_session(now, session);
        }
        if now >= self.next_container_check {
            self.next_container_check = now + self.config.container_check;
            self.remove_containers(now);
        }
        self.finish()
    }

    /// Ends a session as if it had expired.
    pub fn expire(&mut self, now: Duration, session: i64) -> Vec<Output> {
        if self.sessions.owner(session).is_some() {
            self.end_session(now, session);
        }
        self.finish()
    }

    /// Closes all connections of a session, or of all. The sessions live on.
    pub fn cut(&mut self, session: Option<i64>) -> Vec<Output> {
        let is_meant = |one: &Connection| session.is_none_or(|session| session == one.session);
        let meant = self.connections.iter().filter(|(_, one)| is_meant(one)).map(|(id, _)| *id);
        self.ended.extend(meant);
        self.finish()
    }

    /// Lets a server apply nothing from now on but up to the writes of its own clients; or all again.
    pub fn lag(&mut self, server: usize, lags: bool) -> Vec<Output> {
        self.replicas[server].lags = lags;
        self.finish()
    }

    /// Removes the containers that once had children and have none, as servers do from time to time.
    pub fn reap(&mut self, now: Duration) -> Vec<Output> {
        self.remove_containers(now);
        self.finish()
    }

    /// The operations that were answered, each with the codes of its answers, or `None` where it succeeded.
    pub fn answered(&self) -> &BTreeSet<(&'static str, Option<Code>)> {
        &self.answered
    }

    /// How many watches a server has.
    pub fn watch_count(&self, server: usize) -> usize {
        self.replicas[server].watches.count()
    }

    /// The paths with watches on data at a server, and the sessions that watch.
    pub fn watches_by_path(&self, server: usize) -> Vec<(String, Vec<i64>)> {
        let session = |connection: ConnectionId| self.connections.get(&connection).map(|one| one.session);
        let by_path = self.replicas[server].watches.by_path();
        by_path.map(|(path, of)| (path.to_owned(), of.into_iter().filter_map(session).collect())).collect()
    }

    /// The sessions that have ephemeral nodes, and these.
    pub fn ephemerals(&self) -> impl Iterator<Item = (i64, impl Iterator<Item = &String>)> {
        self.head.owners().map(|session| (session, self.head.ephemerals(session)))
    }

    /// Lets the next sequential child of a node get this number.
    pub fn set_counter(&mut self, path: &str, next: i32) {
        self.head.set_counter(path, next);
        self.replicas.iter_mut().for_each(|replica| replica.tree.set_counter(path, next));
    }

    fn write(&mut self, now: Duration, connection: ConnectionId, write: &Write) -> Result<Reply, Code> {
        let client = &self.connections[&connection];
        let server = client.server;
        let decided = Draft::new(&self.head, client.session, &client.identities).decide(write);
        self.append(now, decided.iter().cloned().collect());
        let stats = self.advance(server, self.zxid);
        let change = decided?;
        Ok(multi::answer(write, &change, stats.first().copied().flatten()))
    }

    fn multi(&mut self, now: Duration, connection: ConnectionId, writes: &[Write]) -> Result<Reply, Code> {
        let client = &self.connections[&connection];
        let server = client.server;
        let mut draft = Draft::new(&self.head, client.session, &client.identities);
        let decided = multi::decide(&mut draft, writes);
        self.append(now, decided.clone().unwrap_or_default());
        let stats = self.advance(server, self.zxid);
        let answers = match decided {
            Ok(changes) => {
                let done = writes.iter().zip(&changes).zip(stats);
                let has_stats = self.config.version >= Version::V3_9;
                let answer =
                    |((write, change), stat): ((&Write, &Change), _)| match multi::answer(write, change, stat) {
                        // ZOOKEEPER-4026: before 3.7.2, 3.8.2 and 3.9.0 only that of a container has a stat.
                        Reply::Create2(path, _) if !has_stats && !change.is_container() => Ok(Reply::Create(path)),
                        answer => Ok(answer),
                    };
                done.map(answer).collect()
            }
            Err(answers) => answers,
        };
        Ok(Reply::Multi(answers))
    }

    fn authenticate(
        &mut self,
        connection: ConnectionId,
        xid: i32,
        scheme: &str,
        credentials: &[u8],
    ) -> Vec<Output> {
        let identity = Identity::authenticated(scheme, credentials);
        let result = identity.as_ref().map(|_| Reply::Nothing).map_err(|code| *code);
        self.note_answer("auth", &result);
        match (identity, self.connections.get_mut(&connection)) {
            (Ok(identity), Some(client)) if !client.identities.contains(&identity) => {
                client.identities.push(identity)
            }
            (Ok(_), _) => {}
            (Err(_), _) => self.ended.push(connection),
        }
        // It is no request to the tree, and its answer has no transaction.
        self.send(connection, Message::Reply { xid, zxid: 0, result });
        self.finish()
    }

    fn read(&mut self, connection: ConnectionId, request: Request) -> Result<Reply, Code> {
        let client = &self.connections[&connection];
        let Replica { tree, watches, .. } = &mut self.replicas[client.server];
        let readable = |path: &str| -> Result<&Node, Code> {
            let node = tree.get(path).ok_or(Code::NoNode)?;
            acl::check(&node.acl, acl::READ, &client.identities)?;
            Ok(node)
        };
        let names = |node: &Node| node.children.iter().cloned().collect();
        let reply = match request {
            Request::Exists { path, .. } if path.contains('\0') => return Err(Code::BadArguments),
            Request::Exists { path, watch } => {
                // ZOOKEEPER-2590: from 3.8.4 and 3.9.2 on it needs READ.
                if self.config.version >= Version::V3_9
                    && let Err(Code::NoAuth) = readable(&path)
                {
                    return Err(Code::NoAuth);
                }
                if watch {
                    watches.on_data(&path, connection);
                }
                Reply::Exists(tree.get(&path).ok_or(Code::NoNode)?.stat())
            }
            Request::GetData { path, watch } => {
                let node = readable(&path)?;
                if watch {
                    watches.on_data(&path, connection);
                }
                Reply::GetData(node.data.clone(), node.stat())
            }
            Request::GetChildren { path, watch } => {
                let node = readable(&path)?;
                if watch {
                    watches.on_children(&path, connection);
                }
                Reply::GetChildren(names(node))
            }
            Request::GetChildren2 { path, watch } => {
                let node = readable(&path)?;
                if watch {
                    watches.on_children(&path, connection);
                }
                Reply::GetChildren2(names(node), node.stat())
            }
            Request::MultiRead(reads) => {
                Reply::Multi(reads.into_iter().map(|read| self.read(connection, read)).collect())
            }
            Request::GetAcl(path) => {
                let node = tree.get(&path).ok_or(Code::NoNode)?;
                acl::check(&node.acl, acl::READ | acl::ADMIN, &client.identities)?;
                let shows_all = acl::check(&node.acl, acl::ADMIN, &client.identities).is_ok();
                let show = |acl: &acl::Acl| if shows_all { acl.clone() } else { acl.redacted() };
                Reply::GetAcl(node.acl.iter().map(show).collect(), node.stat())
            }
            Request::GetEphemerals(prefix) => {
                let of_session = tree.ephemerals(client.session);
                Reply::GetEphemerals(of_session.filter(|path| path.starts_with(&prefix)).cloned().collect())
            }
            Request::GetAllChildrenNumber(path) => {
                readable(&path)?;
                Reply::GetAllChildrenNumber(length(tree.count_below(&path)))
            }
            Request::SetWatches(request) => {
                let fired = watches.set(tree, &request, connection);
                self.notify(fired);
                Reply::Nothing
            }
            Request::AddWatch { path, recursive } => {
                watches.add(&path, recursive, connection);
                Reply::AddWatch
            }
            Request::CheckWatches { path, watcher } => {
                let found = watches.contains(&path, watcher, connection);
                found.then_some(Reply::Nothing).ok_or(Code::NoWatcher)?
            }
            Request::RemoveWatches { path, watcher } => {
                let removed = watches.remove(&path, watcher, connection);
                removed.then_some(Reply::Nothing).ok_or(Code::NoWatcher)?
            }
            Request::WhoAmI if self.config.version > Version::V3_6 => {
                Reply::WhoAmI(client.identities.iter().map(Identity::user).collect())
            }
            Request::Ping => Reply::Nothing,
            Request::Malformed => return Err(Code::MarshallingError),
            _ => return Err(Code::Unimplemented),
        };
        Ok(reply)
    }

    fn end_session(&mut self, now: Duration, session: i64) {
        self.sessions.close(session);
        let changes = Draft::new(&self.head, session, &[]).close_session();
        self.append(now, changes);
    }

    fn remove_containers(&mut self, now: Duration) {
        for path in self.head.disused_containers() {
            self.append(now, vec![Change::Delete { path }]);
        }
    }

    fn append(&mut self, now: Duration, changes: Vec<Change>) {
        let time = i64::try_from((now + self.wall_ahead).as_millis()).unwrap_or(i64::MAX);
        self.zxid += 1;
        for change in &changes {
            self.head.apply(change, self.zxid, time);
        }
        self.log.push_back(Entry { time, changes });
    }

    /// Lets a server apply the log up to a transaction. Returns the stats of the last one.
    fn advance(&mut self, server: usize, until: i64) -> Vec<Option<Stat>> {
        let first = self.zxid + 1 - i64::try_from(self.log.len()).unwrap_or(i64::MAX);
        let mut stats = Vec::new();
        while self.replicas[server].applied < until {
            let replica = &mut self.replicas[server];
            replica.applied += 1;
            let zxid = replica.applied;
            let entry = usize::try_from(zxid - first).ok().and_then(|index| self.log.get(index));
            let entry = entry.expect("the log reaches back to what a server lacks");
            stats.clear();
            // ZOOKEEPER-4655: before 3.9.0 events do not name their transaction.
            let cause = if self.config.version >= Version::V3_9 { zxid } else { NO_ZXID };
            let mut fired = Vec::new();
            for change in &entry.changes {
                let deleted = change.path().and_then(|path| replica.tree.get(path)).map(|node| node.acl.clone());
                stats.push(replica.tree.apply(change, zxid, entry.time));
                // Of what a client may not read its watches report nothing, but they have fired.
                // ZOOKEEPER-4799, CVE-2024-23944: Debian's 3.8.0 has the patch, as have 3.8.4 and 3.9.2.
                let hides = self.config.version > Version::V3_6;
                let may_read = |(connection, event): &(ConnectionId, Event)| {
                    let acl = replica.tree.get(&event.path).map(|node| &node.acl).or(deleted.as_ref());
                    let identities = self.connections.get(connection).map_or(&[][..], |one| &one.identities);
                    !hides || acl.is_none_or(|acl| acl::check(acl, acl::READ, identities).is_ok())
                };
                fired.extend(replica.watches.fire(change, cause).into_iter().filter(may_read));
                if let Change::CloseSession(session) = change {
                    let of_it = |one: &Connection| one.session == *session && one.server == server;
                    let ended = self.connections.iter().filter(|(_, one)| of_it(one)).map(|(id, _)| *id);
                    self.ended.extend(ended);
                }
            }
            self.notify(fired);
        }
        stats
    }

    fn notify(&mut self, fired: Vec<(ConnectionId, Event)>) {
        let events = fired.into_iter().map(|(connection, event)| (connection, Message::Event(event)));
        self.outputs.extend(events.map(|(connection, message)| Output { connection, message }));
    }

    /// Of several operations in one request each has an answer.
    fn note_answer(&mut self, operation: &'static str, result: &Result<Reply, Code>) {
        match result {
            Ok(Reply::Multi(parts)) => parts.iter().for_each(|part| self.note_answer(operation, part)),
            result => drop(self.answered.insert((operation, result.as_ref().err().copied()))),
        }
    }

    fn reply(&mut self, connection: ConnectionId, xid: i32, result: Result<Reply, Code>) {
        let server = self.connections.get(&connection).map_or(0, |client| client.server);
        let zxid = self.replicas[server].applied;
        self.send(connection, Message::Reply { xid, zxid, result });
    }

    fn send(&mut self, connection: ConnectionId, message: Message) {
        self.outputs.push(Output { connection, message });
    }

    /// Lets the servers that do not lag apply everything, closes what is to be closed, and returns what is to be sent.
    fn finish(&mut self) -> Vec<Output> {
        for server in 0..self.replicas.len() {
            if !self.replicas[server].lags {
                self.advance(server, self.zxid);
            }
        }
        for connection in std::mem::take(&mut self.ended) {
            self.disconnect(connection);
            self.send(connection, Message::Close);
        }
        let lacking = self.replicas.iter().map(|replica| self.zxid - replica.applied).max().unwrap_or(0);
        let needed = usize::try_from(lacking).unwrap_or(usize::MAX);
        self.log.drain(..self.log.len().saturating_sub(needed));
        std::mem::take(&mut self.outputs)
    }
}
