//! The simulated servers beside those of the world: each is asked the same, and has to answer alike.
//!
//! [`zookeeper_simulation`] is compared with real servers, request by request. Here the [`Log`](crate::server::Log) is compared
//! with it, so what histories and cases show does not rest on servers of the world's own making.
//!
//! The simulated servers apply a write and all before it in one step, and take no write over a connection that its session has
//! left. A history that is compared does the same: see [`Shadow::may`] and [`Shadow::follow`].

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use zookeeper_simulation::{
    Acl, Code, Config, Connect, ConnectionId, Ensemble, Event, EventKind, Message, Output, Reply, Request,
    SetWatches, Write,
};

use crate::client::watch_of;
use crate::machine::{Admission, Ask, Kind, Name, Outcome, Path, Spec, Watch};
use crate::world::{Act, Doubt, World};

/// What the servers of a world did.
#[derive(Clone, Debug)]
pub(crate) enum Served {
    Write {
        owner: u64,
        ask: Ask,
        outcome: Outcome,
    },
    Read {
        client: usize,
        ask: Ask,
        outcome: Outcome,
    },
    Fired {
        client: usize,
        watch: Watch,
    },
    /// The client's server forgets a watch.
    Unwatched {
        client: usize,
        watch: Watch,
    },
    /// A client has a connection, and sets these watches again.
    Connected {
        client: usize,
        session: u64,
        watches: Vec<Watch>,
    },
    DeletedByHand {
        path: Path,
        name: Name,
    },
    Ended {
        session: u64,
    },
}

/// Sessions expire by a step of the history, and never by this clock.
const NOW: Duration = Duration::from_secs(1_000_000);
const TIMEOUT: Duration = Duration::from_secs(10);
/// No connection has this number.
const NONE: ConnectionId = 0;
/// The paths of all histories.
const PATHS: Path = 4;
const PERSISTENT: i32 = 0;
const EPHEMERAL: i32 = 1;
const EPHEMERAL_SEQUENTIAL: i32 = 3;

type Answer = Result<Reply, Code>;

/// The connection of a client to its own server.
#[derive(Debug, Default)]
struct Link {
    connection: ConnectionId,
    /// The newest transaction that the client knows of.
    known: i64,
    /// Its server has applied more than that of the world: a request of a lost connection came over it.
    is_ahead: bool,
    /// The events that the simulated server has sent, and those of the world's.
    sent: BTreeSet<String>,
    expected: BTreeSet<String>,
    /// Of watches that the client has dropped. The simulated server has them until they fire.
    dropped: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct Shadow {
    ensemble: Ensemble,
    links: Vec<Link>,
    /// Of somebody who deletes nodes by hand.
    operator: ConnectionId,
    last: ConnectionId,
    /// The sessions of the world: how each is continued, and its last connection.
    sessions: HashMap<u64, (Connect, ConnectionId)>,
    /// The whole names of nodes, by their path and guid.
    texts: HashMap<(Path, u128), String>,
    /// How many requests and events were compared.
    pub(crate) compared: u64,
}

impl Shadow {
    /// A server for each client of a world in which nothing has happened, and one for the operator.
    pub(crate) fn of<T: Doubt>(world: &World<T>) -> Self {
        let count = world.clients.len();
        let mut config = Config::default();
        config.servers = count + 1;
        let mut shadow = Self {
            ensemble: Ensemble::new(config),
            links: (0..count).map(|_| Link::default()).collect(),
            operator: NONE,
            last: NONE,
            sessions: HashMap::new(),
            texts: HashMap::new(),
            compared: 0,
        };
        shadow.operator = shadow.connect(count, &Connect::new(TIMEOUT)).0;
        for path in 0..PATHS {
            let created = create(path_text(path), PERSISTENT);
            shadow.ask(shadow.operator, Request::Write(created)).expect("it is new");
        }
        for (client, one) in world.clients.iter().enumerate() {
            shadow.connected(client, one.session, &[]);
            shadow.ensemble.lag(client, true);
        }
        shadow
    }

    /// Whether real servers would allow this step as it is compared.
    pub(crate) fn may<T: Doubt>(&self, world: &World<T>, act: &Act) -> bool {
        match *act {
            Act::Up { client: c, to, foreign_session, .. } => {
                let (client, link) = (&world.clients[c], &self.links[c]);
                // Once the session has another connection, servers refuse the writes of the lost one.
                let is_free =
                    client.closed != 0 || client.ghosts.iter().all(|(_, owner)| client.orphans.contains(owner));
                let is_same = to == client.seen && !foreign_session && !link.is_ahead;
                is_free && (to == world.log.end || client.closed != 0 || is_same)
            }
            // A server that is cut off would learn of it.
            Act::Ghost(c, true) => !world.clients[c].is_cut_off,
            _ => true,
        }
    }

