//! `zklock hold`: a lock without a command.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};

use rustix::process::Signal;
use zookeeper_recipes::Contender;

use crate::support::{PATIENCE, Running, World, binary, code, stderr, stdout, written, zklock};

/// A hold with this input, and its output after the token, which it has printed.
async fn hold(world: &World, options: &[&str], input: Stdio) -> (Running, i64, BufReader<ChildStdout>) {
    let mut command = Command::new(binary());
    command.arg("hold").args(options).arg(&world.path).stdout(Stdio::piped());
    let mut running = Running::start_with_input(&mut command, input);
    let mut output = BufReader::new(running.child().stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read");
    (running, line.trim().parse().expect("a token"), output)
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_held_until_the_input_ends() {
    let world = World::new().await;
    let (mut running, token, mut output) = hold(&world, &["--session", "60"], Stdio::piped()).await;
    let all = world.mutex().contenders().await.expect("listed");
    assert_eq!(all.iter().map(|one| (one.token().get(), one.is_holder())).collect::<Vec<_>>(), [(token, true)]);
    drop(running.child().stdin.take());
    assert_eq!(running.end().await.code(), Some(0));
    assert!(world.mutex().contenders().await.expect("listed").is_empty(), "it was released");
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "", "the token is all");
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_without_an_input_is_held_until_a_signal_comes() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let world = World::new().await;
        let (mut running, ..) = hold(&world, &["--session", "60"], Stdio::null()).await;
        assert!(world.mutex().try_lock().await.expect("tried").is_none() && running.is_running());
        running.signal(signal);
        assert_eq!(running.end().await.code(), Some(0), "this is how it ends");
        assert!(world.mutex().contenders().await.expect("listed").is_empty(), "it was released");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_ends_the_wait_of_a_hold() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let mut waiting = Running::start(Command::new(binary()).args(["hold", &world.path]));
    world.contenders("a waiter", |all| all.len() == 2).await;
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.end().await.code(), Some(143), "it never held the lock");
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_lock_is_not_held() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    for (options, expected) in [(&["-n"][..], 1), (&["-w", "0", "-E", "9"], 9)] {
        let done = zklock([&["hold"], options, &[world.path.as_str()]].concat());
        assert_eq!((code(&done), stdout(&done).as_str()), (Some(expected), ""), "{}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_hold_ends_at_once() {
    let world = World::new().await;
    let (mut running, ..) = hold(&world, &["--lost-code", "42"], Stdio::piped()).await;
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    assert_eq!(running.end().await.code(), Some(42));
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_of_a_killed_script_is_released() {
    let world = World::new().await;
    let file = world.file("started");
    // As flock's descriptor form: the system closes the pipe.
    let script = "exec 9> >($0 hold --session 60 $1 >$2); kill -STOP $$";
    let mut shell = Command::new("bash");
    shell.args(["-c", script, binary(), &world.path]).arg(&file);
    let mut shell = Running::start(&mut shell);
    written(&file).await;
    shell.signal(Signal::KILL);
    shell.end().await;
    world.contenders("it was released", <[_]>::is_empty).await;
}

/// The script of README.md.
#[tokio::test(flavor = "multi_thread")]
async fn script_of_the_readme_works_under_the_lock() {
    let world = World::new().await;
    let readme = include_str!("../../README.md");
    let block = readme.split("```bash\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a script");
    let script = world.file("script");
    std::fs::write(&script, block.replace("/locks/nightly-report", &world.path)).expect("written");
    let report = world.file("report");
    // It shows the token it got, and who holds the lock.
    std::fs::write(&report, format!("#!/bin/sh\necho \"$@\"; zklock list {}\n", world.path)).expect("written");
    std::fs::set_permissions(&report, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let zklock = std::path::Path::new(binary()).parent().expect("a folder");
    let path =
        format!("{}:{}:{}", world.folder.path().display(), zklock.display(), std::env::var("PATH").expect("PATH"));
    let run = || {
        let mut bash = assert_cmd::Command::new("bash");
        bash.arg(&script).env("PATH", &path).timeout(PATIENCE).assert()
    };
    let done = run();
    let shown = stdout(&done);
    assert_eq!(code(&done), Some(0), "{shown}{}", stderr(&done));
    let token = shown.lines().next().and_then(|line| line.strip_prefix("--token ")).expect("a token");
    assert!(
        shown.lines().any(|row| row.starts_with("0    holds") && row.contains(&format!(" {token} "))),
        "{shown}"
    );
    assert!(world.mutex().contenders().await.expect("listed").is_empty(), "it was released");
}
