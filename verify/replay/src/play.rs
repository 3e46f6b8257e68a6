//! Plays the journal of a process: the same events have to get the same actions out of the machine.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path as File_;

use serde::Deserialize;

use crate::clock::Clock;
use crate::debug::Value;
use crate::form::{Form, Paths};
use crate::machine::{
    Action, Ask, Connection, End, Event, Ledger, Life, Machine, Moment, Op, Outcome, Path, Phase, Watch,
};
use crate::read::{Read, read};

/// How late a timer may be, in microseconds in which the process ran. The machine of a test is busy.
const LATEST: u64 = 500_000;

/// A line of the journal: what the machine was given, or what it asked for.
#[derive(Debug, Deserialize)]
struct Line {
    core: String,
    at: Option<u64>,
    event: Option<String>,
    actions: Option<String>,
}

/// A request that the machine asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    pub(crate) form: Form,
    /// The moment of the event after which it was asked for.
    pub(crate) at: u64,
    /// The moment of the next event, before which it was sent.
    by: Option<u64>,
    epoch: u64,
    pub(crate) outcome: Option<Outcome>,
}

#[cfg(test)]
impl Asked {
    pub(crate) fn answered(ask: Ask, paths: &Paths, at: u64, outcome: Outcome) -> Self {
        Self { form: Form::of(&ask, paths), ask, at, by: None, epoch: 0, outcome: Some(outcome) }
    }
}

/// A watch that the driver had.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) watch: Watch,
    /// The index of the request that set it.
    pub(crate) asked: usize,
    pub(crate) until: Option<u64>,
}

/// A ZooKeeper session of a process.
#[derive(Debug, Default)]
pub(crate) struct Span {
    pub(crate) session: u64,
    pub(crate) asks: Vec<Asked>,
    pub(crate) watches: Vec<Watched>,
    /// When its connections were lost, as the machine learned.
    pub(crate) downs: Vec<u64>,
    /// When it was over, or its requests and watches were dropped.
    pub(crate) ended: Option<u64>,
}

/// How much was played.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) actions: u64,
    pub(crate) grants: u64,
    pub(crate) losses: u64,
    pub(crate) timers: u64,
    /// The latest timer, in microseconds.
    pub(crate) latest: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.actions += other.actions;
        self.grants += other.grants;
        self.losses += other.losses;
        self.timers += other.timers;
        self.latest = self.latest.max(other.latest);
    }
}

/// A session of the library: its machine, and what its driver has under way for it.
struct Core {
    machine: Machine<Ledger>,
    paths: Paths,
    flights: HashMap<Option<Op>, VecDeque<usize>>,
    /// The holds whose callers were woken, so that each is counted once.
    held: HashSet<Op>,
    /// The deadline that was missed last.
    missed: Option<Moment>,
    /// Counts the connections.
    epoch: u64,
    life: Span,
    /// There was a difference, so nothing that follows means anything.
    is_broken: bool,
}

/// What the journal of a process shows.
#[derive(Default)]
pub(crate) struct Played {
    cores: HashMap<String, Core>,
    pub(crate) lives: Vec<Span>,
    pub(crate) clock: Clock,
    pub(crate) counts: Counts,
    pub(crate) differences: Vec<String>,
}

/// A session before its first connection, as the driver makes it.
fn unconnected() -> Machine<Ledger> {
    Machine::unconnected(0, Ledger::new(0, None, Moment(0)))
}

/// Plays a file. A last line without an end is ignored: its process was killed.
pub(crate) fn play(file: &File_) -> io::Result<Played> {
    let mut played = Played::default();
    let mut lines = BufReader::new(File::open(file)?);
    let mut text = String::new();
    while lines.read_line(&mut text)? > 0 && text.ends_with('\n') {
        played.line(&serde_json::from_str(&text)?);
        text.clear();
    }
    let Played { cores, lives, .. } = &mut played;
    lives.extend(std::mem::take(cores).into_values().map(|core| core.life));
    Ok(played)
}

impl Played {
    fn line(&mut self, line: &Line) {
        let name = line.event.as_deref().map(|event| event.split(['(', ' ']).next().unwrap_or_default());
        if let Some(at) = line.at {
            self.clock.tick(at);
        }
        if name == Some("Begin") {
            let before = self.cores.insert(line.core.clone(), Core::new());
            self.lives.extend(before.map(|core| core.life));
            return;
        }
        let Some(core) = self.cores.get_mut(&line.core).filter(|core| !core.is_broken) else { return };
        let result = match (line.at, name, &line.event, &line.actions) {
            (Some(at), Some(name), Some(event), None) => {
                self.counts.events += 1;
                core.event(at, name, event, &mut self.lives, &mut self.counts, &self.clock)
            }
            (None, None, None, Some(actions)) => core.actions(actions, &mut self.counts, self.clock.now()),
            _ => Err(format!("{line:?} is neither an event nor actions")),
        };
        if let Err(why) = result {
            core.is_broken = true;
            self.differences.push(format!("at {}: {why}", self.clock.now()));
        }
        // One that is late is no reason to stop.
        self.differences.extend(core.late(&self.clock, &mut self.counts));
    }
}

