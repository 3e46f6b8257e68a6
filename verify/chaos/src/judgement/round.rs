//! The judgement of one round of random faults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::history::Step;
use testbed::nemesis::Kind;

use super::excuses::Excuses;
use super::facts::Facts;
use super::findings::{Findings, Promise};
use super::{HISTORY, Result, free, judge_clients, judge_left, judge_objects, margins, reading};
use crate::line::What;
use crate::random::objects;
use crate::timeline;

/// How many violations are printed, and how many lines of the history.
const SHOWN: usize = 10;
const LINES: usize = 120;

/// What the parent knows of a round.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) session: Duration,
    /// When all faults had ended, and the ensemble was complete.
    pub(crate) calm: u64,
    /// When all had finished, or time was up.
    pub(crate) end: u64,
    /// Errors that the parent noticed.
    pub(crate) wrong: Vec<String>,
    /// Where it was recorded.
    pub(crate) folder: PathBuf,
}

/// The numbers of a round.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) is_clean: bool,
    pub(crate) grants: usize,
    pub(crate) losses: usize,
    pub(crate) faults: usize,
    pub(crate) deletions: usize,
    /// The longest time that a lock was free while somebody waited, after the faults.
    pub(crate) longest: Duration,
}

pub(crate) fn of_round(round: &Round, out: &Path) -> Result<Numbers> {
    let facts = Facts::read(&round.folder)?;
    let excuses = Excuses::of(&facts, round.session);
    let margins = margins::of(&facts, &excuses, round.session.as_nanos() as u64);
    let mut findings = Findings::default();
    judge_objects(&mut findings, objects(), &reading::of(&facts, &excuses));
    margins.late.iter().for_each(|late| findings.add(Promise::Loss, late));
    judge_clients(&mut findings, &round.wrong, &facts, &excuses);
    judge_left(&mut findings, &facts);
    judge_trust(&mut findings, &facts, round.session.as_nanos() as u64);
    let stretches = free::of(&facts, round.calm, round.end);
    let mut about = None;
    for free in stretches.iter().filter(|free| free.time > free::LIMIT) {
        let ms = |nanos: u64| nanos / 1_000_000;
        let waiters: Vec<_> =
            free.waiters.iter().map(|(process, attempt)| format!("{process} ({attempt})")).collect();
        findings.add(
            Promise::Progress,
            format!(
                "{}: free for {} ms, {} ms of them unexplained, from {} ms after the last fault on, while these waited: {}",
                free.lock,
                ms(free.end - free.begin),
                ms(free.time),
                ms(free.begin - round.calm),
                waiters.join(", ")
            ),
        );
        about.get_or_insert((free.lock.clone(), free.begin));
    }
    let count = |is: fn(&Step) -> bool| facts.events.iter().filter(|event| is(&event.step)).count();
    let numbers = Numbers {
        is_clean: findings.is_clean(),
        grants: count(|step| matches!(step, Step::Acquired { .. })),
        losses: count(|step| matches!(step, Step::Lost { .. })),
        faults: facts.faults.len(),
        deletions: facts.deletions().filter(|deletion| deletion.done.is_some()).count(),
        longest: Duration::from_nanos(stretches.iter().map(|free| free.time).max().unwrap_or_default()),
    };
    if !numbers.is_clean {
        facts.write(&out.join(HISTORY))?;
        findings.write(&out.join("violations.txt"))?;
        timeline::draw(&facts.events, &facts.faults, &facts.marks, "chaos random", out)?;
        print(&findings, &facts, round, about);
    }
    Ok(numbers)
}

/// A session that lives, and was connected for half a timeout without a fault, has renewed the trust in it: that takes a third.
fn judge_trust(findings: &mut Findings, facts: &Facts, session: u64) {
    for mark in &facts.marks {
        let What::Expired { object } = &mark.what else { continue };
        let (from, to) = (mark.at.saturating_sub(session / 2), mark.at + session / 8);
        let sessions = facts.marks.iter().filter(|it| it.process == mark.process && it.at <= to);
        let mut sessions = sessions.filter_map(|it| match it.what {
            What::Session { id, connected } => Some((it.at, id, connected)),
            _ => None,
        });
        let Some((at, id, connected)) = sessions.next_back() else { continue };
        let is_steady = at <= from && connected && id != 0;
        let overlaps = |begin: u64, end: u64| begin <= mark.at && from <= end;
        let disturbed = facts.faults.iter().any(|struck| {
            // A server that is killed loses its clients, and so does one that loses its leader; a stopped one only falls silent.
            let hits = struck.fault == Kind::ServerPause || struck.clients.iter().any(|it| **it == *mark.process);
            hits && overlaps(struck.begin, struck.end)
        });
        let stalled = facts.marks.iter().any(|it| match it.what {
            What::Stalled { since } => {
                (it.process == mark.process || &*it.process == "servers") && overlaps(since, it.at)
            }
            _ => false,
        });
        if is_steady && !disturbed && !stalled {
            let text = format!(
                "{object}: {} lost it as expired at {:.1} ms, on a session that lives and was connected for {:.1} ms",
                mark.process,
                mark.at as f64 / 1e6,
                (mark.at - at) as f64 / 1e6
            );
            findings.add(Promise::Loss, text);
        }
    }
}

fn print(findings: &Findings, facts: &Facts, round: &Round, about: Option<(String, u64)>) {
    let all = || Promise::ALL.iter().flat_map(|promise| findings.of(*promise));
    for sentence in all().take(SHOWN) {
        println!("VIOLATION {sentence}");
    }
    // A sentence begins with the lock that it is about.
    let lock = about.or_else(|| {
        let words = |sentence: &str| {
            sentence.split([':', ' ', ',']).find(|word| word.starts_with("/chaos/")).map(str::to_owned)
        };
        all().find_map(|sentence| words(sentence)).map(|lock| (lock, round.end))
    });
    let Some((lock, until)) = lock else { return };
    let is_named = |process: &str| all().any(|sentence| sentence.contains(process));
    let mut lines = free::excerpt(facts, &lock, is_named);
    lines.retain(|(at, _)| *at <= until);
    println!("The last of what was recorded about {lock} until then, in ms from the end of the last fault:");
    for (at, line) in &lines[lines.len().saturating_sub(LINES)..] {
        println!("{:>9.1} {line}", (at.cast_signed() - round.calm.cast_signed()) as f64 / 1e6);
    }
}
