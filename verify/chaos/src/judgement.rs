//! The judgement of a run: the broken promises, and the numbers.

mod excuses;
mod facts;
mod findings;
mod groups;
mod reading;
mod table;

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use testbed::history::{Event, History, Step, read_journal};

use self::excuses::Excuses;
use self::facts::Facts;
use self::findings::Findings;
use crate::line::What;
use crate::register::Updates;
use crate::workload::{Workload, path, promises};

pub(crate) use self::findings::Promise;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const HISTORY: &str = "history.jsonl";
const COURSE: &str = "course.json";
/// By what a lock is granted, as the library logs it.
const WAYS: [&str; 4] = ["Listed", "Counted", "HandedOver", "Deleted"];
/// A run of this length must show that updates can be lost.
const LONG: Duration = Duration::from_secs(300);

/// The parent's record of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Course {
    pub(crate) seed: u64,
    pub(crate) session: Duration,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) clients: usize,
    pub(crate) duration: Duration,
    /// When the last fault was over.
    pub(crate) calm: u64,
    /// When the ensemble was complete again after that.
    pub(crate) settled: u64,
    /// When the clients were stopped.
    pub(crate) asked: u64,
    /// Nodes which existed when all clients had ended.
    pub(crate) left: Vec<String>,
    /// Errors that the parent noticed.
    pub(crate) wrong: Vec<String>,
    pub(crate) checked: Updates,
    pub(crate) ignored: Updates,
}

/// Merges and judges what all processes of a run wrote into `folder`. Returns whether all promises were kept.
pub(crate) fn of_run(course: &Course, folder: &Path, out: &Path) -> Result<bool> {
    let facts = Facts::read(folder)?;
    facts.write(&out.join(HISTORY))?;
    serde_json::to_writer_pretty(File::create(out.join(COURSE))?, course)?;
    judge(course, &facts, out)
}

/// Judges the history in `out` again.
pub(crate) fn again(out: &Path) -> Result<bool> {
    let path = out.join(COURSE);
    let course = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    judge(&serde_json::from_reader(course)?, &Facts::of(read_journal(out.join(HISTORY))?), out)
}

fn judge(course: &Course, facts: &Facts, out: &Path) -> Result<bool> {
    let excuses = Excuses::of(facts, course.session);
    let events = reading::of(facts, &excuses);
    let mut findings = Findings::default();
    judge_objects(&mut findings, course, &events);
    judge_clients(&mut findings, course, facts, &excuses);
    judge_left(&mut findings, facts);
    judge_progress(&mut findings, course, facts);
    groups::judge(&mut findings, course, facts, &excuses, &events);
    judge_updates(&mut findings, course);
    judge_ways(&mut findings, course, facts);
    for node in &course.left {
        findings.add(Promise::Nodes, format!("{node} was left behind"));
    }
    findings.write(&out.join("violations.txt"))?;
    table::print(course, facts, &findings);
    println!("The history and all violations are in {}", out.display());
    Ok(findings.is_clean())
}

/// Judges each object by its promises.
fn judge_objects(findings: &mut Findings, course: &Course, events: &[Event]) {
    for object in course.workloads.iter().flat_map(|workload| workload.objects()) {
        let path = path(object);
        let own: Vec<_> = events.iter().filter(|event| *event.object == path).cloned().collect();
        let history = History::from_events(own);
        let mut known = Vec::new();
        for (promise, model) in promises(object) {
            let report = history.judge(*model);
            let new: Vec<_> = report.violations.into_iter().filter(|it| !known.contains(it)).collect();
            new.iter().for_each(|violation| findings.add(*promise, violation));
            known.extend(new);
        }
    }
}

fn judge_clients(findings: &mut Findings, course: &Course, facts: &Facts, excuses: &Excuses) {
    for mark in &facts.marks {
        match &mark.what {
            What::Wrong { text } => findings.add(Promise::Clients, format!("{}: {text}", mark.process)),
            What::Evicted { node } if !facts.deleted(node) => {
                let text = format!("{} was evicted from {node}, which nobody deleted", mark.process);
                findings.add(Promise::Clients, text);
            }
            _ => {}
        }
    }
    course.wrong.iter().for_each(|text| findings.add(Promise::Clients, text));
    for event in facts.unanswered() {
        if !excuses.killed().any(|(process, _)| process == &*event.process) {
            let (process, object) = (&event.process, &event.object);
            let text = format!("{process} asked for {object}, and the outcome is not recorded");
            findings.add(Promise::Clients, text);
        }
    }
}

/// Somebody waits for each lock all the time, so each must be granted before the last fault and again after it.
fn judge_progress(findings: &mut Findings, course: &Course, facts: &Facts) {
    let grants = facts.events.iter().filter(|event| matches!(event.step, Step::Acquired { .. }));
    let grants: Vec<_> = grants.map(|event| (&*event.object, event.at)).collect();
    for workload in &course.workloads {
        for path in workload.objects().iter().map(|object| path(object)) {
            if !grants.iter().any(|(object, at)| *object == path && *at <= course.calm) {
                findings.add(Promise::Progress, format!("{path}: no grant before the last fault was over"));
            }
            let times = course.settled..=course.asked;
            let is_again = |(object, at): &(&str, u64)| awaited(object) == awaited(&path) && times.contains(at);
            if workload.is_busy() && !grants.iter().any(is_again) {
                findings.add(Promise::Progress, format!("{path}: no grant after all faults were healed"));
            }
        }
    }
}

/// What the one that acquires waits for: a claim takes any number that is free, so nobody waits for a certain one.
fn awaited(object: &str) -> &str {
    let slots = path("slots");
    object.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| *parent == slots).unwrap_or(object)
}

fn judge_left(findings: &mut Findings, facts: &Facts) {
    for mark in &facts.marks {
        if let What::Left { node } = &mark.what {
            findings.add(
                Promise::Nodes,
                format!("{node} was left behind by {}, which had released everything", mark.process),
            );
        }
    }
}

/// A long run must show that locks are granted in every way.
fn judge_ways(findings: &mut Findings, course: &Course, facts: &Facts) {
    let ways = facts.ways();
    let shows = course.workloads.contains(&Workload::Lock) && course.duration >= LONG;
    for way in WAYS.into_iter().filter(|way| shows && !ways.contains_key(way)) {
        findings.add(Promise::Sight, format!("no lock was granted by {way}: the judge sees nothing"));
    }
}

fn judge_updates(findings: &mut Findings, course: &Course) {
    if course.checked.lost > 0 {
        let text = format!("{} updates of the set that checks tokens were lost", course.checked.lost);
        findings.add(Promise::Updates, text);
    }
    let shows = course.workloads.contains(&Workload::LockSet) && course.duration >= LONG;
    if shows && course.ignored.lost == 0 {
        findings.add(Promise::Sight, "no update of the set that ignores tokens was lost: the judge sees nothing");
    }
}
