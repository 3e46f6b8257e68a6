//! What is generated, and that the documents have it all.

use crate::support::{World, code, stderr, stdout, zklock};

const README: &str = include_str!("../../README.md");
const PAGE: &str = include_str!("../../../../docs/zklock.md");

#[test]
fn manual_pages_are_one_a_subcommand() {
    let folder = tempfile::tempdir().expect("a folder");
    let done = zklock([std::ffi::OsStr::new("man"), folder.path().as_os_str()]);
    assert_eq!(code(&done), Some(0));
    for page in [
        "zklock",
        "zklock-run",
        "zklock-hold",
        "zklock-list",
        "zklock-ls",
        "zklock-wait",
        "zklock-break",
        "zklock-revoke",
        "zklock-shards",
        "zklock-shards-drain",
        "zklock-doctor",
    ] {
        let text = std::fs::read_to_string(folder.path().join(format!("{page}.1"))).expect(page);
        assert!(text.contains(".SH NAME"), "{page}");
    }
    let done = zklock(["man", "/no/such/directory"]);
    assert_eq!(code(&done), Some(74));
}

#[test]
fn completions_are_for_every_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let done = zklock(["completions", shell]);
        assert_eq!(code(&done), Some(0));
        assert!(stdout(&done).contains("doctor"), "{shell}");
    }
}

#[test]
fn readme_has_every_exit_code() {
    let help = stdout(&zklock(["--help"]));
    let (_, table) = help.split_once("Exit codes").expect("a table");
    assert!(table.contains("128+N"), "{table}");
    for line in table.lines().skip(1).filter(|line| !line.is_empty()) {
        let code = line.split_whitespace().next().expect("a code");
        assert!(README.contains(&format!("\n| {code} |")), "{code}");
    }
}

/// The commands that the page gives systemd and Kubernetes run, with another program and another path.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_copied_runs() {
    let world = World::new().await;
    let unit =
        PAGE.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/zklock ")).expect("a unit");
    let unit: Vec<_> = unit.split(' ').map(str::to_owned).collect();
    let job = PAGE.lines().find_map(|line| line.trim_start().strip_prefix("args: ")).expect("a CronJob");
    let job: Vec<String> = serde_json::from_str(job).expect("an array");
    for arguments in [unit, job] {
        let replaced = arguments.iter().map(|argument| match argument.as_str() {
            "/locks/nightly-report" => world.path.clone(),
            "/usr/local/bin/report" => "true".to_owned(),
            "5s" | "1m" => "100ms".to_owned(),
            argument => argument.to_owned(),
        });
        let done = zklock(replaced.collect::<Vec<_>>());
        assert_eq!((code(&done), stderr(&done)), (Some(0), String::new()), "{arguments:?}");
    }
    // Where another machine has the lock, nothing has failed.
    let _guard = world.mutex().lock().await.expect("held");
    let done = zklock(["run", "-n", "-E", "0", &world.path, "--", "false"]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
}

#[test]
fn what_the_readme_installs_is_locked() {
    let installs: Vec<_> = README.lines().filter(|line| line.contains("cargo install")).collect();
    assert!(!installs.is_empty() && installs.iter().all(|line| line.contains(" --locked ")), "{installs:?}");
}

#[test]
fn readme_fits_on_a_few_screens() {
    assert!(README.lines().count() <= 150, "{} lines", README.lines().count());
}
