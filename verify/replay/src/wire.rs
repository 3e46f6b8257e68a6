//! Compares what the machine of a session asked for, and was handed, with what crossed the proxies.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::Path;

use testbed::history::read_journal;
use testbed::proxy::{Crossed, Crossing};

use crate::clock::Clock;
use crate::form::{Form, Sent};
use crate::machine::{Ask, Outcome, Watch};
use crate::play::{Asked, Span};

/// How late an answer or an event may be read, in microseconds in which the process ran.
const LATEST: u64 = 1_000_000;

const OK: i32 = 0;
const NO_NODE: i32 = -101;
const NODE_DELETED: i32 = 2;

/// An answer that was forwarded to the client.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) at: u64,
    pub(crate) zxid: i64,
    pub(crate) err: i32,
    /// Of the parts of a multi that was refused.
    pub(crate) errors: Vec<i32>,
}

impl Answer {
    fn is_done(&self) -> bool {
        self.err == OK && self.errors.is_empty()
    }

    fn has(&self, err: i32) -> bool {
        self.err == err || self.errors.contains(&err)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) at: u64,
    pub(crate) xid: i32,
    pub(crate) sent: Sent,
    /// The frame.
    pub(crate) body: Vec<u8>,
    pub(crate) answer: Option<Answer>,
}

/// A frame that was forwarded to the client.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// The number of its request, and the frame.
    Answer(i32, Vec<u8>),
    /// What happened, and where.
    Event(i32, String),
}

/// A connection of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) session: u64,
    pub(crate) server: usize,
    pub(crate) began: u64,
    pub(crate) requests: Vec<Request>,
    pub(crate) seen: Vec<Seen>,
    /// When a watch fired, what happened, and where.
    pub(crate) events: Vec<(u64, i32, String)>,
    pub(crate) closed: Option<u64>,
}

/// The connections that crossed the proxy before a server. Times are in microseconds.
pub(crate) fn connections(file: &Path, server: usize) -> io::Result<Vec<Connection>> {
    let mut connections = BTreeMap::<usize, Connection>::new();
    for Crossing { at, connection, what, .. } in read_journal(file)? {
        let at = at / 1_000;
        let one = connections.entry(connection).or_insert_with(|| Connection { server, ..Connection::default() });
        match what {
            Crossed::Connected { session } => (one.session, one.began) = (session.cast_unsigned(), at),
            Crossed::Request { xid, op, path, watch, parts, body } => {
                let sent = Sent { op, path, watch, parts };
                one.requests.push(Request { at, xid, sent, body: bytes(&body)?, answer: None });
            }
            Crossed::Answer { xid, zxid, err, errors, body } => {
                one.seen.push(Seen::Answer(xid, bytes(&body)?));
                if let Some(request) = one.requests.iter_mut().rev().find(|request| request.xid == xid) {
                    request.answer = Some(Answer { at, zxid, err, errors });
                }
            }
            Crossed::Event { event, path } if event > 0 => {
                one.seen.push(Seen::Event(event, path.to_string()));
                one.events.push((at, event, path.to_string()));
            }
            Crossed::Closed => one.closed = Some(at),
            _ => {}
        }
    }
    Ok(connections.into_values().filter(|one| one.session != 0).collect())
}

/// Bytes that are written in hexadecimal.
fn bytes(hex: &str) -> io::Result<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let bytes = hex.as_bytes().chunks(2).map(byte).collect::<Option<_>>();
    bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{hex} is not hexadecimal")))
}

/// How much was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) answers: u64,
    pub(crate) events: u64,
    /// Requests that are no first request of the machine's: stats, listings of others, further parts of a create.
    pub(crate) others: u64,
}

/// A request of the machine's, and where it is on the wire.
type Found<'a> = HashMap<usize, (usize, usize, &'a Request)>;

