//! The history as SVG: a page per minute, with a row per server and per client.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use testbed::history::{Event, Mode, Step};
use testbed::nemesis::{Kind, Struck};
use testbed::timeline::{self, Bar, Row, Shade};

use crate::line::{Mark, What};

const PAGE: u64 = 60_000_000_000;

/// The row of a process: `c3.1` belongs to client 3, and `server 1 (leader 2)` to server 1.
fn row_of(name: &str) -> Option<Row> {
    let number = |text: &str| text.split(['.', ' ']).next()?.parse().ok();
    match name.strip_prefix("server ") {
        Some(rest) => number(rest).map(Row::Server),
        None if name == "operator" => Some(Row::Operator),
        None => number(name.strip_prefix('c')?).map(Row::Client),
    }
}

/// Writes the pages, and returns their number.
pub(crate) fn draw(
    events: &[Event],
    faults: &[Struck],
    marks: &[Mark],
    title: &str,
    out: &Path,
) -> io::Result<usize> {
    let begin = events.first().map_or(0, |event| event.at);
    let end = events.last().map_or(0, |event| event.at);
    let mut bars = of_faults(faults);
    bars.extend(of_holds(events, faults, end));
    bars.extend(of_marks(marks, events, faults, end));
    timeline::draw(bars, (begin, end), PAGE, title, out)
}

fn of_faults(faults: &[Struck]) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut ends = BTreeMap::<Row, Vec<u64>>::new();
    for Struck { fault, target, begin, end, .. } in faults {
        let shade = match fault {
            Kind::ClientPause | Kind::LongClientPause | Kind::ServerPause | Kind::SlowDisk => Shade::Paused,
            Kind::LeaderKill | Kind::FollowerKill | Kind::RollingRestart | Kind::ClientKill => Shade::Killed,
            Kind::PingsHeld => Shade::PingsHeld,
            Kind::Flapping => Shade::Flapping,
            Kind::NodeDeletion | Kind::PathDeletion => continue,
            _ => Shade::CutOff,
        };
        let Some(row) = row_of(target) else { continue };
        // For clients the shade is enough.
        let (lane, label) = match row {
            Row::Server(_) => (Some(free_lane(ends.entry(row).or_default(), *begin, *end)), fault.to_string()),
            _ => (None, String::new()),
        };
        bars.push(Bar::new(row, lane, (*begin, *end), shade).labelled(label));
    }
    bars
}

/// A lane of its own for each of the faults that strike a server at the same time.
fn free_lane(ends: &mut Vec<u64>, begin: u64, end: u64) -> Arc<str> {
    let lane = ends.iter().position(|last| *last <= begin).unwrap_or(ends.len());
    ends.resize(ends.len().max(lane + 1), end);
    ends[lane] = end;
    lane.to_string().into()
}

fn of_holds(events: &[Event], faults: &[Struck], end: u64) -> Vec<Bar> {
    let mut modes = BTreeMap::new();
    let mut open = BTreeMap::<(Arc<str>, Arc<str>, u64), (u64, Shade)>::new();
    let mut bars = Vec::new();
    let mut close = |key: (Arc<str>, Arc<str>, u64), begin, end, shade| {
        let lane = Some(lane(&key.1));
        bars.extend(row_of(&key.0).map(|row| Bar::new(row, lane, (begin, end), shade)));
    };
    for event in events {
        let key = (Arc::clone(&event.process), Arc::clone(&event.object), event.attempt);
        match &event.step {
            Step::Acquire { mode, .. } => drop(modes.insert(key, *mode)),
            Step::Acquired { .. } => {
                let shade = if modes.remove(&key) == Some(Mode::Exclusive) { Shade::Held } else { Shade::Shared };
                open.insert(key, (event.at, shade));
            }
            Step::Downgrade => {
                if let Some((begin, shade)) = open.insert(key.clone(), (event.at, Shade::Shared)) {
                    close(key, begin, event.at, shade);
                }
            }
            Step::Lost { .. } | Step::Released | Step::ReleaseLost => {
                if let Some((begin, shade)) = open.remove(&key) {
                    close(key.clone(), begin, event.at, shade);
                    if matches!(event.step, Step::Lost { .. }) {
                        close(key, event.at, event.at, Shade::Lost);
                    }
                }
            }
            _ => {}
        }
    }
    for (key, (begin, shade)) in open {
        // A dropped guard and a killed process record no end.
        let last = events.iter().rev().find(|event| event.attempt == key.2 && event.process == key.0);
        let over = match last.map(|event| (&event.step, event.at)) {
            Some((Step::Release, at)) => at,
            _ => killed(faults, &key.0).unwrap_or(end),
        };
        close(key, begin, over.max(begin), shade);
    }
    bars
}

fn killed(faults: &[Struck], process: &str) -> Option<u64> {
    let kills = faults.iter().filter(|struck| struck.fault == Kind::ClientKill);
    kills.filter(|struck| struck.target == process).map(|struck| struck.begin).next()
}

fn of_marks(marks: &[Mark], events: &[Event], faults: &[Struck], end: u64) -> Vec<Bar> {
    let mut bars = Vec::new();
    for (i, mark) in marks.iter().enumerate() {
        let (row, begin) = (row_of(&mark.process), mark.at);
        let bar = match &mark.what {
            What::Deleting { .. } | What::Deleted { .. } => (None, begin, begin, Shade::Deleted),
            What::Stalled { since } => (None, *since, begin, Shade::Stalled),
            What::Suspended { object } => {
                let back = marks[i..].iter().filter(|later| later.process == mark.process);
                let back =
                    back.filter(|later| matches!(&later.what, What::Resumed { object: it } if it == object));
                let gone = events[events.partition_point(|event| event.at <= begin)..].iter().filter(|event| {
                    event.process == mark.process
                        && event.object == *object
                        && matches!(event.step, Step::Lost { .. } | Step::Release)
                });
                let over = back.map(|mark| mark.at).next().into_iter().chain(gone.map(|event| event.at).next());
                let over = over.chain(killed(faults, &mark.process)).min().unwrap_or(end);
                (Some(lane(object)), begin, over, Shade::Suspended)
            }
            _ => continue,
        };
        let (lane, begin, end, shade) = bar;
        bars.extend(row.map(|row| Bar::new(row, lane, (begin, end), shade)));
    }
    bars
}

fn lane(object: &str) -> Arc<str> {
    object.rsplit('/').next().unwrap_or(object).into()
}
