//! The file to which every holder, in any language, writes each acquire and release.
//!
//! A line is `+MARK WHO` or `-MARK WHO`. At most the limit may hold at once, or any number of readers, whose mark is
//! `r`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use testbed::history::{Acquire, History, Model};

/// A ledger file of a test.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: tempfile::TempDir,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// Writes that `who` acquires, and checks that it may.
    pub(crate) fn enter(&self, mark: char, who: &str, limit: u32) {
        append(&self.path(), &format!("+{mark} {who}\n"));
        self.check(limit);
    }

    /// Writes that `who` releases.
    pub(crate) fn leave(&self, mark: char, who: &str) {
        append(&self.path(), &format!("-{mark} {who}\n"));
    }

    /// All acquires, in order.
    pub(crate) fn entries(&self) -> Vec<String> {
        let lines = std::fs::read_to_string(self.path()).unwrap_or_default();
        lines.lines().filter(|line| line.starts_with('+')).map(|line| line[3..].to_owned()).collect()
    }

    /// Judges all that was written.
    pub(crate) fn check(&self, limit: u32) {
        let lines = std::fs::read_to_string(self.path()).expect("readable");
        let (history, mut present) = (History::new(), Vec::new());
        for (number, line) in (1..).zip(lines.lines()) {
            let (way, who) = line.split_at(1);
            if way == "+" {
                let acquire = match limit {
                    1 if who.starts_with('r') => Acquire::shared("the lock"),
                    1 => Acquire::exclusive("the lock"),
                    _ => Acquire::permits("the lock", 1),
                };
                present.push((who, history.process(who).acquire(acquire).ok(number)));
            } else {
                let at = present.iter().position(|(one, _)| *one == who).expect("only a holder releases");
                present.remove(at).1.release().ok();
            }
        }
        history.judge(if limit == 1 { Model::ReadWrite } else { Model::Permits(limit) }).assert_clean();
    }
}

/// In one write, so that the lines of several processes do not mix.
fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a ledger");
    file.write_all(line.as_bytes()).expect("written");
}
