//! Feeds the requests of a run to simulated servers, in the order of the real transaction log, and compares the answers.
//!
//! The log has all writes in order. The header of an answer to a read has the last transaction that the server had applied, so
//! the simulated server is asked at the same place. Numbers of transactions and sessions differ, and are translated.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use zookeeper_simulation::{
    Code, Config, Connect, Connected, Ensemble, Event, Message, Output, Reply, Request, Stat,
};

use crate::log::{History, Transaction, What};
use crate::wire::{Connection, Seen};

/// The number of a request that has no answer on the wire.
const UNANSWERED: i32 = i32::MIN;
/// Errors of writes whose session is over, or has moved.
const OF_SESSION: [i32; 2] = [-112, -118];
const SERVERS: usize = 3;
/// The header of an answer: its number, the transaction, and the error.
const HEADER: usize = 16;

/// How much was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transactions: u64,
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) events: u64,
    /// Answers over connections that the simulated servers had closed.
    pub(crate) closed: u64,
    /// Differences behind a transaction that a real server has lost.
    pub(crate) excused: u64,
}

struct Session {
    number: i64,
    password: Vec<u8>,
    timeout: Duration,
    owner: u64,
}

pub(crate) struct Servers<'a> {
    ensemble: Ensemble,
    connections: &'a [Connection],
    /// What each connection has yet to see.
    rest: Vec<VecDeque<&'a Seen>>,
    attached: HashSet<u64>,
    sessions: HashMap<i64, Session>,
    /// The sessions of the real servers, by those of the simulated ones.
    real: HashMap<i64, i64>,
    /// The transactions of the real servers: the first is the first of the simulated ones.
    zxids: Vec<i64>,
    now: Duration,
    /// For connections that did not cross a proxy.
    next: u64,
    /// The first transaction that a real server has lost.
    lost: Option<i64>,
    pub(crate) counts: Counts,
    pub(crate) differences: Vec<String>,
}

impl<'a> Servers<'a> {
    pub(crate) fn new(connections: &'a [Connection]) -> Self {
        let mut config = Config::default();
        config.servers = SERVERS;
        config.timeouts = (Duration::ZERO, Duration::from_secs(3_600));
        Self {
            ensemble: Ensemble::new(config),
            connections,
            rest: connections.iter().map(|one| one.seen.iter().collect()).collect(),
            attached: HashSet::new(),
            sessions: HashMap::new(),
            real: HashMap::new(),
            zxids: Vec::new(),
            now: Duration::ZERO,
            next: connections.len() as u64,
            lost: None,
            counts: Counts::default(),
            differences: Vec::new(),
        }
    }

    pub(crate) fn play(&mut self, History { transactions: log, lost }: &History) {
        self.lost = lost.as_ref().map(|(zxid, _)| *zxid);
        // A session may give the same number again over another connection.
        let mut requests = HashMap::<(i64, i32), Vec<(usize, usize)>>::new();
        let mut reads = BTreeMap::<usize, Vec<(usize, usize)>>::new();
        let logged: HashSet<(i64, i32, i64)> = log.iter().map(|one| (one.session, one.xid, one.zxid)).collect();
        for (at, connection) in self.connections.iter().enumerate() {
            let session = connection.session.cast_signed();
            for (index, request) in connection.requests.iter().enumerate() {
                match &request.answer {
                    Some(answer) if !logged.contains(&(session, request.xid, answer.zxid)) => {
                        let place = log.partition_point(|one| one.zxid <= answer.zxid);
                        reads.entry(place).or_default().push((at, index));
                    }
                    _ => requests.entry((session, request.xid)).or_default().push((at, index)),
                }
            }
        }
        for place in 0..=log.len() {
            for (at, index) in reads.remove(&place).unwrap_or_default() {
                self.read(at, index);
            }
            if let Some(transaction) = log.get(place) {
                self.now = Duration::from_millis(transaction.time);
                self.counts.transactions += 1;
                self.zxids.push(transaction.zxid);
                let same = requests.get(&(transaction.session, transaction.xid)).map_or(&[][..], Vec::as_slice);
                let zxid = |(at, index): &&(usize, usize)| {
                    self.connections[*at].requests[*index].answer.as_ref().map(|answer| answer.zxid)
                };
                let answered = same.iter().find(|one| zxid(one) == Some(transaction.zxid));
                let lost = || same.iter().find(|one| zxid(one).is_none());
                self.write(transaction, answered.or_else(lost).copied());
            }
        }
    }