    /// Follows a step of the world, which may go on until a write is applied. Returns what differs.
    pub(crate) fn follow<T: Doubt>(&mut self, world: &mut World<T>, act: Act) -> Option<String> {
        if let Act::Commit(c) | Act::Advance(c) | Act::Ghost(c, true) = act {
            while world.clients[c].is_up && !world.clients[c].is_cut_off && world.clients[c].seen < world.log.end {
                world.step(Act::Advance(c));
            }
        }
        match act {
            Act::Up { client: c, to, .. } if to == world.log.end => self.catch_up(c),
            Act::Ghost(c, true) => self.links[c].is_ahead |= !world.clients[c].is_up,
            _ => {}
        }
        let served = std::mem::take(&mut world.served.0);
        let differs = served.into_iter().find_map(|one| self.serve(one));
        // Behind what was served: a session may have ended meanwhile.
        if let Act::Advance(c) = act {
            self.catch_up(c);
        }
        for (link, client) in self.links.iter_mut().zip(&world.clients) {
            if !client.is_up {
                link.connection = NONE;
            }
        }
        differs.or_else(|| self.compare_events(world))
    }

    /// Serves what the servers of the world did. Returns what differs.
    fn serve(&mut self, served: Served) -> Option<String> {
        match served {
            Served::Write { owner, ask, outcome } => {
                let connection = self.sessions[&owner].1;
                let answer = self.ask(connection, self.write(&ask));
                self.differs(&ask, &outcome, answer)
            }
            Served::Read { client, ask, outcome } => {
                let connection = self.links[client].connection;
                let answer = self.ask(connection, self.read(&ask));
                if let (Some(watch), Ok(_)) = (watch_of(&ask), &answer) {
                    let event = self.event(&watch);
                    self.links[client].dropped.remove(&event);
                }
                self.differs(&ask, &outcome, answer)
            }
            Served::Fired { client, watch } => {
                let event = self.event(&watch);
                self.links[client].expected.insert(event);
                None
            }
            Served::Unwatched { client, watch } => {
                let event = self.event(&watch);
                self.links[client].dropped.insert(event);
                None
            }
            Served::Connected { client, session, watches } => {
                self.connected(client, session, &watches);
                None
            }
            Served::DeletedByHand { path, name } => {
                let deleted = delete(self.texts[&(path, name.guid)].clone());
                let answer = self.ask(self.operator, Request::Write(deleted));
                answer.err().map(|code| format!("deleted by hand: {code:?}"))
            }
            Served::Ended { session } => {
                let outputs = self.ensemble.expire(NOW, self.sessions[&session].0.session);
                self.take(outputs);
                None
            }
        }
    }

    /// A client has a new connection to its server: of the session that it had, or of a new one.
    fn connected(&mut self, client: usize, session: u64, watches: &[Watch]) {
        let known = self.links[client].known;
        let request = self.sessions.get(&session).map(|(request, _)| request.clone());
        let mut request = request.unwrap_or_else(|| Connect::new(TIMEOUT));
        request.last_zxid = known;
        let (connection, connect) = self.connect(client, &request);
        self.sessions.insert(session, (connect, connection));
        self.links[client] = Link { connection, known, ..Link::default() };
        let mut request = SetWatches::default();
        request.since = known;
        for watch in watches {
            let [data, _, children] = &mut request.one_shot;
            match *watch {
                Watch::Own(_, path, name) => data.push(self.text(path, name)),
                Watch::Predecessor(_, path, name) => children.push(self.text(path, name)),
                Watch::Path(path) => children.push(path_text(path)),
            }
        }
        self.ask(connection, Request::SetWatches(request)).expect("watches can be set again");
    }

    fn connect(&mut self, server: usize, request: &Connect) -> (ConnectionId, Connect) {
        self.last += 1;
        let outputs = self.ensemble.connect(NOW, server, self.last, request);
        let connected = outputs.iter().find_map(|output| match &output.message {
            Message::Connected(connected) if output.connection == self.last && connected.session != 0 => {
                Some(connected.clone())
            }
            _ => None,
        });
        self.take(outputs);
        let connected = connected.expect("the session lives, and the server is not behind");
        let mut again = Connect::new(TIMEOUT);
        (again.session, again.password) = (connected.session, connected.password.to_vec());
        (self.last, again)
    }

    /// A client's server applies all that was committed.
    fn catch_up(&mut self, client: usize) {
        for lags in [false, true] {
            let outputs = self.ensemble.lag(client, lags);
            self.take(outputs);
        }
    }

