//! Signals to zklock: they end a wait, and are passed on to a command.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use testbed::proxy::{Proxy, Request, Verdict};

use crate::support::{Running, World, binary, hosts, until, written};

/// So long that nothing here happens because a session has expired.
const LONG: &[&str] = &["--session", "60"];

#[tokio::test(flavor = "multi_thread")]
async fn signal_ends_a_wait_and_its_node_is_gone_at_once() {
    for (signal, expected) in [
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::ALARM, 142),
        (Signal::VTALARM, 154),
        (Signal::PROF, 155),
        (Signal::XCPU, 152),
    ] {
        let world = World::new().await;
        let _guard = world.mutex().lock().await.expect("held");
        let mut waiter = world.start(LONG, &["true"]);
        world.contenders("a waiter", |all| all.len() == 2).await;
        waiter.signal(signal);
        assert_eq!(waiter.end().await.code(), Some(expected));
        let left = world.mutex().contenders().await.expect("listed");
        assert_eq!(left.len(), 1, "its node is gone when it has ended: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_is_passed_on_to_the_command() {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::ALARM, "ALRM"),
        (Signal::VTALARM, "VTALRM"),
        (Signal::PROF, "PROF"),
        (Signal::XCPU, "XCPU"),
    ] {
        let world = World::new().await;
        let file = world.file("started");
        let script = format!("trap 'exit 33' {name}; echo >$0; while :; do sleep 0.05; done");
        let mut running = world.start(LONG, &["sh", "-c", &script, &file.display().to_string()]);
        written(&file).await;
        running.signal(signal);
        assert_eq!(running.end().await.code(), Some(33), "the command has caught {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_reaches_what_the_command_has_started() {
    let world = World::new().await;
    let (started, ended) = (world.file("started"), world.file("ended"));
    let inner = "trap 'echo >$1; exit' TERM; echo >$0; while :; do sleep 0.05; done";
    let (started_name, ended_name) = (started.display().to_string(), ended.display().to_string());
    // `wait` keeps the outer shell from being replaced by the inner one.
    let outer = "sh -c \"$0\" $1 $2 & wait";
    let mut running = world.start(LONG, &["sh", "-c", outer, inner, &started_name, &ended_name]);
    written(&started).await;
    running.signal(Signal::TERM);
    written(&ended).await;
    assert_eq!(running.end().await.code(), Some(143), "the outer shell has ended by the signal");
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_that_zklock_was_started_to_ignore_is_ignored() {
    let world = World::new().await;
    let (started, go_on) = (world.file("started"), world.file("go-on"));
    let script = "echo >$0; while ! test -e $1; do sleep 0.05; done; exit 3";
    let (started_name, go_on_name) = (started.display().to_string(), go_on.display().to_string());
    let arguments = world.arguments(LONG, &["sh", "-c", script, &started_name, &go_on_name]);
    let mut running = Running::start(
        Command::new("sh").args(["-c", "trap '' HUP; exec \"$@\"", "sh", binary()]).args(arguments),
    );
    written(&started).await;
    running.signal(Signal::HUP);
    std::fs::write(&go_on, "").expect("written");
    assert_eq!(running.end().await.code(), Some(3), "as under nohup");
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_ends_the_time_for_which_a_lock_is_kept() {
    let world = World::new().await;
    let log = std::fs::File::create(world.file("log")).expect("created");
    let mut command = Command::new(binary());
    command.args(world.arguments(&["-v", "--min-hold", "1000"], &["true"])).stderr(log);
    let mut running = Running::start(&mut command);
    let read = || std::fs::read_to_string(world.file("log")).expect("read");
    until("the command has ended", || read().contains("the command has ended").then_some(())).await;
    running.signal(Signal::TERM);
    assert_eq!(running.end().await.code(), Some(0), "the lock was held to the end of the command");
    assert!(world.mutex().contenders().await.expect("listed").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_that_come_together_leave_no_node() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    for _ in 0..5 {
        let mut waiter = world.start(LONG, &["true"]);
        world.contenders("a waiter", |all| all.len() == 2).await;
        for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
            waiter.signal(signal);
        }
        assert!(waiter.end().await.code().is_some_and(|code| code > 128));
        assert_eq!(
            world.mutex().contenders().await.expect("listed").len(),
            1,
            "its node is gone when it has ended"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_ends_the_look_before_the_wait() {
    let world = World::new().await;
    let proxy = Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy");
    let path = world.path.clone();
    let is_below = move |request: &Request| request.path.starts_with(&path);
    let held = is_below.clone();
    proxy.on_request(move |request| if held(request) { Verdict::Hold } else { Verdict::Forward });
    let hosts = proxy.hosts();
    for options in [&["-N", "3"][..], &[]] {
        proxy.reset();
        let mut running = world.start(&[options, &["--hosts", &hosts, "--session", "4"]].concat(), &["true"]);
        proxy.wait_for(&is_below).await;
        running.signal(Signal::TERM);
        assert_eq!(running.end().await.code(), Some(143), "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_reaches_a_command_that_is_stopped() {
    let world = World::new().await;
    let file = world.file("id");
    let script =
        ["sh", "-c", "trap 'exit 7' TERM; echo $$ >$0; while :; do sleep 0.02; done", &file.display().to_string()];
    let mut running = world.start(LONG, &script);
    let id = written(&file).await.trim().parse().expect("a number");
    kill_process(Pid::from_raw(id).expect("a process"), Signal::STOP).expect("stopped");
    running.signal(Signal::TERM);
    assert_eq!(running.end().await.code(), Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_not_kept_after_a_signal_to_the_command() {
    let world = World::new().await;
    let file = world.file("started");
    let script = "trap 'exit 5' TERM; echo >$0; while :; do sleep 0.05; done";
    let mut running = world.start(&["--min-hold", "1000"], &["sh", "-c", script, &file.display().to_string()]);
    written(&file).await;
    running.signal(Signal::TERM);
    assert_eq!(running.end().await.code(), Some(5));
}