/// The differences between a session and its connections, which are in order.
pub(crate) fn compare(life: &Span, all: &[Connection], clock: &Clock, counts: &mut Counts) -> Vec<String> {
    let own: Vec<&Connection> = all.iter().filter(|one| one.session == life.session).collect();
    let mut differences = Vec::new();
    let found = find(life, &own, clock, counts, &mut differences);
    let end = life.ended.unwrap_or_else(|| clock.now());
    // Until when the session has certainly read what came over each connection: a process that runs reads.
    let ran = |one: &&Connection| {
        // After a pause the client may give a connection up with all that it has not read, and the proxy learns of that late.
        let down = life.downs.iter().copied().find(|down| *down > one.began);
        clock.earlier(one.closed.into_iter().chain(down).min().unwrap_or_else(|| clock.now()), LATEST)
    };
    let mut read: Vec<u64> = own.iter().map(ran).collect();
    for (at, (connection, _, request)) in &found {
        let is_read = life.asks[*at].outcome.as_ref().is_some_and(is_known);
        if let (true, Some(answer)) = (is_read, &request.answer) {
            read[*connection] = answer.at.max(read[*connection]);
        }
    }
    for (at, asked) in life.asks.iter().enumerate() {
        let on_wire = found.get(&at).map(|(connection, _, request)| (read[*connection], *request));
        differences.extend(answered(asked, on_wire, end, clock, counts));
    }
    for watched in &life.watches {
        let Some((first, _, Request { answer: Some(answer), .. })) = found.get(&watched.asked) else { continue };
        let Some(path) = path_of(&life.asks[watched.asked], found[&watched.asked].2) else { continue };
        let is_its = |(at, event, of): &&(u64, i32, String)| {
            *at >= answer.at && of == path && (*event == NODE_DELETED || is_of_change(&watched.watch, *event))
        };
        let fired = own[*first..]
            .iter()
            .zip(&read[*first..])
            .find_map(|(one, read)| one.events.iter().find(is_its).map(|(at, ..)| (*at, *read)));
        let Some((fired, read)) = fired.filter(|(fired, read)| fired < read) else { continue };
        counts.events += 1;
        let until = watched.until.unwrap_or(end);
        // The event may have been read before the proxy has noted it.
        let by = clock.between(fired, until);
        if by > LATEST {
            differences.push(format!(
                "at {fired}: {:?} has fired, and was not handed to the machine for {by} µs of run time (read to {read})",
                watched.watch
            ));
        }
    }
    differences
}

/// Finds the requests of the machine on the wire, in their order.
fn find<'a>(
    life: &Span,
    own: &[&'a Connection],
    clock: &Clock,
    counts: &mut Counts,
    differences: &mut Vec<String>,
) -> Found<'a> {
    let (mut found, mut next, mut created, mut known) = (Found::new(), 0, HashSet::new(), 0);
    for (connection, one) in own.iter().enumerate() {
        for (at, request) in one.requests.iter().enumerate() {
            let asks = &life.asks[next..];
            let before = asks.partition_point(|asked| asked.at <= request.at);
            // Also of a request that is not found: behind a look at the parents the look may have been another's.
            created.extend(
                life.asks[known.min(next + before)..next + before].iter().filter_map(|one| one.form.creates()),
            );
            known = known.max(next + before);
            let fits = |asked: &Asked| {
                let is_known = asked.outcome.as_ref().is_some_and(is_known);
                asked.form.fits(&request.sent) && (request.answer.is_some() || !is_known)
            };
            let may_skip = asks[..before].iter().position(|asked| !may_be_missing(asked)).unwrap_or(before);
            // One that was lost may have had the same form.
            let certain = asks[..before].get(may_skip).filter(|asked| request.answer.is_some() && fits(asked));
            let first = certain.map(|_| may_skip).or_else(|| asks[..before].iter().position(fits));
            match first {
                Some(skipped) => {
                    if skipped > may_skip {
                        differences.push(format!(
                            "at {}: {:?} is on the wire before {:?}",
                            request.at, request.sent, asks[may_skip].ask
                        ));
                    }
                    found.insert(next + skipped, (connection, at, request));
                    next += skipped + 1;
                    counts.requests += 1;
                }
                None => {
                    counts.others += 1;
                    let unasked = request.sent.creates().filter(|prefix| !created.contains(prefix));
                    // The journal is written a moment later, so the last steps of a process that was killed may not be in it.
                    if let Some(prefix) = unasked.filter(|_| request.at <= clock.now()) {
                        differences.push(format!("at {}: {prefix} is created, and was not asked for", request.at));
                    }
                }
            }
        }
    }
    for (at, asked) in life.asks.iter().enumerate() {
        if !found.contains_key(&at) && !may_be_missing(asked) {
            differences.push(format!("at {}: {:?} is answered, and is not on the wire", asked.at, asked.ask));
        }
    }
    found
}