    fn ask(&mut self, connection: ConnectionId, request: Request) -> Answer {
        self.compared += 1;
        let outputs = self.ensemble.handle(NOW, connection, 1, request);
        self.take(outputs).expect("the connection stands")
    }

    /// Takes what the simulated servers send. Returns the answer, if there is one.
    fn take(&mut self, outputs: Vec<Output>) -> Option<Answer> {
        let mut answer = None;
        for Output { connection, message, .. } in outputs {
            let link = self.links.iter_mut().find(|link| link.connection == connection);
            match (message, link) {
                (Message::Event(Event { kind, path, .. }), Some(link)) => {
                    link.sent.insert(format!("{kind:?} {path}"));
                }
                (Message::Reply { zxid, result, .. }, link) => {
                    answer = Some(result);
                    if let Some(link) = link {
                        link.known = zxid;
                    }
                }
                _ => {}
            }
        }
        answer
    }

    fn write(&self, ask: &Ask) -> Request {
        let text = |(path, name): &(Path, Name)| self.text(*path, *name);
        let check = |path| Write::Check { path, version: -1 };
        let writes = match ask {
            Ask::Create { guid, spec, counts, .. } => {
                let nodes = spec.queues.iter().enumerate();
                let nodes = nodes.map(|(at, (path, kind))| prefix(*path, guid + at as u128, *kind));
                let creates = nodes.map(|prefix| create(prefix, EPHEMERAL_SEQUENTIAL));
                let counted = counted(spec).into_iter().filter(|_| *counts).map(path_text);
                let set = |path| Write::SetData { path, data: Vec::new(), version: -1 };
                creates.chain(counted.map(set)).collect()
            }
            Ask::Delete { nodes, .. } => nodes.iter().map(|node| delete(text(node))).collect(),
            Ask::Replace { path, name, guid, .. } => {
                let writer = self.text(*path, *name);
                let number = writer.rsplit('-').next().expect("it has a number");
                let reader = format!("{}{number}", prefix(*path, *guid, Kind::Read));
                vec![create(reader, EPHEMERAL), delete(writer)]
            }
            Ask::Confirm { nodes, .. } => nodes.iter().map(|node| check(text(node))).collect(),
            Ask::Barrier { path, .. } => vec![check(path_text(*path))],
            _ => vec![check("/".to_owned())],
        };
        Request::Multi(writes)
    }

    fn read(&self, ask: &Ask) -> Request {
        match *ask {
            Ask::List { path, watches: watch, .. } => Request::GetChildren2 { path: path_text(path), watch },
            Ask::Watch { path, name, .. } => Request::GetChildren2 { path: self.text(path, name), watch: true },
            Ask::WatchOwn { path, name, .. } => Request::GetData { path: self.text(path, name), watch: true },
            Ask::ListOwn => Request::GetEphemerals("/".to_owned()),
            _ => Request::Exists { path: "/".to_owned(), watch: false },
        }
    }

    /// Whether an answer is not the one of the world's server.
    fn differs(&mut self, ask: &Ask, outcome: &Outcome, answer: Answer) -> Option<String> {
        let is_same = match (ask, outcome, &answer) {
            (
                Ask::Create { guid, spec, .. },
                Outcome::Created { names, counted: count, .. },
                Ok(Reply::Multi(parts)),
            ) => {
                self.created(*guid, spec, parts) == Some(names.len())
                    && self.counts(spec, parts) == count.map(|count| (count.others, count.turns))
            }
            (Ask::Replace { path, guid, .. }, Outcome::Created { .. }, Ok(Reply::Multi(parts))) => {
                let text = parts.iter().find_map(path_of);
                text.is_some_and(|text| self.texts.insert((*path, *guid), text.to_owned()).is_none())
            }
            (
                Ask::List { path, .. },
                Outcome::Names { names, has_no_data, .. },
                Ok(Reply::GetChildren2(children, stat)),
            ) => {
                let mut children = children.clone();
                children.sort_unstable_by_key(|text| number(text));
                let names = names.iter().map(|name| self.text(*path, *name));
                let whole = children.iter().map(|name| format!("{}/{name}", path_text(*path)));
                names.eq(whole) && *has_no_data == (stat.data_length == 0)
            }
            (Ask::ListOwn, Outcome::Names { names, .. }, Ok(Reply::GetEphemerals(own))) => {
                let text = |guid: u128| self.texts.iter().find(|((_, of), _)| *of == guid).map(|(_, text)| text);
                let names: BTreeSet<_> = names.iter().filter_map(|name| text(name.guid)).collect();
                own.len() == names.len() && own.iter().all(|text| names.contains(text))
            }
            (_, Outcome::Stat { owner }, Ok(Reply::GetChildren2(_, stat) | Reply::GetData(_, stat))) => {
                self.sessions.get(owner).is_some_and(|(connect, _)| connect.session == stat.ephemeral_owner)
            }
            (_, Outcome::Done, Ok(Reply::Multi(parts))) => parts.iter().all(Result::is_ok),
            (_, Outcome::Done, Ok(Reply::Exists(_))) => true,
            (_, Outcome::NoNode, Ok(Reply::Multi(parts))) => refusal(parts) == Some(Code::NoNode),
            (_, Outcome::Exists, Ok(Reply::Multi(parts))) => refusal(parts) == Some(Code::NodeExists),
            (_, Outcome::NoNode, Err(code)) => *code == Code::NoNode,
            _ => false,
        };
        (!is_same).then(|| format!("{ask:?}: {outcome:?}, simulated: {answer:?}"))
    }

