//! Whether all processes saw the same members when the faults were over, and every shard had an owner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use testbed::history::{Event, Step};

use super::Course;
use super::excuses::Excuses;
use super::facts::Facts;
use super::findings::Promise;
use crate::client::{GRACE, SETTLING};
use crate::line::{Mark, What};
use crate::run::SERVERS;
use crate::workload::{Workload, path};

/// How soon a process sees the set that the servers have, and how soon members do what is left to do.
const SECOND: Duration = Duration::from_secs(1);

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// How many processes followed the members at the end.
    pub(super) processes: usize,
    /// From the end of the faults until all of them saw the set that the servers have.
    pub(super) seen: Option<Duration>,
    /// From the end of the faults until every shard had the owner that kept it.
    pub(super) owned: Option<Duration>,
    pub(super) broken: Vec<(Promise, String)>,
}

/// A set that a process saw.
type Seen<'a> = (u64, &'a [String]);

pub(super) fn of(facts: &Facts, excuses: &Excuses, course: &Course) -> Groups {
    let mut groups = Groups::default();
    if course.workloads.contains(&Workload::Members) {
        groups.judge_members(facts, excuses, course);
    }
    if course.workloads.contains(&Workload::Shards) {
        groups.judge_shards(&super::reading::of(facts, excuses), course);
    }
    groups
}

impl Groups {
    fn judge_members(&mut self, facts: &Facts, excuses: &Excuses, course: &Course) {
        let mut last = last_seen(facts, course);
        let Some((at, servers)) = last.remove(SERVERS) else {
            return self.members("nobody has read the members from the servers".to_owned());
        };
        if at > course.settled + nanos(course.patience()) {
            self.members(format!("the servers' set changed {:.1} s after the last fault", since(course, at)));
        }
        let killed: BTreeSet<_> = excuses.killed().map(|(process, _)| process).collect();
        last.retain(|process, _| !killed.contains(process));
        let names: BTreeSet<_> = last.keys().filter_map(|process| process.split('.').next()).collect();
        let there: BTreeSet<_> = servers.iter().filter_map(|member| member.split(' ').next()).collect();
        if names != there || names.is_empty() {
            self.members(format!(
                "the processes of {names:?} belong to the group, and the servers have {there:?}"
            ));
        }
        self.processes = last.len();
        let mut latest = at;
        for (process, (seen_at, seen)) in last {
            let from = at.max(course.settled).max(connected(facts, process, course.asked));
            let limit = from + nanos(SECOND) + stalls(facts, process, from, course.asked);
            if seen != servers {
                self.members(format!("{process} saw {seen:?} last, and the servers have {servers:?}"));
            } else if seen_at > limit {
                let late = Duration::from_nanos(seen_at - from);
                self.members(format!("{process} saw the set of the servers {late:.1?} after it was connected"));
            }
            latest = latest.max(seen_at);
        }
        self.seen = Some(Duration::from_nanos(latest.saturating_sub(course.settled)));
    }

    fn members(&mut self, text: String) {
        self.broken.push((Promise::Members, text));
    }

    fn judge_shards(&mut self, events: &[Event], course: &Course) {
        let limit = course.session + GRACE + SETTLING + SECOND;
        let mut longest = Duration::ZERO;
        for object in Workload::Shards.objects() {
            let path = path(object);
            let own = events.iter().filter(|event| *event.object == path && event.at <= course.asked);
            let last = last_without_owner(own, course.asked);
            let took = Duration::from_nanos(last.saturating_sub(course.settled));
            longest = longest.max(took);
            if took > limit {
                let text = format!("{path}: no owner {took:.1?} after the last fault, and {limit:?} are allowed");
                self.broken.push((Promise::Shards, text));
            }
        }
        self.owned = Some(longest);
    }
}

/// The last instant at which nobody owned a shard.
fn last_without_owner<'a>(events: impl Iterator<Item = &'a Event>, end: u64) -> u64 {
    let (mut owners, mut last) = (BTreeSet::new(), 0);
    for event in events {
        let attempt = (&*event.process, event.attempt);
        match &event.step {
            Step::Acquired { .. } => {
                if owners.is_empty() {
                    last = event.at;
                }
                owners.insert(attempt);
            }
            Step::Lost { .. } | Step::Release => _ = owners.remove(&attempt),
            _ => {}
        }
    }
    if owners.is_empty() { end } else { last }
}

/// The set that each process saw last before the clients were stopped.
fn last_seen<'a>(facts: &'a Facts, course: &Course) -> BTreeMap<&'a str, Seen<'a>> {
    let mut last = BTreeMap::new();
    for mark in before(facts, course.asked) {
        if let What::Seen { members } = &mark.what {
            last.insert(&*mark.process, (mark.at, &**members));
        }
    }
    last
}

/// Since when the process has had the session and the connection that it had at the end.
fn connected(facts: &Facts, process: &str, end: u64) -> u64 {
    let own = before(facts, end).filter(|mark| *mark.process == *process);
    own.filter(|mark| matches!(mark.what, What::Session { .. })).map(|mark| mark.at).last().unwrap_or_default()
}

/// For how long the machine did not schedule the process.
fn stalls(facts: &Facts, process: &str, from: u64, end: u64) -> u64 {
    let own = before(facts, end).filter(|mark| *mark.process == *process && mark.at >= from);
    own.map(|mark| if let What::Stalled { since } = mark.what { mark.at - since.max(from) } else { 0 }).sum()
}

fn before(facts: &Facts, end: u64) -> impl Iterator<Item = &Mark> {
    facts.marks.iter().filter(move |mark| mark.at <= end)
}

fn since(course: &Course, at: u64) -> f64 {
    at.saturating_sub(course.settled) as f64 / 1e9
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