    /// The next transaction of the log. `request`: what has asked for it, if that has crossed a proxy.
    fn write(&mut self, transaction: &Transaction, request: Option<(usize, usize)>) {
        let real = transaction.session;
        match &transaction.what {
            What::CreateSession(timeout) => return self.open(real, Duration::from_millis(*timeout)),
            What::CloseSession if request.is_none() => {
                if let Some(session) = self.sessions.remove(&real) {
                    let outputs = self.ensemble.expire(self.now, session.number);
                    return self.take(outputs);
                }
            }
            _ => {}
        }
        let sent = request.and_then(|(at, index)| {
            let (_, read) = Request::read(&self.connections[at].requests[index].body)?;
            Some((at, &self.connections[at].requests[index], read))
        });
        let is_over = matches!(transaction.what, What::CloseSession) && !self.sessions.contains_key(&real);
        if is_over || matches!(transaction.what, What::Error(-112 | -118)) {
            if let Some((at, request, _)) = sent.filter(|(_, request, _)| request.answer.is_some()) {
                let rest = &mut self.rest[at];
                if matches!(rest.front(), Some(Seen::Answer(xid, _)) if *xid == request.xid) {
                    rest.pop_front();
                }
            }
            let nobody = self.nobody();
            let outputs =
                self.ensemble.handle(self.now, nobody, UNANSWERED, Request::Refused(Code::SessionExpired));
            return self.take(outputs);
        }
        // It may have come over a connection that the session has left meanwhile.
        let (connection, xid, wanted) = match sent {
            Some((at, request, wanted)) => {
                let answered = request.answer.is_some();
                if answered {
                    self.attach(at);
                }
                let owner = self.sessions.get(&real).map_or(at as u64, |session| session.owner);
                if answered && owner == at as u64 {
                    self.counts.writes += 1;
                    (owner, request.xid, wanted)
                } else {
                    (owner, UNANSWERED, wanted)
                }
            }
            None => {
                let wanted = match &transaction.what {
                    What::Writes(writes) => Request::Multi(writes.clone()),
                    _ => Request::Refused(Code::NoNode),
                };
                let owner = self.sessions.get(&real).map(|session| session.owner);
                (owner.unwrap_or_else(|| self.nobody()), UNANSWERED, wanted)
            }
        };
        if matches!(wanted, Request::CloseSession) {
            self.sessions.remove(&real);
        }
        let outputs = self.ensemble.handle(self.now, connection, xid, wanted);
        let is_refused = matches!(transaction.what, What::Error(_));
        if !outputs.iter().any(|one| matches!(one.message, Message::Reply { xid: its, .. } if its == xid)) {
            self.differ(format!("{transaction:?} gets no answer from simulated servers, but {outputs:?}"));
        }
        for Output { message, .. } in &outputs {
            if let Message::Reply { xid: its, zxid, result } = message
                && *its == xid
            {
                let failed = match result {
                    Ok(Reply::Multi(parts)) => parts.iter().any(Result::is_err),
                    result => result.is_err(),
                };
                if failed != is_refused || usize::try_from(*zxid).ok() != Some(self.zxids.len()) {
                    self.differ(format!(
                        "transaction {:x} is {transaction:?}, and simulated servers answer {result:?} as number {zxid} of {}",
                        transaction.zxid,
                        self.zxids.len()
                    ));
                }
            }
        }
        self.take(outputs);
    }

    /// A session begins, over its first connection.
    fn open(&mut self, real: i64, timeout: Duration) {
        let own = self.connections.iter().enumerate().filter(|(_, one)| one.session.cast_signed() == real);
        let first = own.min_by_key(|(_, one)| one.began).map(|(at, one)| (at as u64, one.server));
        let (connection, server) = first.unwrap_or_else(|| (self.new_connection(), 0));
        let outputs = self.ensemble.connect(self.now, server, connection, &Connect::new(timeout));
        for Output { message, .. } in outputs {
            if let Message::Connected(Connected { session: number, password, .. }) = message {
                self.real.insert(number, real);
                let session = Session { number, password: password.to_vec(), timeout, owner: connection };
                self.sessions.insert(real, session);
            }
        }
        self.attached.insert(connection);
    }