fn is_known(outcome: &Outcome) -> bool {
    *outcome != Outcome::Unknown
}

/// Whether a request need not be on the wire: it was lost with its connection, or the driver answers it by itself.
fn may_be_missing(asked: &Asked) -> bool {
    match (&asked.ask, &asked.outcome) {
        (_, None | Some(Outcome::Unknown)) => true,
        (Ask::Watch { .. }, Some(outcome)) => {
            matches!(outcome, Outcome::NoNode | Outcome::Refused)
        }
        _ => false,
    }
}

/// The difference between the outcome of a request and its answer on the wire, and until when that connection was read.
fn answered(
    asked: &Asked,
    on_wire: Option<(u64, &Request)>,
    end: u64,
    clock: &Clock,
    counts: &mut Counts,
) -> Option<String> {
    let (read, Request { answer: Some(answer), .. }) = on_wire? else { return None };
    counts.answers += 1;
    let is_one_request = !matches!(asked.ask, Ask::Create { .. } | Ask::List { .. } | Ask::Replace { .. });
    let was_read = answer.at < read;
    let is_right = match &asked.outcome {
        None => !was_read || clock.between(answer.at, end) < LATEST,
        Some(Outcome::Unknown) => !(was_read && is_one_request && answer.is_done()),
        Some(_) if !is_one_request => true,
        Some(Outcome::Done | Outcome::Names { .. } | Outcome::Stat { .. } | Outcome::Exists) => answer.is_done(),
        Some(Outcome::NoNode) => answer.has(NO_NODE) || matches!(asked.ask, Ask::Watch { .. }),
        Some(Outcome::Refused) if matches!(asked.ask, Ask::WatchOwn { .. }) => true,
        Some(_) => !answer.is_done(),
    };
    (!is_right).then(|| {
        format!(
            "at {}: {:?} has the outcome {:?}, and on the wire {answer:?}",
            answer.at, asked.ask, asked.outcome
        )
    })
}

/// The path that a request watches.
fn path_of<'a>(asked: &Asked, request: &'a Request) -> Option<&'a str> {
    let watches = matches!(asked.form, Form::Children(_, true) | Form::Predecessor { .. } | Form::Data(_));
    (watches && request.sent.watch).then_some(&*request.sent.path)
}

/// Whether an event other than a deletion is one of a watch.
fn is_of_change(watch: &Watch, event: i32) -> bool {
    const DATA_CHANGED: i32 = 3;
    const CHILDREN_CHANGED: i32 = 4;
    event == if matches!(watch, Watch::Own(..)) { DATA_CHANGED } else { CHILDREN_CHANGED }
}

#[cfg(test)]
mod tests {
    use testbed::proxy::Op;

    use super::*;
    use crate::machine::{Kind, Name};
    use crate::play::Watched;

    const NODE: &str = "/a/_c_00000000-0000-0007-0000-000000000000-lock-0000000003";

    /// A create-free session: a node is watched, the watch fires, and the node is deleted.
    struct Case {
        life: Span,
        connection: Connection,
    }

