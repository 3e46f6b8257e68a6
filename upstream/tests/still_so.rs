//! Keeps `docs/upstream.md` and the programs true: what the client has fixed is to be taken out of both.

use std::collections::BTreeSet;
use std::process::{Command, Output};

const DOCUMENT: &str = include_str!("../../docs/upstream.md");
const LOCK_FILE: &str = include_str!("../../Cargo.lock");

fn upstream(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_upstream")).args(arguments).output().expect("started")
}

/// The programs, by the usage.
fn programs() -> BTreeSet<String> {
    let usage = String::from_utf8(upstream(&[]).stderr).expect("text");
    let (_, names) = usage.split_once("one of: ").expect("a list");
    names.split_whitespace().map(str::to_owned).collect()
}

/// Runs them one after the other: two of them measure times.
#[test]
fn every_point_is_still_so() {
    let mut failures = Vec::new();
    for name in programs() {
        let Output { status, stdout, stderr } = upstream(&[&name]);
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        println!("{stdout}{stderr}");
        if !status.success() {
            failures.push(format!("{name}: {status}\n{stdout}{stderr}"));
        }
    }
    assert!(failures.is_empty(), "change docs/upstream.md, or the program:\n{}", failures.join("\n"));
}

#[test]
fn document_names_every_program() {
    let named = DOCUMENT.lines().filter_map(|line| line.strip_prefix("## ")?.split('`').nth(1)).map(str::to_owned);
    assert_eq!(named.collect::<BTreeSet<_>>(), programs());
}

#[test]
fn document_is_about_the_version_in_use() {
    let (_, entry) = LOCK_FILE.split_once("name = \"zookeeper-client\"\nversion = \"").expect("an entry");
    let version = entry.split('"').next().expect("a version");
    assert!(
        DOCUMENT.contains(&format!("`zookeeper-client` {version}")),
        "read docs/upstream.md again, for {version}"
    );
}
