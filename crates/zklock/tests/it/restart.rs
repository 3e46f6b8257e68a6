//! `--session-file`: a start after zklock was killed.

use std::process::Command;

use rustix::process::Signal;
use zookeeper_recipes::Contender;

use crate::support::{Running, World, binary, code, stderr, stdout, zklock};

/// A hold with a session that nothing but its end takes away, in time for a test.
async fn hold(world: &World, options: &[&str]) -> Running {
    let arguments = [&["hold", "--session", "60"], options, &[&world.path]].concat();
    let running = Running::start(Command::new(binary()).args(arguments));
    world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    running
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_of_a_killed_zklock_is_free_for_the_next_with_its_session_file() {
    for option in ["--session-file", "--leaving"] {
        let world = World::new().await;
        let file = world.file("session").display().to_string();
        let mut killed = hold(&world, &[option, &file]).await;
        killed.signal(Signal::KILL);
        killed.end().await;
        assert_eq!(code(&world.run(&["-n"], &["true"])), Some(1), "its session goes on");
        let done = world.run(&["-n", option, &file], &["true"]);
        assert_eq!(code(&done), Some(0), "{}", stderr(&done));
        assert!(!world.file("session").exists(), "its session was closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_file_of_a_zklock_that_runs_is_refused() {
    let world = World::new().await;
    let file = world.file("session").display().to_string();
    let mut running = hold(&world, &["--session-file", &file]).await;
    let done = world.run(&["--session-file", &file], &["true"]);
    let reason = format!("zklock: invalid session file: {file} belongs to a session that is alive");
    assert!(code(&done) == Some(64) && stderr(&done).starts_with(&reason), "{}", stderr(&done));
    assert!(running.is_running());
    running.signal(Signal::TERM);
    assert_eq!(running.end().await.code(), Some(0), "it has held the lock to the end");
}

#[test]
fn help_has_the_alias_and_the_danger() {
    for subcommand in ["run", "hold"] {
        let help = stdout(&zklock([subcommand, "--help"])).split_whitespace().collect::<Vec<_>>().join(" ");
        for text in ["--session-file <FILE>", "--leaving]", "although its work may still run"] {
            assert!(help.contains(text), "{text}: {help}");
        }
    }
}
