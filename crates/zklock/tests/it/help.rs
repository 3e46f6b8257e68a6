//! The help, as a user reads it.

use crate::support::{code, stdout, zklock};

const SUBCOMMANDS: [&str; 15] = [
    "run",
    "hold",
    "list",
    "ls",
    "wait",
    "break",
    "revoke",
    "watch",
    "doctor",
    "count",
    "shards",
    "shards drain",
    "shards undrain",
    "shards pin",
    "shards unpin",
];

#[test]
fn options_of_servers_are_under_their_heading_and_no_others() {
    for subcommand in SUBCOMMANDS {
        let help = stdout(&zklock(subcommand.split(' ').chain(["--help"])));
        let (own, servers) = help.split_once("\nServers:\n").unwrap_or_else(|| panic!("{help}"));
        let options = |text: &str| -> Vec<String> {
            let words =
                text.lines().filter_map(|line| line.trim_start().strip_prefix('-')).map(|line| format!("-{line}"));
            let long = words.filter_map(|line| {
                line.split([' ', ',', '=']).find(|word| word.starts_with("--")).map(str::to_owned)
            });
            long.collect()
        };
        for option in options(servers) {
            let of_servers =
                ["--hosts", "--chroot", "--create-chroot", "--session", "--auth", "--sasl-file", "--tls"];
            assert!(of_servers.iter().any(|prefix| option.starts_with(prefix)), "{subcommand} {option}");
        }
        assert!(options(own).contains(&"--help".to_owned()), "{subcommand}: {own}");
        assert!(!own.contains("--hosts"), "{subcommand}: {own}");
    }
}

#[test]
fn synopsis_of_run_is_that_of_flock() {
    let usage = "zklock run [OPTIONS] PATH [--] COMMAND [ARG]...";
    assert!(stdout(&zklock(["run", "--help"])).contains(&format!("Usage: {usage}\n")));
    let pages = tempfile::tempdir().expect("a folder");
    assert_eq!(code(&zklock([std::ffi::OsStr::new("man"), pages.path().as_os_str()])), Some(0));
    let page = std::fs::read_to_string(pages.path().join("zklock-run.1")).expect("a page").replace('\\', "");
    assert!(page.contains(&format!(".SH SYNOPSIS\n{usage}\n")), "{page}");
    let done = zklock(["run", "/a"]);
    assert_eq!(code(&done), Some(64));
    assert!(crate::support::stderr(&done).contains(usage), "{}", crate::support::stderr(&done));
}

#[test]
fn variables_are_in_the_help() {
    let help = stdout(&zklock(["run", "--help"]));
    for variable in
        ["ZK_HOSTS", "ZK_CHROOT", "ZK_CREATE_CHROOT", "ZK_SESSION_TIMEOUT_MS", "ZK_AUTH_FILE", "ZK_IDENTIFIER"]
    {
        assert!(help.contains(variable), "{variable}: {help}");
    }
    assert!(help.contains("Required, unless ZK_HOSTS is set"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&zklock(["completions", shell]));
        assert!(!script.contains("die-with ") && !script.contains("die-with\n"), "{shell}");
        assert!(!script.contains("zklock__die__with") && !script.contains("'die-with:"), "{shell}");
    }
    assert!(!help.contains("die-with ") && !stdout(&zklock(["--help"])).contains("die-with"), "{help}");
}
