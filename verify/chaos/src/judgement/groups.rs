//! Whether all processes saw the same members at the end, and every shard had an owner.

use std::collections::{BTreeMap, BTreeSet};

use testbed::history::{Event, Step};

use super::Course;
use super::excuses::Excuses;
use super::facts::Facts;
use super::findings::{Findings, Promise};
use crate::line::What;
use crate::run::SERVERS;
use crate::workload::{Workload, path};

pub(super) fn judge(findings: &mut Findings, course: &Course, facts: &Facts, excuses: &Excuses, events: &[Event]) {
    if course.workloads.contains(&Workload::Members) {
        for text in of_members(course, facts, excuses) {
            findings.add(Promise::Members, text);
        }
    }
    if course.workloads.contains(&Workload::Shards) {
        for path in Workload::Shards.objects().iter().map(|object| path(object)) {
            let own = events.iter().filter(|event| *event.object == path && event.at <= course.asked);
            if !is_owned(own) {
                findings.add(Promise::Shards, format!("{path}: no owner at the end"));
            }
        }
    }
}

fn of_members(course: &Course, facts: &Facts, excuses: &Excuses) -> Vec<String> {
    let mut last = last_seen(facts, course);
    let Some(servers) = last.remove(SERVERS) else {
        return vec!["nobody has read the members from the servers".to_owned()];
    };
    let mut broken = Vec::new();
    let killed: BTreeSet<_> = excuses.killed().map(|(process, _)| process).collect();
    last.retain(|process, _| !killed.contains(process));
    let names: BTreeSet<_> = last.keys().filter_map(|process| process.split('.').next()).collect();
    let there: BTreeSet<_> = servers.iter().filter_map(|member| member.split(' ').next()).collect();
    if names != there || names.is_empty() {
        broken.push(format!("the processes of {names:?} belong to the group, and the servers have {there:?}"));
    }
    for (process, seen) in last.into_iter().filter(|(_, seen)| *seen != servers) {
        broken.push(format!("{process} saw {seen:?} last, and the servers have {servers:?}"));
    }
    broken
}

/// Whether somebody owned a shard after these events.
fn is_owned<'a>(events: impl Iterator<Item = &'a Event>) -> bool {
    let mut owners = BTreeSet::new();
    for event in events {
        let attempt = (&*event.process, event.attempt);
        match &event.step {
            Step::Acquired { .. } => _ = owners.insert(attempt),
            Step::Lost { .. } | Step::Release => _ = owners.remove(&attempt),
            _ => {}
        }
    }
    !owners.is_empty()
}

/// The set that each process saw last before the clients were stopped.
fn last_seen<'a>(facts: &'a Facts, course: &Course) -> BTreeMap<&'a str, &'a [String]> {
    let marks = facts.marks.iter().filter(|mark| mark.at <= course.asked);
    let seen = marks.filter_map(|mark| match &mark.what {
        What::Seen { members } => Some((&*mark.process, &**members)),
        _ => None,
    });
    seen.collect()
}
