//! Compares what the machines of a world asked for, and were given, with what their clients sent and read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use machine::{Action, Ask, Connection, Event, Op, Outcome, Watch};
use simulation::Request;

use crate::form::{self, Paths};
use crate::record::Entry;
use crate::rules::watch;

/// How late an answer or an event may reach the machine, behind the stall of a process or a full runtime.
pub(crate) const LATEST: Duration = Duration::from_secs(1);

const OK: i32 = 0;
const NO_NODE: i32 = -101;
const NODE_DELETED: i32 = 2;
const DATA_CHANGED: i32 = 3;
const CHILDREN_CHANGED: i32 = 4;

/// A place in the record, and its time.
type Place = (usize, Instant);

/// A request that a machine asked for.
#[derive(Debug)]
struct Asked {
    ask: Ask,
    at: usize,
    outcome: Option<(Outcome, Place)>,
    on_wire: Option<usize>,
}

impl Asked {
    fn is_answered(&self) -> bool {
        matches!(&self.outcome, Some((outcome, _)) if *outcome != Outcome::Unknown)
    }

    /// Whether it need not be on the wire: it was lost with its connection, or the driver answers it by itself.
    fn may_be_missing(&self) -> bool {
        match (&self.ask, &self.outcome) {
            (_, None | Some((Outcome::Unknown, _))) => true,
            (Ask::Watch { .. }, Some((outcome, _))) => matches!(outcome, Outcome::NoNode | Outcome::Refused),
            (Ask::WatchOwn { .. }, Some((outcome, _))) => *outcome == Outcome::Refused,
            // Its request may be too large, or its parents may have been refused.
            (Ask::Create { .. }, Some((outcome, _))) => {
                form::looks_first(&self.ask) || !matches!(outcome, Outcome::Created { .. })
            }
            _ => false,
        }
    }
}

/// A watch of a machine: the request that set it, and when it was gone again.
#[derive(Debug)]
struct Watched {
    watch: Watch,
    asked: usize,
    set: usize,
    gone: Option<Instant>,
}

/// A ZooKeeper session of a machine.
#[derive(Debug, Default)]
struct Life {
    session: u64,
    /// The upper half of the guids of its nodes.
    nonce: u64,
    asks: Vec<Asked>,
    /// The requests without an outcome.
    open: Vec<usize>,
    watches: Vec<Watched>,
    ended: Option<Instant>,
}

/// A request that a client sent.
#[derive(Debug)]
struct Sent {
    at: usize,
    request: Arc<Request>,
    answer: Option<Answer>,
}

#[derive(Debug)]
struct Answer {
    place: Place,
    err: i32,
    errors: Vec<i32>,
}

impl Answer {
    fn is_done(&self) -> bool {
        self.err == OK && self.errors.is_empty()
    }

    fn has(&self, err: i32) -> bool {
        self.err == err || self.errors.contains(&err)
    }
}

/// What crossed the network for a session: its requests, and its events with their places.
#[derive(Debug, Default)]
struct Wire {
    sent: Vec<Sent>,
    fired: Vec<(Place, i32, String)>,
}

/// The differences, and how many requests were compared.
pub(crate) fn compare(entries: &[(Instant, Entry)]) -> (Vec<String>, usize) {
    let Some((end, _)) = entries.last() else { return Default::default() };
    let (mut wires, mut differences) = (wires(entries), Vec::new());
    differences.extend(entries.iter().filter_map(|(_, entry)| match entry {
        Entry::Wrong(what) => Some(what.clone()),
        _ => None,
    }));
    let mut compared = 0;
    for mut life in lives(entries) {
        let wire = wires.remove(&life.session).unwrap_or_default();
        differences.extend(find(&mut life, &wire));
        let (life_end, found) =
            (life.ended.unwrap_or(*end), |asked: &Asked| asked.on_wire.map(|at| &wire.sent[at]));
        compared += life.asks.iter().filter(|asked| asked.on_wire.is_some()).count();
        // The answers of an acquisition are read in the order of its requests.
        let mut read = HashMap::<Option<Op>, Instant>::new();
        for asked in &life.asks {
            let behind = read.get(&asked.ask.op()).copied();
            if let Some(answer) = found(asked).and_then(|sent| sent.answer.as_ref()) {
                differences.extend(answered(asked, answer, behind, life_end));
            }
            let given = asked.outcome.as_ref().map(|(_, (_, given))| *given);
            read.extend(given.max(behind).map(|given| (asked.ask.op(), given)));
        }
        for watched in &life.watches {
            let Some(path) = found(&life.asks[watched.asked]).and_then(|sent| path(&sent.request)) else {
                continue;
            };
            let fires = |event| event == NODE_DELETED || event == change(&watched.watch);
            let fired =
                wire.fired.iter().find(|((at, _), event, of)| *at > watched.set && of == path && fires(*event));
            let Some(((_, fired), ..)) = fired else { continue };
            if watched.gone.unwrap_or(life_end).saturating_duration_since(*fired) > LATEST {
                differences.push(format!("{:?} has fired at {path}, and the machine was not told", watched.watch));
            }
        }
    }
    (differences, compared)
}