impl Core {
    fn new() -> Self {
        Self {
            machine: unconnected(),
            paths: Paths::default(),
            flights: HashMap::new(),
            held: HashSet::new(),
            missed: None,
            epoch: 0,
            life: Span::default(),
            is_broken: false,
        }
    }

    fn event(
        &mut self,
        at: u64,
        name: &str,
        text: &str,
        lives: &mut Vec<Span>,
        counts: &mut Counts,
        clock: &Clock,
    ) -> Result<(), String> {
        if !self.machine.out.is_empty() {
            return Err(format!("the driver has not done what the machine asked for: {:?}", self.machine.out));
        }
        for asked in self.life.asks.iter_mut().rev().take_while(|asked| asked.by.is_none()) {
            asked.by = Some(at);
        }
        let now = Moment(at);
        let unread = || format!("{text} cannot be read");
        if name == "Path" {
            let value = Value::parse(text);
            let read = |value: &Value<'_>| Some((Path::read(value.item(0)?)?, String::read(value.item(1)?)?));
            let (path, text) = value.as_ref().and_then(read).ok_or_else(unread)?;
            self.paths.insert(path, text);
            return Ok(());
        }
        let event = read::<Event>(text).ok_or_else(unread)?;
        self.precede(at, &event, lives, counts, clock)?;
        self.machine.handle(now, event);
        Ok(())
    }

    /// What the driver does, and has to have done, before it hands an event to the machine.
    fn precede(
        &mut self,
        at: u64,
        event: &Event,
        lives: &mut Vec<Span>,
        counts: &mut Counts,
        clock: &Clock,
    ) -> Result<(), String> {
        match event {
            Event::Timeout => {
                let due = self.machine.next_deadline().filter(|due| due.0 <= at);
                let due = due.ok_or_else(|| format!("nothing is due at {at}"))?;
                (counts.timers, counts.latest) = (counts.timers + 1, counts.latest.max(clock.between(due.0, at)));
            }
            Event::Answer { ask, sent, is_stale, outcome } => self.answered(ask, sent.0, *is_stale, outcome)?,
            Event::Fired { watch, .. } => {
                let watches = self.life.watches.iter_mut();
                let set = watches.rev().find(|one| one.until.is_none() && one.watch == *watch);
                set.ok_or_else(|| format!("{watch:?} has fired, and was not set"))?.until = Some(at);
            }
            Event::Connection(Connection::Down) => {
                self.epoch += 1;
                self.life.downs.push(at);
            }
            Event::Connection(Connection::Up { .. }) => {}
            Event::Connection(Connection::Expired) => {
                self.epoch += 1;
                self.drop_flights(at);
                lives.push(std::mem::take(&mut self.life));
            }
            Event::Renewed { session, .. } => self.life.session = *session,
            _ => {}
        }
        Ok(())
    }

    fn answered(&mut self, ask: &Ask, sent: u64, is_stale: bool, outcome: &Outcome) -> Result<(), String> {
        let flights = self.flights.entry(ask.op()).or_default();
        let first = flights.pop_front().ok_or_else(|| format!("{ask:?} is answered, and was not asked for"))?;
        let asked = &mut self.life.asks[first];
        if asked.ask != *ask {
            return Err(format!("{ask:?} is answered before {:?}", asked.ask));
        }
        if is_stale != (asked.epoch != self.epoch) {
            return Err(format!("the answer to {ask:?} is handed over with is_stale: {is_stale}"));
        }
        if !(asked.at..=asked.by.unwrap_or(u64::MAX)).contains(&sent) {
            return Err(format!(
                "{ask:?} was sent at {sent}, but asked for between {} and {:?}",
                asked.at, asked.by
            ));
        }
        asked.outcome = Some(outcome.clone());
        let watch = match (ask, outcome) {
            (Ask::Watch { op, path, name }, Outcome::Stat { .. }) => Watch::Predecessor(*op, *path, *name),
            (Ask::WatchOwn { op, path, name }, Outcome::Stat { .. }) => Watch::Own(*op, *path, *name),
            (Ask::List { path, watches: true, .. }, Outcome::Names { .. }) => Watch::Path(*path),
            _ => return Ok(()),
        };
        self.life.watches.push(Watched { watch, asked: first, until: None });
        Ok(())
    }