    impl Case {
        fn new() -> Self {
            let name = Name { number: 3, guid: 7 << 64, kind: Kind::Lock };
            let mut paths = crate::form::Paths::default();
            paths.insert(0, "/a".to_owned());
            let asks = [
                (Ask::WatchOwn { op: 1, path: 0, name }, Outcome::Stat { owner: 5 }),
                (Ask::Delete { op: 1, nodes: [(0, name)].into() }, Outcome::Done),
                (Ask::Check, Outcome::Done),
            ];
            let asked =
                |(at, (ask, outcome)): (u64, (Ask, Outcome))| Asked::answered(ask, &paths, 10 * at, outcome);
            let watch = Watch::Own(1, 0, name);
            let life = Span {
                session: 5,
                asks: (1..).zip(asks).map(asked).collect(),
                watches: vec![Watched { watch, asked: 0, until: Some(40) }],
                downs: Vec::new(),
                ended: None,
            };
            let request = |at, op, watch, parts: &[(Op, &str)], path: &str| Request {
                at,
                xid: i32::try_from(at).expect("it is small"),
                sent: Sent {
                    op,
                    path: path.to_owned(),
                    watch,
                    parts: parts.iter().map(|(op, path)| (*op, (*path).to_owned())).collect(),
                },
                body: Vec::new(),
                answer: Some(Answer { at: at + 5, zxid: 1, err: OK, errors: Vec::new() }),
            };
            let requests = vec![
                request(11, Op::GetData, true, &[], NODE),
                request(21, Op::Delete, false, &[], NODE),
                request(31, Op::Multi, false, &[(Op::Check, "/")], "/"),
            ];
            let events = vec![(26, NODE_DELETED, NODE.to_owned())];
            Self { life, connection: Connection { session: 5, requests, events, ..Connection::default() } }
        }

        fn first_difference(self) -> String {
            let mut clock = Clock::default();
            (0..100).for_each(|tenth| clock.tick(tenth * 100_000));
            let differences = compare(&self.life, &[self.connection], &clock, &mut Counts::default());
            differences.into_iter().next().unwrap_or_default()
        }
    }

    #[test]
    fn what_crossed_in_order_has_no_difference() {
        assert_eq!(Case::new().first_difference(), "");
    }

    #[test]
    fn event_that_comes_during_a_pause_may_be_lost_with_its_connection() {
        let case = || {
            let mut case = Case::new();
            case.life.asks.truncate(1);
            case.life.watches[0].until = None;
            case.connection.requests.truncate(1);
            case
        };
        let mut down = case();
        down.life.downs.push(30);
        assert_eq!(down.first_difference(), "");
        let difference = case().first_difference();
        assert!(difference.contains("was not handed to the machine"), "{difference}");
    }

    #[test]
    fn every_difference_is_found() {
        let finds = |words: &str, change: fn(&mut Case)| {
            let mut case = Case::new();
            change(&mut case);
            let difference = case.first_difference();
            assert!(difference.contains(words), "{words}: {difference}");
        };
        finds("is on the wire before", |case| {
            let requests = &mut case.connection.requests;
            requests.swap(1, 2);
            (requests[1].at, requests[2].at) = (31, 32);
        });
        finds("is not on the wire", |case| drop(case.connection.requests.pop()));
        finds("was not asked for", |case| {
            case.connection.requests[2].sent.parts = vec![(Op::Create2, "/a/_c_9".to_owned())];
            case.life.asks.truncate(2);
        });
        finds("has the outcome", |case| {
            let answer = case.connection.requests[1].answer.as_mut().expect("it was answered");
            answer.err = NO_NODE;
        });
        finds("has the outcome Some(Unknown)", |case| case.life.asks[1].outcome = Some(Outcome::Unknown));
        finds("has the outcome None", |case| case.life.asks[1].outcome = None);
        finds("was not handed to the machine", |case| case.life.watches[0].until = None);
    }
}
