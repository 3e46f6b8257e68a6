//! How long before the next grant each loss was reported.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use testbed::history::{Mode, Step};
use testbed::nemesis::{Kind, Struck};

use super::excuses::{self, Excuses};
use super::facts::Facts;

/// Margins in nanoseconds, by cause; negative where the grant came first.
#[derive(Debug, Default)]
pub(super) struct Margins {
    by_reason: BTreeMap<Reason, Vec<i64>>,
    /// Losses reported late without an excuse, one sentence each.
    pub(super) late: Vec<String>,
}

/// In printing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Fault(Kind),
    Unknown,
    Excused(excuses::Reason),
}

/// A granted attempt.
#[derive(Debug)]
struct Grant {
    process: Arc<str>,
    token: i64,
    invoked: u64,
    at: u64,
    exclusive: bool,
}

pub(super) fn of(facts: &Facts, excuses: &Excuses, session: u64) -> Margins {
    let mut asked = HashMap::new();
    let mut grants = HashMap::<&str, Vec<Grant>>::new();
    let mut index = HashMap::new();
    let mut losses = Vec::new();
    for event in &facts.events {
        let attempt = (&*event.process, event.attempt);
        match &event.step {
            Step::Acquire { mode, .. } => drop(asked.insert(attempt, (event.at, *mode))),
            Step::Acquired { token } => {
                let Some((invoked, mode)) = asked.remove(&attempt) else { continue };
                if matches!(mode, Mode::Permits(_)) {
                    continue;
                }
                let grants = grants.entry(&*event.object).or_default();
                index.insert(attempt, grants.len());
                let (process, exclusive) = (Arc::clone(&event.process), mode == Mode::Exclusive);
                grants.push(Grant { process, token: *token, invoked, at: event.at, exclusive });
            }
            Step::Downgrade => {
                if let (Some(grants), Some(at)) = (grants.get_mut(&*event.object), index.get(&attempt)) {
                    grants[*at].exclusive = false;
                }
            }
            // A process which only polls `state()` was not notified.
            Step::Lost { since } if *since == event.at => {
                losses.extend(index.get(&attempt).map(|at| (event, *at)))
            }
            _ => {}
        }
    }
    let mut margins = Margins::default();
    for (event, at) in losses {
        let grants = &grants[&*event.object];
        let lost = &grants[at];
        let conflicts = |next: &&Grant| {
            next.token > lost.token && (lost.exclusive || next.exclusive) && next.process != lost.process
        };
        let Some(next) = grants.iter().filter(conflicts).min_by_key(|next| next.token) else { continue };
        // A later arrival may have found a lock that had been free for long.
        if next.invoked > event.at {
            continue;
        }
        let excuse = excuses.find(&event.process, &event.object, lost.token, event.at);
        let reason = match excuse {
            Some(excuse) => Reason::Excused(excuse.reason),
            None => reason(&facts.faults, &event.process, event.at, session),
        };
        let margin = next.at.cast_signed() - event.at.cast_signed();
        margins.by_reason.entry(reason).or_default().push(margin);
        if margin < 0 && excuse.is_none() {
            margins.late.push(format!(
                "{}: {} (token {}) reported its loss {:.1} ms after {} was granted the lock (token {})",
                event.object,
                lost.process,
                lost.token,
                -margin as f64 / 1e6,
                next.process,
                next.token
            ));
        }
    }
    margins
}

/// The most likely cause of a process's loss.
fn reason(faults: &[Struck], process: &str, at: u64, session: u64) -> Reason {
    let near = faults.iter().filter(|struck| struck.begin <= at && at <= struck.end + session);
    let mut own = near.clone().filter(|struck| struck.clients.iter().any(|client| client == process));
    let mut servers = near.filter(|struck| struck.clients.is_empty() && struck.target != "nodes");
    let newest = own.next_back().or_else(|| servers.next_back());
    newest.map_or(Reason::Unknown, |struck| Reason::Fault(struck.fault))
}

impl Margins {
    pub(super) fn print(&mut self) {
        println!(
            "\n{:<46}{:>6}{:>10}{:>10}{:>10}{:>10}",
            "Loss reported before the next grant, in ms", "n", "least", "1 %", "median", "most"
        );
        let all: Vec<_> = self.unexcused().collect();
        let rows = self.by_reason.iter_mut().map(|(reason, margins)| (reason.to_string(), margins));
        let mut all = all;
        for (name, margins) in rows.chain([("all but those that are excused".to_owned(), &mut all)]) {
            margins.sort_unstable();
            let Some(last) = margins.len().checked_sub(1) else { continue };
            let [least, percent, median, most] =
                [0, last / 100, last / 2, last].map(|at| format!("{:.1}", margins[at] as f64 / 1e6));
            println!("{name:<46}{:>6}{least:>10}{percent:>10}{median:>10}{most:>10}", margins.len());
        }
    }

    fn unexcused(&self) -> impl Iterator<Item = i64> {
        let excused = |reason: &Reason| matches!(reason, Reason::Excused(_));
        self.by_reason.iter().filter(move |(reason, _)| !excused(reason)).flat_map(|(_, margins)| margins).copied()
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let excused = match self {
            Self::Fault(kind) => return kind.fmt(f),
            Self::Unknown => "no fault known",
            Self::Excused(excuses::Reason::Paused) => "excused: the process was paused",
            Self::Excused(excuses::Reason::Starved) => "excused: the machine did not schedule it",
            Self::Excused(excuses::Reason::Deleted) => "excused: an operator deleted the node",
            Self::Excused(excuses::Reason::PingsHeld) => "excused: ping answers held back",
        };
        f.pad(excused)
    }
}
