//! Every exit code, as the table in README.md has them.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use zookeeper_recipes::{Contender, Mutex, Options};

use crate::support::{Running, World, binary, code, stderr, zklock};

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_of_the_command_comes_back() {
    let world = World::new().await;
    for expected in [0, 1, 7, 64, 75, 126, 255] {
        let done = world.run(&[], &["sh", "-c", &format!("exit {expected}")]);
        assert_eq!(code(&done), Some(expected), "{}", stderr(&done));
        assert_eq!(stderr(&done), "", "a run without -v that goes well reports nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_a_signal_ends_gives_128_and_its_number() {
    let world = World::new().await;
    for (signal, expected) in [("KILL", 137), ("TERM", 143), ("INT", 130), ("SEGV", 139)] {
        let done = world.run(&[], &["sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(code(&done), Some(expected), "{}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_lock_gives_1_or_what_the_user_wants() {
    let world = World::new().await;
    let options = Options::new().with_identifier("billing-7");
    let mutex = Mutex::with_options(&world.session, &world.path, options).expect("a mutex");
    let guard = mutex.lock().await.expect("held");
    let (token, id) = (guard.fencing_token(), world.session.id());
    let busy = format!("zklock: {} is busy: billing-7 (token {token}, session {id}) holds it", world.path);
    for (options, expected) in [
        (&["-n"][..], 1),
        (&["-n", "-E", "0"], 0),
        (&["-w", "0"], 1),
        (&["-w", "3", "-E", "99"], 99),
        (&["-n", "-s"], 1),
        (&["-n", "-x"], 1),
    ] {
        let done = world.run(options, &["true"]);
        assert_eq!(code(&done), Some(expected), "{options:?}: {}", stderr(&done));
        assert!(stderr(&done).starts_with(&busy), "{options:?}: {}", stderr(&done));
    }
    let done = zklock(["wait", "-w", "0", &world.path]);
    assert!(stderr(&done).starts_with(&busy), "{}", stderr(&done));
}

#[test]
fn wrong_command_line_gives_64() {
    assert_eq!(code(&zklock(["run", "/locks/a"])), Some(64));
    assert_eq!(code(&zklock(["fly"])), Some(64));
    assert_eq!(code(&zklock(["--help"])), Some(0), "asking for help is no mistake");
}

#[test]
fn short_wait_without_a_server_names_the_reason_for_each_host() {
    let (one, other) = (testbed::free_port(), testbed::free_port());
    let hosts = format!("127.0.0.1:{one},no-such-host.invalid:{other}");
    let began = std::time::Instant::now();
    let done = zklock(["run", "-w", "1", "--hosts", &hosts, "/a", "true"]);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(code(&done), Some(69), "{}", stderr(&done));
    let refused = format!("127.0.0.1:{one}: connection refused");
    let unknown = format!("no-such-host.invalid:{other}: name does not resolve");
    assert!(stderr(&done).contains(&refused) && stderr(&done).contains(&unknown), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn local_session_that_is_not_upgraded_is_named() {
    let ensemble = testbed::Ensemble::builder().config("localSessionsEnabled", "true");
    let ensemble = ensemble.config("localSessionsUpgradingEnabled", "false").start().await.expect("an ensemble");
    let done = zklock(["run", "--hosts", &ensemble.hosts(), "/a", "true"]);
    assert_eq!(code(&done), Some(70), "{}", stderr(&done));
    assert!(
        stderr(&done).contains("a session is local, and gets no lock; set localSessions"),
        "{}",
        stderr(&done)
    );
}

#[test]
fn no_server_gives_69() {
    let hosts = format!("127.0.0.1:{}", testbed::free_port());
    for arguments in [&["run", "/a", "--", "true"][..], &["list", "/a"], &["doctor"], &["wait", "/a"]] {
        let done = zklock(
            [arguments, &[]]
                .concat()
                .into_iter()
                .take_while(|text| *text != "--")
                .chain(["--session", "1", "--hosts", hosts.as_str()])
                .chain(arguments.iter().copied().skip_while(|text| *text != "--")),
        );
        assert_eq!(code(&done), Some(69), "{arguments:?}: {}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_that_ends_before_a_server_answers_gives_69() {
    let hosts = format!("127.0.0.1:{}", testbed::free_port());
    let done = zklock(["run", "--hosts", &hosts, "--session", "3600", "-w", "0.3", "/a", "--", "true"]);
    assert_eq!(code(&done), Some(69), "{}", stderr(&done));
}

#[test]
fn wait_without_a_server_gives_69() {
    let hosts = format!("127.0.0.1:{}", testbed::free_port());
    for _ in 0..5 {
        let done = zklock(["wait", "--hosts", &hosts, "--session", "3600", "-w", "0.05", "/a"]);
        assert_eq!(code(&done), Some(69), "{}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_whose_node_somebody_removes_gives_70() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let mut waiter = world.start(&[], &["true"]);
    let all = world.contenders("a waiter", |all| all.len() == 2).await;
    assert!(world.mutex().break_lock(&all[1]).await.expect("broken"));
    assert_eq!(waiter.end().await.code(), Some(70));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_cannot_be_written_gives_74() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a device that is full");
    let mut listing = Running::start(Command::new(binary()).args(["list", &world.path]).stdout(full));
    assert_eq!(listing.end().await.code(), Some(74));
    let full = OpenOptions::new().write(true).open("/dev/full").expect("a device that is full");
    let mut help = Running::start(Command::new(binary()).arg("--help").stdout(full));
    assert_eq!(help.end().await.code(), Some(74));
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_nobody_reads_gives_141() {
    let world = World::new().await;
    let _guard = world.mutex().lock().await.expect("held");
    let mut listing = Command::new(binary());
    let mut listing = Running::start(listing.args(["watch", &world.path]).stdout(Stdio::piped()));
    drop(listing.child().stdout.take());
    // The pipe is closed; the next line finds that out.
    let mut waiter = world.start(&[], &["true"]);
    assert_eq!(listing.end().await.code(), Some(141));
    waiter.signal(Signal::TERM);
    waiter.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_lock_gives_75_or_what_the_user_wants() {
    for (options, expected) in [(&[][..], 75), (&["--lost-code", "42"], 42)] {
        let world = World::new().await;
        let mut holder = world.holder(options).await;
        let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
        assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
        assert_eq!(holder.end().await.code(), Some(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_of_another_identity_gives_77() {
    let world = World::new().await;
    let ours = ["--auth", "billing:secret", "--private"];
    let _holder = {
        let running =
            world.start(&ours, &["sh", "-c", "echo >$0; sleep 1000", &world.file("held").display().to_string()]);
        crate::support::written(&world.file("held")).await;
        running
    };
    for arguments in [&["list"][..], &["wait"], &["doctor"]] {
        let done = zklock(arguments.iter().copied().chain([world.path.as_str()]));
        // The doctor reports it.
        let expected = if arguments == ["doctor"] { 1 } else { 77 };
        assert_eq!(code(&done), Some(expected), "{arguments:?}: {}", stderr(&done));
    }
    let done = world.run(&["-n"], &["true"]);
    assert_eq!(code(&done), Some(77), "{}", stderr(&done));
    let done = zklock(["list", "--auth", "billing:secret", &world.path]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_the_servers_do_not_know_give_77() {
    let world = World::new().await;
    let done = world.run(&["--auth", "secret", "--auth-scheme", "nosuchscheme"], &["true"]);
    assert_eq!(code(&done), Some(77), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn path_of_a_lock_and_of_a_semaphore_gives_78() {
    for (theirs, ours) in [(&[][..], &["-N", "3"][..]), (&["-N", "3"], &["-s"]), (&["-N", "3"], &[])] {
        let world = World::new().await;
        let file = world.file("held");
        let _holder = world.start(theirs, &["sh", "-c", "echo >$0; sleep 1000", &file.display().to_string()]);
        crate::support::written(&file).await;
        let done = world.run(ours, &["true"]);
        assert_eq!(code(&done), Some(78), "{ours:?} beside {theirs:?}: {}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_cannot_be_executed_gives_126_and_a_missing_one_127() {
    let world = World::new().await;
    assert_eq!(code(&world.run(&[], &["/etc"])), Some(126));
    assert_eq!(code(&world.run(&[], &["no-such-command"])), Some(127));
    assert!(world.mutex().contenders().await.expect("listed").is_empty(), "the lock was released");
}
