//! The command line: the help, and errors for wrong arguments.

use std::process::{Command, Output};

fn chaos(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos"));
    command.args(arguments.split_whitespace()).output().expect("can be run")
}

#[test]
fn help_names_every_option() {
    let output = chaos("--help");
    assert!(output.status.success(), "{output:?}");
    let help = String::from_utf8_lossy(&output.stdout);
    for option in ["--minutes", "--seed", "--workload", "--clients", "--out", "judge"] {
        assert!(help.contains(option), "no {option} in\n{help}");
    }
}

#[test]
fn wrong_arguments_are_named_and_end_with_2() {
    for (arguments, named) in [
        ("--bogus 1", "--bogus"),
        ("--minutes", "--minutes"),
        ("--minutes 1,5", "'1,5' for '--minutes"),
        ("--minutes -1", "'-1' for '--minutes"),
        ("--minutes inf", "'inf' for '--minutes"),
        ("--workload nope", "'nope' for '--workload"),
        ("--clients 0", "'0' for '--clients"),
        ("--seed x", "'x' for '--seed"),
        ("nope", "'nope'"),
        ("judge", "<DIR>"),
        ("judge no-such-directory", "no-such-directory/course.json"),
        ("judge one other", "'other'"),
        ("--minutes 1 judge one", "'judge'"),
        ("client c0.1 127.0.0.1:1", "<WORKLOAD>"),
    ] {
        let output = chaos(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "chaos {arguments}: {error}");
        assert!(error.contains(named), "chaos {arguments}: no {named} in\n{error}");
    }
}