    fn new_connection(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A connection of the servers themselves, which have no session. The session that it has here is no transaction there.
    fn nobody(&mut self) -> u64 {
        if !self.sessions.contains_key(&0) {
            let before = self.zxids.iter().rev().nth(1).copied().unwrap_or_default();
            let at = self.zxids.len() - 1;
            self.zxids.insert(at, before);
            self.open(0, Duration::from_secs(3_600));
        }
        self.sessions.get(&0).map_or(0, |session| session.owner)
    }

    /// A session has moved to another connection.
    fn attach(&mut self, at: usize) {
        let (connection, one) = (at as u64, &self.connections[at]);
        if !self.attached.insert(connection) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&one.session.cast_signed()) else { return };
        session.owner = connection;
        let mut connect = Connect::new(session.timeout);
        (connect.session, connect.password) = (session.number, session.password.clone());
        let outputs = self.ensemble.connect(self.now, one.server, connection, &connect);
        self.take(outputs);
    }

    /// A request that makes no transaction is asked where it was answered.
    fn read(&mut self, at: usize, index: usize) {
        self.attach(at);
        let request = &self.connections[at].requests[index];
        let Some((xid, mut wanted)) = Request::read(&request.body) else { return };
        let is_of_session = request.answer.as_ref().is_some_and(|answer| OF_SESSION.contains(&answer.err));
        if request.sent.op.is_write() {
            if !is_of_session {
                self.differ(format!("{:?} was answered, and is no transaction", request.sent));
            }
            return;
        }
        if let Request::SetWatches(watches) = &mut wanted {
            let since = self.zxids.partition_point(|zxid| *zxid <= watches.since);
            watches.since = i64::try_from(since).unwrap_or(i64::MAX);
        }
        self.counts.reads += 1;
        let outputs = self.ensemble.handle(self.now, at as u64, xid, wanted);
        if !outputs.iter().any(|one| matches!(one.message, Message::Reply { .. })) {
            self.counts.closed += 1;
        }
        self.take(outputs);
    }

    fn differ(&mut self, difference: String) {
        if self.lost.is_some_and(|lost| self.zxids.last().is_some_and(|last| *last >= lost)) {
            self.counts.excused += 1;
            return;
        }
        self.differences.push(format!("servers, {} transactions: {difference}", self.zxids.len()));
    }

    /// Compares what is sent to each connection with what it has seen. The order of events of one transaction is not
    /// compared: servers have none where a session ends.
    fn take(&mut self, outputs: Vec<Output>) {
        let mut events = BTreeMap::<u64, Vec<(i32, String)>>::new();
        let mut replies = Vec::new();
        for Output { connection, message, .. } in outputs {
            match message {
                Message::Event(Event { kind, path, .. }) => {
                    events.entry(connection).or_default().push((kind as i32, path))
                }
                Message::Reply { xid, result, .. } if xid != UNANSWERED => replies.push((connection, xid, result)),
                _ => {}
            }
        }
        for (connection, events) in events {
            self.compare_events(connection, events);
        }
        for (connection, xid, result) in replies {
            self.compare_answer(connection, xid, result);
        }
    }

