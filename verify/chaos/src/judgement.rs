//! The judgement of a run: the broken promises, and the numbers.

mod excuses;
mod facts;
mod findings;
mod groups;
mod margins;
mod pace;
mod reading;
mod table;

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use testbed::history::{Event, History, read_journal};

use self::excuses::Excuses;
use self::facts::Facts;
use self::findings::Findings;
use self::pace::Pace;
use crate::line::What;
use crate::register::Updates;
use crate::timeline;
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

impl Course {
    /// The longest time without a grant that is allowed after the last fault.
    fn patience(&self) -> Duration {
        self.session + Duration::from_secs(1)
    }
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
    let title = format!("chaos, seed {}", course.seed);
    let pages = timeline::draw(&facts.events, &facts.faults, &facts.marks, &title, out)?;
    let excuses = Excuses::of(facts, course.session);
    let mut margins = margins::of(facts, &excuses, course.session.as_nanos() as u64);
    let pace = Pace::of(&facts.events, course.calm..=course.asked);

    let groups = groups::of(facts, &excuses, course);

    let mut findings = Findings::default();
    let objects = course.workloads.iter().flat_map(|workload| workload.objects()).copied();
    judge_objects(&mut findings, objects, &reading::of(facts, &excuses));
    margins.late.iter().for_each(|late| findings.add(Promise::Loss, late));
    judge_clients(&mut findings, &course.wrong, facts, &excuses);
    judge_left(&mut findings, facts);
    judge_progress(&mut findings, course, facts, &pace);
    groups.broken.iter().for_each(|(promise, text)| findings.add(*promise, text));
    judge_updates(&mut findings, course);
    judge_ways(&mut findings, course, facts);
    for node in &course.left {
        findings.add(Promise::Nodes, format!("{node} was left behind"));
    }
    findings.write(&out.join("violations.txt"))?;
    table::print(course, facts, &findings, &mut margins, &pace, &groups);
    println!("{pages} pages of the timeline, the history and all violations are in {}", out.display());
    Ok(findings.is_clean())
}

/// Judges each object by its promises.
fn judge_objects(findings: &mut Findings, objects: impl Iterator<Item = &'static str>, events: &[Event]) {
    for object in objects {
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

fn judge_clients(findings: &mut Findings, wrong: &[String], facts: &Facts, excuses: &Excuses) {
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
    wrong.iter().for_each(|text| findings.add(Promise::Clients, text));
    for event in facts.unanswered() {
        if !excuses.killed().any(|(process, _)| process == &*event.process) {
            let (process, object) = (&event.process, &event.object);
            let text = format!("{process} asked for {object}, and the outcome is not recorded");
            findings.add(Promise::Clients, text);
        }
    }
}

fn judge_progress(findings: &mut Findings, course: &Course, facts: &Facts, pace: &Pace) {
    pace::denied(&facts.events, course).into_iter().for_each(|text| findings.add(Promise::Progress, text));
    if pace.longest > course.patience() {
        let text = format!("{}: no grant for {:?} after all faults were healed", pace.object, pace.longest);
        findings.add(Promise::Progress, text);
    }
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