/// The path of a request that reads.
fn path(request: &Request) -> Option<&str> {
    match request {
        Request::GetData { path, .. } | Request::GetChildren2 { path, .. } => Some(path),
        _ => None,
    }
}

/// The event other than a deletion that fires a watch.
fn change(watch: &Watch) -> i32 {
    if matches!(watch, Watch::Own(..)) { DATA_CHANGED } else { CHILDREN_CHANGED }
}

fn wires(entries: &[(Instant, Entry)]) -> HashMap<u64, Wire> {
    let (mut sessions, mut wires) = (HashMap::new(), HashMap::<u64, Wire>::new());
    let mut requests = HashMap::new();
    for (at, (time, entry)) in entries.iter().enumerate() {
        let of = |connection: &usize| sessions.get(connection).copied();
        match entry {
            Entry::Connected { connection, session } => _ = sessions.entry(*connection).or_insert(*session),
            Entry::Sent { connection, xid, request } => {
                let Some(session) = of(connection) else { continue };
                let sent = &mut wires.entry(session).or_default().sent;
                requests.insert((*connection, *xid), sent.len());
                sent.push(Sent { at, request: Arc::clone(request), answer: None });
            }
            Entry::Answered { connection, xid, err, errors } => {
                let wire = of(connection).and_then(|session| wires.get_mut(&session));
                let request = requests.remove(&(*connection, *xid));
                if let Some((wire, request)) = wire.zip(request) {
                    let answer = Answer { place: (at, *time), err: *err, errors: errors.clone() };
                    wire.sent[request].answer = Some(answer);
                }
            }
            Entry::Fired { connection, event, path } => {
                let Some(session) = of(connection) else { continue };
                wires.entry(session).or_default().fired.push(((at, *time), *event, path.clone()));
            }
            Entry::Given(..) | Entry::Asked(..) | Entry::Wrong(_) => {}
        }
    }
    wires
}

fn lives(entries: &[(Instant, Entry)]) -> Vec<Life> {
    let (mut current, mut lives) = (HashMap::<usize, Life>::new(), Vec::new());
    for (at, (time, entry)) in entries.iter().enumerate() {
        match entry {
            Entry::Given(machine, Event::Renewed { session, nonce, .. }) => {
                let life = Life { session: *session, nonce: *nonce, ..Life::default() };
                lives.extend(current.insert(*machine, life));
            }
            Entry::Given(machine, event) => {
                let Some(life) = current.get_mut(machine) else { continue };
                life.given(event, (at, *time));
            }
            Entry::Asked(machine, action) => {
                let Some(life) = current.get_mut(machine) else { continue };
                match action {
                    Action::Send(ask) => {
                        life.open.push(life.asks.len());
                        life.asks.push(Asked { ask: ask.clone(), at, outcome: None, on_wire: None });
                    }
                    Action::Unwatch(watch) => life.unwatch(watch, *time),
                    Action::Replace | Action::Yield | Action::End { .. } => life.end(*time),
                    Action::Wake(_) | Action::Placed(_) | Action::Forget => {}
                }
            }
            _ => {}
        }
    }
    lives.extend(current.into_values());
    lives
}

impl Life {
    fn given(&mut self, event: &Event, place: Place) {
        match event {
            Event::Answer { ask, outcome, .. } => {
                let Some(open) = self.open.iter().position(|at| self.asks[*at].ask == *ask) else { return };
                let asked = self.open.remove(open);
                self.asks[asked].outcome = Some((outcome.clone(), place));
                if let (Some(watch), Outcome::Stat { .. } | Outcome::Names { .. }) = (watch(ask), outcome) {
                    self.watches.push(Watched { watch, asked, set: place.0, gone: None });
                }
            }
            Event::Fired { watch, .. } => self.unwatch(watch, place.1),
            Event::Connection(Connection::Expired) => self.end(place.1),
            _ => {}
        }
    }