    /// Compares what the machine asks for with what the driver has taken.
    fn actions(&mut self, text: &str, counts: &mut Counts, at: u64) -> Result<(), String> {
        let actions: Vec<Action> = self.machine.actions().collect();
        let wanted = format!("{actions:?}");
        if wanted != text {
            return Err(format!("the machine asks for {wanted}, and its driver has taken {text}"));
        }
        for action in actions {
            counts.actions += 1;
            match action {
                Action::Send(ask) => {
                    self.flights.entry(ask.op()).or_default().push_back(self.life.asks.len());
                    let form = Form::of(&ask, &self.paths);
                    self.life.asks.push(Asked { ask, form, at, by: None, epoch: self.epoch, outcome: None });
                }
                Action::Unwatch(watch) => self.unwatch(&watch, at),
                Action::Wake(op) => {
                    let stage = self.machine.op(op).map(|one| one.phase);
                    counts.losses += u64::from(matches!(stage, Some(Phase::Over(End::Lost(_)))));
                    if stage == Some(Phase::Held) {
                        counts.grants += u64::from(self.held.insert(op));
                    } else {
                        self.held.remove(&op);
                    }
                }
                Action::Placed(_) | Action::Forget | Action::Yield | Action::End { .. } => {}
                Action::Replace => self.drop_flights(at),
            }
        }
        Ok(())
    }

    fn unwatch(&mut self, watch: &Watch, at: u64) {
        let set = self.life.watches.iter_mut().filter(|one| one.until.is_none() && one.watch == *watch);
        set.for_each(|one| one.until = Some(at));
    }

    /// The requests and watches of a session go with it.
    fn drop_flights(&mut self, at: u64) {
        self.flights.clear();
        self.life.ended.get_or_insert(at);
        self.life.watches.iter_mut().for_each(|one| _ = one.until.get_or_insert(at));
    }