    /// Notes the names of nodes that were created, and returns how many.
    fn created(&mut self, guid: u128, spec: &Spec, parts: &[Answer]) -> Option<usize> {
        let created = spec.queues.iter().zip(parts).enumerate();
        let named = created.map(|(at, ((path, _), part))| {
            let text = path_of(part)?.to_owned();
            self.texts.insert((*path, guid + at as u128), text).is_none().then_some(())
        });
        Some(named.collect::<Option<Vec<()>>>()?.len())
    }

    /// How many others were there, by the stats of the paths.
    fn counts(&self, spec: &Spec, parts: &[Answer]) -> Option<(u32, u32)> {
        let all: u32 = parts.iter().filter_map(children).sum();
        parts.last().and_then(children).map(|last| {
            let turns = if turn(spec).is_some() { last } else { 0 };
            (all - turns - u32::try_from(spec.queues.len()).expect("they are few"), turns)
        })
    }

    /// Each event of the world has to come from the simulated servers, and these send no other but of watches that were dropped.
    fn compare_events<T: Doubt>(&mut self, world: &World<T>) -> Option<String> {
        self.links.iter_mut().zip(&world.clients).find_map(|(link, client)| {
            let (sent, expected) = (std::mem::take(&mut link.sent), std::mem::take(&mut link.expected));
            self.compared += expected.len() as u64;
            let more: Vec<_> = sent.difference(&expected).filter(|event| !link.dropped.contains(*event)).collect();
            let is_same = expected.is_subset(&sent) && (more.is_empty() || client.closed != 0);
            (!is_same).then(|| format!("events {expected:?}, simulated: {sent:?}"))
        })
    }

    fn event(&self, watch: &Watch) -> String {
        match *watch {
            Watch::Predecessor(_, path, name) | Watch::Own(_, path, name) => {
                format!("{:?} {}", EventKind::NodeDeleted, self.text(path, name))
            }
            Watch::Path(path) => format!("{:?} {}", EventKind::NodeChildrenChanged, path_text(path)),
        }
    }

    fn text(&self, path: Path, name: Name) -> String {
        self.texts[&(path, name.guid)].clone()
    }
}

fn path_text(path: Path) -> String {
    format!("/{path}")
}

fn prefix(path: Path, guid: u128, kind: Kind) -> String {
    format!("/{path}/{guid:032x}-{kind:?}-")
}

fn number(text: &str) -> Option<i32> {
    text.rsplit('-').next()?.parse().ok()
}

fn create(path: String, flags: i32) -> Write {
    Write::Create { path, data: Vec::new(), acl: Acl::open(), flags, with_stat: false }
}

fn delete(path: String) -> Write {
    Write::Delete { path, version: -1 }
}

fn turn(spec: &Spec) -> Option<Path> {
    if let Admission::Permits { turn, .. } = spec.admission { turn } else { None }
}

/// The paths whose children are counted: the turn's comes last.
fn counted(spec: &Spec) -> Vec<Path> {
    let mut paths: Vec<Path> = spec.queues.iter().map(|(path, _)| *path).collect();
    paths.dedup();
    paths.extend(turn(spec));
    paths
}

fn path_of(part: &Answer) -> Option<&str> {
    if let Ok(Reply::Create(path) | Reply::Create2(path, _)) = part { Some(path) } else { None }
}

fn children(part: &Answer) -> Option<u32> {
    if let Ok(Reply::SetData(stat)) = part { u32::try_from(stat.num_children).ok() } else { None }
}

/// Why a transaction was refused.
fn refusal(parts: &[Answer]) -> Option<Code> {
    parts.iter().find_map(|part| part.as_ref().err().copied().filter(|code| *code != Code::Ok))
}
