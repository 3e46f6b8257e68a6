//! What the program refuses.

use std::process::Command;

/// The exit code and what it printed to standard error.
fn lab(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).output().expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn unknown_fault_is_refused_with_the_known_ones() {
    for list in ["restrat", "restart,restrat"] {
        let (code, message) = lab(&["packages", "--faults", list]);
        assert_eq!(code, Some(64), "{message}");
        assert!(message.contains("there is no fault \"restrat\"; there are stopped-after-check, "), "{message}");
        assert!(message.contains(", other-key"), "{message}");
    }
}

#[test]
fn unknown_way_is_refused_with_the_known_ones() {
    let (code, message) = lab(&["packages", "--ways", "redis-set-nx,redlock"]);
    assert_eq!(code, Some(64), "{message}");
    assert!(message.contains("there is no way \"redlock\"; there are mariadb-unique-row, "), "{message}");
}

#[test]
fn unknown_option_is_refused_with_the_usage() {
    for arguments in [&["packages", "--fault", "restart"][..], &["packages", "--ways"], &["paint"], &[]] {
        let (code, message) = lab(arguments);
        assert_eq!(code, Some(64), "{arguments:?}: {message}");
        assert!(message.contains("usage: lab "), "{message}");
    }
}