    /// The deadline that the driver has missed. While there is no session, none counts.
    fn late(&mut self, clock: &Clock, counts: &mut Counts) -> Option<String> {
        let now = clock.now();
        if self.is_broken || matches!(self.machine.life, Life::Over | Life::Renewing) {
            return None;
        }
        let due = self.machine.next_deadline().filter(|due| due.0 + LATEST < now && self.missed != Some(*due))?;
        let by = clock.between(due.0, now);
        if by <= LATEST {
            return None;
        }
        self.missed = Some(due);
        counts.latest = counts.latest.max(by);
        Some(format!(
            "at {now}: something was due at {}, and nothing has been done for {by} µs of run time",
            due.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::machine::{Admission, Kind, Name, Spec};

    const OP: Op = 1;

    /// The journal of a driver that does everything right: a lock is acquired, and a timer fires.
    struct Driver {
        machine: Machine<Ledger>,
        lines: Vec<Line>,
    }

    impl Driver {
        fn note(&mut self, at: u64, event: String) {
            self.lines.push(Line { core: "core".to_owned(), at: Some(at), event: Some(event), actions: None });
        }

        fn handle(&mut self, at: u64, event: Event) -> Vec<Action> {
            self.note(at, format!("{event:?}"));
            self.machine.handle(Moment(at), event);
            let actions: Vec<Action> = self.machine.actions().collect();
            if !actions.is_empty() {
                let actions = Some(format!("{actions:?}"));
                self.lines.push(Line { core: "core".to_owned(), at: None, event: None, actions });
            }
            actions
        }

        fn answer(&mut self, at: u64, ask: &Ask, outcome: Outcome) -> Vec<Action> {
            self.handle(at, Event::Answer { ask: ask.clone(), sent: Moment(30), is_stale: false, outcome })
        }
    }

    fn recorded() -> Vec<Line> {
        let mut driver = Driver { machine: unconnected(), lines: Vec::new() };
        driver.note(1, "Begin".to_owned());
        let renewed = Event::Renewed { session: 7, nonce: 8, created: Moment(5), timeout: 2_000_000 };
        driver.handle(10, renewed);
        driver.note(20, "Path(0, \"/a\")".to_owned());
        let (queues, admission) = (vec![(0, Kind::Lock)], Admission::First);
        let spec = Arc::new(Spec { queues, admission, waits: true, max_hold: None, may_count: false });
        let sent = driver.handle(25, Event::Acquire { op: OP, spec });
        let [Action::Send(create), Action::Send(list)] = sent.as_slice() else { panic!("{sent:?}") };
        let Ask::Create { guid, .. } = *create else { panic!("{create:?}") };
        let name = Name { number: 3, guid, kind: Kind::Lock };
        let created = Outcome::Created { names: [name].into(), czxid: 4, owner: Some(7), counted: None };
        driver.answer(40, create, created);
        let listed = Outcome::Names { names: [name].into(), other_children: 0, has_no_data: true };
        driver.answer(50, list, listed);
        driver.handle(60, Event::WatchForLoss(OP));
        let due = driver.machine.next_deadline().expect("a hold is looked at now and then").0;
        driver.handle(due, Event::Timeout);
        driver.handle(due + 10, Event::Beat { slept: 0 });
        driver.lines
    }

    fn differences(lines: &[Line]) -> Vec<String> {
        let mut played = Played::default();
        lines.iter().for_each(|line| played.line(line));
        played.differences
    }

    /// The difference that is found after a change of the lines.
    fn changed(change: impl FnOnce(&mut Vec<Line>)) -> String {
        let mut lines = recorded();
        change(&mut lines);
        differences(&lines).into_iter().next().unwrap_or_default()
    }

    fn event<'a>(lines: &'a mut [Line], begin: &str) -> &'a mut String {
        let events = lines.iter_mut().filter_map(|line| line.event.as_mut());
        events.into_iter().find(|event| event.starts_with(begin)).expect("it is there")
    }

    fn position(lines: &[Line], begin: &str) -> usize {
        let is_it = |line: &Line| line.event.as_ref().is_some_and(|event| event.starts_with(begin));
        lines.iter().position(is_it).expect("it is there")
    }

    #[test]
    fn journal_of_a_driver_that_does_everything_right_has_no_difference() {
        let mut played = Played::default();
        recorded().iter().for_each(|line| played.line(line));
        assert_eq!(played.differences, [""; 0]);
        assert_eq!((played.counts.grants, played.counts.timers), (1, 1));
    }

    #[test]
    fn difference_between_machine_and_driver_is_found() {
        let has = |difference: String, words: &str| assert!(difference.contains(words), "{difference}");
        let first_actions = |lines: &[Line]| lines.iter().position(|line| line.actions.is_some());
        has(changed(|lines| drop(lines.remove(first_actions(lines).unwrap()))), "has not done");
        let other = |lines: &mut Vec<Line>| {
            let at = first_actions(lines).unwrap();
            lines[at].actions = Some("[Send(Read)]".to_owned());
        };
        has(changed(other), "its driver has taken [Send(Read)]");
        has(changed(|lines| *event(lines, "WatchForLoss") = "WatchForLoss(one)".to_owned()), "cannot be read");
    }

    #[test]
    fn answers_in_another_order_or_with_another_mark_are_found() {
        let has = |difference: String, words: &str| assert!(difference.contains(words), "{difference}");
        let edit = |from: &str, to: &str| {
            let (from, to) = (from.to_owned(), to.to_owned());
            changed(move |lines| {
                let answer = event(lines, "Answer");
                *answer = answer.replace(&from, &to);
            })
        };
        has(edit("is_stale: false", "is_stale: true"), "is_stale: true");
        has(edit("sent: Moment(30)", "sent: Moment(24)"), "was sent at 24");
        has(edit("sent: Moment(30)", "sent: Moment(41)"), "was sent at 41");
        let swap = |lines: &mut Vec<Line>| {
            let at = position(lines, "Answer");
            lines.swap(at, at + 1);
        };
        has(changed(swap), "is answered before");
        let twice = |lines: &mut Vec<Line>| {
            let at = position(lines, "Answer { ask: List");
            let again =
                Line { core: "core".to_owned(), at: Some(55), event: lines[at].event.clone(), actions: None };
            lines.insert(at + 2, again);
        };
        has(changed(twice), "was not asked for");
        let fired = |lines: &mut Vec<Line>| {
            *event(lines, "WatchForLoss") = "Fired { watch: Path(0), is_deleted: true }".to_owned()
        };
        has(changed(fired), "was not set");
    }

    #[test]
    fn deadlines_that_are_missed_or_not_reached_are_found() {
        let has = |difference: String, words: &str| assert!(difference.contains(words), "{difference}");
        let late = |lines: &mut Vec<Line>| {
            let at = position(lines, "Timeout");
            lines.truncate(at);
            lines.extend((1..12).map(|tenth| Line {
                core: "core".to_owned(),
                at: Some(100 + tenth * 100_000),
                event: Some("Drain".to_owned()),
                actions: None,
            }));
        };
        has(changed(late), "nothing has been done for");
        let early = |lines: &mut Vec<Line>| {
            let at = position(lines, "Timeout");
            lines[at].at = Some(100);
        };
        has(changed(early), "nothing is due at 100");
    }
}