    fn seen(&mut self, connection: u64) -> Option<&mut VecDeque<&'a Seen>> {
        self.rest.get_mut(usize::try_from(connection).ok()?)
    }

    /// A connection may end before it has seen all that the servers have sent.
    fn compare_events(&mut self, connection: u64, mut wanted: Vec<(i32, String)>) {
        let Self { rest, counts, .. } = self;
        let Some(rest) = usize::try_from(connection).ok().and_then(|at| rest.get_mut(at)) else { return };
        let mut differing = None;
        for _ in 0..wanted.len() {
            match rest.pop_front() {
                None => break,
                Some(Seen::Event(kind, path)) => {
                    counts.events += 1;
                    match wanted.iter().position(|(its, of)| its == kind && of == path) {
                        Some(found) => drop(wanted.swap_remove(found)),
                        None => differing = Some(format!("the event {kind} of {path}")),
                    }
                }
                Some(Seen::Answer(xid, _)) => differing = Some(format!("the answer {xid}")),
            }
            if differing.is_some() {
                break;
            }
        }
        if let Some(seen) = differing {
            self.forget(connection);
            self.differ(format!("connection {connection} has seen {seen}, and simulated servers send {wanted:?}"));
        }
    }

    fn compare_answer(&mut self, connection: u64, xid: i32, result: Result<Reply, Code>) {
        let first = self.seen(connection).and_then(VecDeque::pop_front);
        let wanted = Message::Reply { xid, zxid: 0, result: result.map(|reply| self.translated(reply)) };
        let difference = match first {
            None => return,
            Some(Seen::Answer(its, body)) => {
                let frame = wanted.to_frame().unwrap_or_default();
                let wanted_body = frame.get(4..).unwrap_or_default();
                if *its == xid && is_same(body, wanted_body, &wanted) {
                    return;
                }
                format!("the answer {its} {}", shown(body))
            }
            Some(Seen::Event(kind, path)) => format!("the event {kind} of {path}"),
        };
        self.forget(connection);
        let request = usize::try_from(connection).ok().and_then(|at| self.connections.get(at));
        let request = request.and_then(|one| one.requests.iter().find(|one| one.xid == xid)).map(|one| &one.sent);
        self.differ(format!(
            "connection {connection} has seen {difference}; simulated servers answer {wanted:?} to {request:?}"
        ));
    }

    /// After a difference nothing more is compared on a connection.
    fn forget(&mut self, connection: u64) {
        if let Some(rest) = self.seen(connection) {
            rest.clear();
        }
    }

    fn translated(&self, reply: Reply) -> Reply {
        match reply {
            Reply::Create2(path, stat) => Reply::Create2(path, self.stat(stat)),
            Reply::SetData(stat) => Reply::SetData(self.stat(stat)),
            Reply::SetAcl(stat) => Reply::SetAcl(self.stat(stat)),
            Reply::Exists(stat) => Reply::Exists(self.stat(stat)),
            Reply::GetData(data, stat) => Reply::GetData(data, self.stat(stat)),
            Reply::GetChildren2(names, stat) => Reply::GetChildren2(names, self.stat(stat)),
            Reply::GetAcl(acl, stat) => Reply::GetAcl(acl, self.stat(stat)),
            Reply::Multi(parts) => {
                Reply::Multi(parts.into_iter().map(|part| part.map(|reply| self.translated(reply))).collect())
            }
            reply => reply,
        }
    }

    /// The numbers of the real servers.
    fn stat(&self, mut stat: Stat) -> Stat {
        let zxid = |zxid: i64| {
            let at = usize::try_from(zxid).ok().and_then(|zxid| zxid.checked_sub(1));
            at.and_then(|at| self.zxids.get(at)).copied().unwrap_or(zxid)
        };
        (stat.czxid, stat.mzxid, stat.pzxid) = (zxid(stat.czxid), zxid(stat.mzxid), zxid(stat.pzxid));
        stat.ephemeral_owner = self.real.get(&stat.ephemeral_owner).copied().unwrap_or(stat.ephemeral_owner);
        stat
    }
}

/// Whether an answer is the same, but for the transaction in its header. Children have no order.
fn is_same(body: &[u8], wanted: &[u8], reply: &Message) -> bool {
    let is_list = matches!(
        reply,
        Message::Reply {
            result: Ok(Reply::GetChildren(_) | Reply::GetChildren2(..) | Reply::GetEphemerals(_)),
            ..
        }
    );
    let parts = |body: &[u8]| {
        let (header, rest) = body.split_at_checked(HEADER)?;
        let names = if is_list { sorted(rest)? } else { (Vec::new(), rest.to_vec()) };
        Some((header[..4].to_vec(), header[12..].to_vec(), names))
    };
    let (one, other) = (parts(body), parts(wanted));
    one.is_some() && one == other
}

/// A frame with its bytes as characters, where they are some.
fn shown(body: &[u8]) -> String {
    body.escape_ascii().to_string()
}

/// The strings at the beginning, sorted, and what is behind them.
fn sorted(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
    let int = |bytes: &[u8]| {
        let (int, rest) = bytes.split_first_chunk()?;
        Some((usize::try_from(i32::from_be_bytes(*int)).ok()?, rest.to_vec()))
    };
    let (count, mut rest) = int(bytes)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        let (length, behind) = int(&rest)?;
        let (string, behind) = behind.split_at_checked(length)?;
        strings.push(string.to_vec());
        rest = behind.to_vec();
    }
    strings.sort_unstable();
    Some((strings, rest))
}

#[cfg(test)]
mod tests {
    use testbed::proxy::Op;
    use zookeeper_simulation::{Acl, Identity, Write};

