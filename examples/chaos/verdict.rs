//! What is made of all that was written down: which promises were broken, and the numbers.

mod excuses;
mod facts;
mod margins;
mod pace;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use testbed::history::History;

use self::excuses::Excuses;
use self::facts::Facts;
use crate::line::What;
use crate::register::Updates;
use crate::workload::{Workload, path};

/// What the parent knows of a run.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) began: u64,
    /// When the last fault was over.
    pub(crate) calm: u64,
    /// When the servers were together again after that.
    pub(crate) settled: u64,
    /// When the clients were asked to end.
    pub(crate) asked: u64,
    /// Nodes that were there when all clients were gone.
    pub(crate) left: Vec<String>,
    /// What the parent saw go wrong.
    pub(crate) wrong: Vec<String>,
    pub(crate) checked: Updates,
    pub(crate) ignored: Updates,
    pub(crate) session: Duration,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) seed: u64,
}

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Judges, prints, and writes the history into `out`; says whether all promises were kept.
pub(crate) fn judge(course: &Course, folder: &Path, out: &Path) -> Result<bool> {
    let facts = Facts::read(folder)?;
    facts.write(&out.join("history.jsonl"))?;
    let excuses = Excuses::of(&facts, course.session);
    let events = excuses.apply(&facts);
    let mut violations = course.wrong.clone();
    let mut broken = BTreeMap::new();
    for workload in &course.workloads {
        let objects: Vec<_> = workload.objects().iter().map(|object| path(object)).collect();
        let mine: Vec<_> =
            events.iter().filter(|event| objects.iter().any(|path| **path == *event.object)).cloned().collect();
        let history = History::from_events(mine);
        let mut known = Vec::new();
        for (promise, model) in workload.promises() {
            let report = history.judge(*model);
            let new: Vec<_> = report.violations.into_iter().filter(|it| !known.contains(it)).collect();
            *broken.entry(*promise).or_insert(0) += new.len();
            known.extend(new);
        }
        violations.extend(known);
    }
    let mut margins = margins::of(&facts, &excuses, course.session.as_nanos() as u64);
    violations.extend(margins.late.iter().cloned());
    for mark in &facts.marks {
        match &mark.what {
            What::Wrong { text } => violations.push(format!("{}: {text}", mark.process)),
            What::Evicted { node } if !facts.deleted(node) => {
                violations.push(format!("{} was told that {node} was deleted, which nobody did", mark.process));
            }
            _ => {}
        }
    }
    let pace = pace::of(&facts.events, course.settled, course.asked);
    let limit = course.session + Duration::from_secs(1);
    if pace.longest > limit {
        violations.push(format!("{}: no grant for {:?} after all was healed", pace.object, pace.longest));
    }
    violations.extend(course.left.iter().map(|node| format!("{node} is left")));
    for (updates, tokens) in [(course.checked, "checked"), (course.ignored, "ignored")] {
        println!(
            "set, tokens {tokens}: {} acknowledged, {} lost, {} refused",
            updates.acknowledged, updates.lost, updates.refused
        );
    }
    if course.checked.lost > 0 {
        violations.push(format!("{} updates lost in the set that checks tokens", course.checked.lost));
    }
    println!("{}", History::from_events(facts.events.clone()).summary());
    let mut kinds = BTreeMap::<_, usize>::new();
    facts.faults.iter().for_each(|struck| *kinds.entry(struck.fault).or_default() += 1);
    for (kind, count) in kinds {
        println!("{kind:<42} {count:>6}");
    }
    margins.print();
    println!("longest time without a grant after all was healed: {:?} ({})", pace.longest, pace.object);
    println!("stalls of clients: {}", facts.stalls());
    println!("nodes left: {}", course.left.len());
    for (promise, count) in broken {
        println!("violations of {promise}: {count}");
    }
    for violation in violations.iter().take(50) {
        println!("VIOLATION {violation}");
    }
    println!("violations: {}; seed {}", violations.len(), course.seed);
    Ok(violations.is_empty())
}