    fn unwatch(&mut self, watch: &Watch, at: Instant) {
        let set = self.watches.iter_mut().filter(|watched| watched.gone.is_none() && watched.watch == *watch);
        set.for_each(|watched| watched.gone = Some(at));
    }

    /// Its requests and watches go with it.
    fn end(&mut self, at: Instant) {
        self.ended.get_or_insert(at);
    }
}

/// Finds the requests of a machine on the wire, in their order, and returns the differences.
fn find(life: &mut Life, wire: &Wire) -> Vec<String> {
    let (mut paths, mut differences, mut next) = (Paths::default(), Vec::new(), 0);
    let creates: HashMap<_, _> =
        (0..).zip(&life.asks).filter_map(|(at, asked)| Some((form::first_created(&asked.ask)?, at))).collect();
    let created = |sent: &Sent| {
        let node = form::created(&sent.request).next()?;
        let at = node.rsplit_once('/').and_then(|(_, name)| creates.get(name)).copied();
        Some((node.to_owned(), at.filter(|at| life.asks[*at].at < sent.at)))
    };
    let all_created: Vec<_> = wire.sent.iter().map(created).collect();
    wire.sent.iter().for_each(|sent| paths.learn_root(&sent.request));
    for (sent, created) in wire.sent.iter().zip(&all_created) {
        match created {
            Some((_, Some(ask))) => paths.learn(&life.asks[*ask].ask, &sent.request),
            Some((node, None)) if form::is_of_session(node, life.nonce) => {
                differences.push(format!("{node} is created, and was not asked for"));
            }
            _ => {}
        }
    }
    for ((number, sent), created) in (0..).zip(&wire.sent).zip(all_created) {
        // A look at the parents comes first, so this create has its own time.
        if let Some((_, Some(ask))) = created
            && form::looks_first(&life.asks[ask].ask)
        {
            life.asks[ask].on_wire.get_or_insert(number);
            continue;
        }
        let before = life.asks.partition_point(|asked| asked.at < sent.at).max(next);
        let asks = &life.asks[next..before];
        let fits = |asked: &Asked| {
            form::fits(&asked.ask, &paths, &sent.request) && (sent.answer.is_some() || !asked.is_answered())
        };
        let must = asks.iter().position(|asked| !asked.may_be_missing()).unwrap_or(asks.len());
        // One that was lost may have had the same form.
        let certain = asks.get(must).filter(|asked| sent.answer.is_some() && fits(asked)).map(|_| must);
        if let Some(skipped) = certain.or_else(|| asks.iter().position(fits)) {
            if skipped > must {
                differences.push(format!("{:?} is on the wire before {:?}", sent.request, asks[must].ask));
            }
            next += skipped + 1;
            life.asks[next - 1].on_wire = Some(number);
        }
    }
    let missing = life.asks.iter().filter(|asked| asked.on_wire.is_none() && !asked.may_be_missing());
    differences.extend(missing.map(|asked| format!("{:?} is answered, and is not on the wire", asked.ask)));
    differences
}

/// The difference between the outcome of a request and its answer on the wire. `behind`: when the answers to the earlier requests
/// of its acquisition were read.
fn answered(asked: &Asked, answer: &Answer, behind: Option<Instant>, end: Instant) -> Option<String> {
    let is_one_request = matches!(
        asked.ask,
        Ask::Watch { .. } | Ask::WatchOwn { .. } | Ask::Delete { .. } | Ask::ListOwn | Ask::Read
    );
    let (outcome, given) = match &asked.outcome {
        Some((outcome, (_, given))) => (Some(outcome), *given),
        None => (None, end),
    };
    let ready = behind.map_or(answer.place.1, |behind| behind.max(answer.place.1));
    let is_late = is_one_request && given.saturating_duration_since(ready) > LATEST;
    let is_right = match outcome {
        None => true,
        Some(Outcome::Unknown) => !(is_one_request && answer.is_done()),
        Some(_) if !is_one_request => true,
        Some(Outcome::Done | Outcome::Names { .. } | Outcome::Stat { .. } | Outcome::Exists) => answer.is_done(),
        Some(Outcome::NoNode) => answer.has(NO_NODE) || matches!(asked.ask, Ask::Watch { .. }),
        Some(Outcome::Refused) if matches!(asked.ask, Ask::WatchOwn { .. }) => true,
        Some(_) => !answer.is_done(),
    };
    (is_late || !is_right)
        .then(|| format!("{:?} has the outcome {:?}, and on the wire {answer:?}", asked.ask, asked.outcome))
}
