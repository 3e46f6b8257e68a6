//! Journals are read as they were written.

use std::fs::OpenOptions;
use std::io::Write;

use super::super::{Acquire, Event, History, Journal, Model, Step, read_journal};

#[test]
fn every_step_survives_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let history = History::to_journal(Journal::create(&path).unwrap());
    let process = history.process("a");
    let acquire = process.acquire(Acquire::exclusive("/lock").with_owner("b"));
    acquire.enqueued(None);
    acquire.enqueued(Some(-1));
    let held = acquire.ok(-1);
    assert!(held.confirm(|| true));
    held.downgrade();
    held.release().ok();
    process.acquire(Acquire::shared("/lock")).fail();
    process.acquire(Acquire::permits("/lock", 2)).unknown();
    let held = process.acquire(Acquire::shared("/lock")).ok(2);
    held.lost();
    held.release().lost();
    process.acquire(Acquire::shared("/lock")).ok(3).release().unknown();
    assert!(history.events().is_empty(), "they are only in the journal");

    let events: Vec<Event> = read_journal(&path).unwrap();
    assert_eq!(events.len(), 21);
    assert!(matches!(events[1].step, Step::Enqueued { place: None }));
    let history = History::from_events(events);
    history.judge(Model::ReadWrite).assert_clean();
    assert_eq!(history.summary().acquired, 3);
}

#[test]
fn incomplete_line_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let journal = Journal::create(&path).unwrap();
    for number in 0..3 {
        journal.write(&number).unwrap();
    }
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"4").unwrap();
    assert_eq!(read_journal::<u64>(&path).unwrap(), [0, 1, 2]);
}

#[test]
fn nonsense_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    Journal::create(&path).unwrap().write(&"no number").unwrap();
    assert!(read_journal::<u64>(&path).is_err());
}
