//! Everything that was recorded, ordered by time.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use testbed::history::{Event, Step, read_journal};
use testbed::nemesis::Struck;

use crate::line::{Line, Mark, What};

/// The records of clients, nemesis and operator.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) events: Vec<Event>,
    pub(super) faults: Vec<Struck>,
    pub(super) marks: Vec<Mark>,
    deleted: HashSet<String>,
}

impl Facts {
    /// Reads all files of a directory.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut lines = Vec::new();
        for entry in fs::read_dir(folder)? {
            lines.extend(read_journal(entry?.path())?);
        }
        Ok(Self::of(lines))
    }

    pub(super) fn of(lines: Vec<Line>) -> Self {
        let mut facts = Self::default();
        for line in lines {
            match line {
                Line::Event(event) => facts.events.push(event),
                Line::Fault(struck) => facts.faults.push(struck),
                Line::Mark(mark) => facts.marks.push(mark),
            }
        }
        facts.events.sort_by_key(|event| event.at);
        facts.faults.sort_by_key(|struck| struck.begin);
        facts.marks.sort_by_key(|mark| mark.at);
        facts.deleted = facts.deletions().map(|(node, ..)| node.to_owned()).collect();
        facts
    }

    /// Writes everything into one file.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut lines: Vec<_> = self.events.iter().cloned().map(Line::Event).collect();
        lines.extend(self.faults.iter().cloned().map(Line::Fault));
        lines.extend(self.marks.iter().cloned().map(Line::Mark));
        lines.sort_by_key(Line::at);
        let mut file = BufWriter::new(File::create(path)?);
        for line in lines {
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    }

    /// The nodes which the operator deleted or may have deleted, each with the token of its hold and the time of the request.
    pub(super) fn deletions(&self) -> impl Iterator<Item = (&str, i64, u64)> {
        let answers: HashSet<_> = self.marks.iter().filter_map(Mark::answered).collect();
        self.marks.iter().filter_map(move |mark| match &mark.what {
            What::Deleting { node, .. } if answers.contains(&(mark.at, node)) => None,
            What::Deleted { result, .. } if result == "NoNode" || result == "NotEmpty" => None,
            What::Deleting { node, token } | What::Deleted { node, token, .. } => Some((&**node, *token, mark.at)),
            _ => None,
        })
    }

    pub(super) fn deleted(&self, node: &str) -> bool {
        self.deleted.contains(node)
    }

    /// Attempts without an outcome, not even an unknown one.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &Event> {
        let is_end =
            |step: &Step| matches!(step, Step::Acquired { .. } | Step::AcquireFailed | Step::AcquireUnknown);
        let ends = self.events.iter().filter(|event| is_end(&event.step));
        let ended: HashSet<_> = ends.map(|event| (&event.process, event.attempt)).collect();
        let asked = self.events.iter().filter(|event| matches!(event.step, Step::Acquire { .. }));
        asked.filter(move |event| !ended.contains(&(&event.process, event.attempt)))
    }

    /// How many locks were granted, by what.
    pub(super) fn ways(&self) -> BTreeMap<&str, usize> {
        let mut ways = BTreeMap::new();
        for mark in &self.marks {
            if let What::Granted { by } = &mark.what {
                *ways.entry(&**by).or_default() += 1;
            }
        }
        ways
    }

    pub(super) fn stalls(&self) -> usize {
        self.marks.iter().filter(|mark| matches!(mark.what, What::Stalled { .. })).count()
    }
}