    use super::*;
    use crate::form::Sent;
    use crate::wire::Answer;

    const SESSION: i64 = 77;
    const FIRST: i64 = 0x1_0000_0001;
    const TIME: u64 = 9;

    /// A session creates a node and looks at it with a watch, and another deletes it.
    struct Case {
        log: Vec<Transaction>,
        lost: Option<(i64, String)>,
        connection: Connection,
    }

    fn bytes(numbers: &[i32], texts: &[&str]) -> Vec<u8> {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        for text in texts {
            bytes.extend(i32::try_from(text.len()).expect("it is short").to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    impl Case {
        fn new() -> Self {
            let transaction = |session, xid, after: i64, what| Transaction {
                session,
                xid,
                zxid: FIRST + after,
                time: TIME,
                what,
            };
            let acl = vec![Acl::new(31, Identity::new("world", "anyone"))];
            let path = || "/x".to_owned();
            let create = Write::Create { path: path(), data: Vec::new(), acl, flags: 0, with_stat: false };
            let delete = Write::Delete { path: path(), version: -1 };
            let log = vec![
                transaction(SESSION, 0, 0, What::CreateSession(1_000)),
                transaction(SESSION, 1, 1, What::Writes(vec![create])),
                transaction(0, 0, 2, What::Writes(vec![delete])),
            ];
            let request = |xid, op, body| crate::wire::Request {
                xid,
                sent: Sent { op, path: path(), watch: op == Op::Exists, parts: Vec::new() },
                body,
                answer: Some(Answer { at: 1, zxid: FIRST + 1, err: 0, errors: Vec::new() }),
                at: 0,
            };
            let created = [bytes(&[1, 1], &["/x", ""]), bytes(&[1, 31], &["world", "anyone"]), bytes(&[0], &[])];
            let looked = [bytes(&[2, 3], &["/x"]), vec![1]];
            let zxid = (FIRST + 1).to_be_bytes();
            let header = |xid: i32| [&xid.to_be_bytes()[..], &zxid, &[0; 4]].concat();
            let times = [TIME; 2].map(u64::to_be_bytes).concat();
            let stat = [&zxid[..], &zxid, &times, &[0; 28], &zxid].concat();
            let connection = Connection {
                session: SESSION.cast_unsigned(),
                requests: vec![request(1, Op::Create, created.concat()), request(2, Op::Exists, looked.concat())],
                seen: vec![
                    Seen::Answer(1, [header(1), bytes(&[], &["/x"])].concat()),
                    Seen::Answer(2, [header(2), stat].concat()),
                    Seen::Event(2, path()),
                ],
                ..Connection::default()
            };
            Self { log, lost: None, connection }
        }

        fn first_difference(&self) -> String {
            let mut servers = Servers::new(std::slice::from_ref(&self.connection));
            servers.play(&History { transactions: self.log.clone(), lost: self.lost.clone() });
            servers.differences.first().cloned().unwrap_or_default()
        }
    }

    #[test]
    fn answers_that_simulated_servers_give_are_allowed() {
        assert_eq!(Case::new().first_difference(), "");
    }

    #[test]
    fn other_answers_and_events_are_found() {
        let finds = |words: &str, change: fn(&mut Case)| {
            let mut case = Case::new();
            change(&mut case);
            let difference = case.first_difference();
            assert!(difference.contains(words), "{words}: {difference}");
        };
        finds("the answer 1", |case| case.connection.seen[0] = Seen::Answer(1, bytes(&[1, 0, 0, 0], &["/y"])));
        finds("the answer 2", |case| drop(case.connection.seen.remove(0)));
        finds("the event 3 of /x", |case| case.connection.seen[2] = Seen::Event(3, "/x".to_owned()));
        finds("the event 2 of /x", |case| case.connection.seen.swap(1, 2));
        finds("is Transaction", |case| case.log[1].what = What::Error(-110));
        finds("is no transaction", |case| drop(case.log.remove(1)));
        let differing = |lost: i64| {
            let mut case = Case::new();
            case.lost = Some((lost, "server-0".to_owned()));
            case.connection.seen[2] = Seen::Event(3, "/x".to_owned());
            case.first_difference()
        };
        assert_eq!(differing(FIRST + 1), "", "a server has lost a transaction before");
        assert_ne!(differing(FIRST + 3), "");
    }
}
