//! Keeps `docs/upstream.md` and the programs true: what the client has fixed is to be taken out of both.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DOCUMENT: &str = include_str!("../../../docs/upstream.md");
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
const PATCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/patches");

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

/// Where cargo has unpacked a crate.
fn sources(name: &str) -> PathBuf {
    let about = Command::new("rustc").arg("-vV").output().expect("started");
    let about = String::from_utf8(about.stdout).expect("text");
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let mut metadata = Command::new(env!("CARGO"));
    // The crates of other systems need not be there.
    metadata.args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", host]);
    let output = metadata.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("started");
    let text = String::from_utf8(output.stdout).expect("text");
    let folder = format!("/{name}-");
    let mut manifests = text.split('"').filter(|word| word.ends_with("/Cargo.toml"));
    let manifest = manifests.find(|path| path.contains(&folder)).expect("a manifest");
    Path::new(manifest).parent().expect("a folder").to_owned()
}

#[test]
fn every_point_has_a_patch_that_applies() {
    let mut names = BTreeSet::new();
    for (name, folder) in
        [("zookeeper-client", PATCHES.to_owned()), ("asyncs-sync", format!("{PATCHES}/asyncs-sync"))]
    {
        let sources = sources(name);
        let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        for patch in files.filter(|file| file.extension().is_some_and(|end| end == "patch")) {
            names.insert(patch.file_stem().expect("a name").to_string_lossy().into_owned());
            let mut apply = Command::new("git");
            // Not as a part of a repository around it.
            apply.env("GIT_CEILING_DIRECTORIES", sources.parent().expect("a folder"));
            let Output { status, stderr, .. } =
                apply.args(["apply", "--check"]).arg(&patch).current_dir(&sources).output().expect("started");
            assert!(status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&stderr));
        }
    }
    assert_eq!(names, programs());
}
