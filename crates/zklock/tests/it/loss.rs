//! A lost lock: the command is stopped before anybody else can be granted the lock, in every state that it may be in.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use testbed::proxy::Proxy;
use zookeeper_recipes::Contender;

use crate::support::{
    LEAVE_A_ZOMBIE, Running, World, binary, binary_without_an_init, code, hosts, stderr, stdout, until, written,
};

/// Writes the time when it gets SIGTERM into the second file, after it has written the first.
const NOTE_THE_END: &str = "trap 'date +%s%N >$1; exit 9' TERM; echo >$0; while :; do sleep 0.02; done";

async fn proxy() -> Proxy {
    Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy")
}

fn name(file: &Path) -> String {
    file.display().to_string()
}

async fn time(file: &Path) -> u128 {
    written(file).await.trim().parse().expect("nanoseconds")
}

/// The process whose id a command has written, as long as it runs.
fn is_running(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
    // After the name in parentheses comes the state. A zombie has ended.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test(flavor = "multi_thread")]
async fn command_ends_before_the_lock_is_granted_to_another() {
    let (world, proxy) = (World::new().await, proxy().await);
    let files = ["started", "ended", "next"].map(|file| world.file(file));
    let options = ["--hosts", &proxy.hosts(), "--session", "4"];
    let mut first = world.start(&options, &["sh", "-c", NOTE_THE_END, &name(&files[0]), &name(&files[1])]);
    written(&files[0]).await;
    let mut second = world.start(&[], &["sh", "-c", "date +%s%N >$0", &name(&files[2])]);
    world.contenders("a waiter", |all| all.len() == 2).await;
    proxy.black_hole();
    let (ended, next) = (time(&files[1]).await, time(&files[2]).await);
    assert!(ended < next, "the first has ended {} ms too late", (ended - next) / 1_000_000);
    assert_eq!(first.end().await.code(), Some(75));
    assert_eq!(second.end().await.code(), Some(0));
}

/// Its process lives, and its file does not change any more.
#[tokio::test(flavor = "multi_thread")]
async fn command_that_hangs_loses_the_lock() {
    let world = World::new().await;
    let [file, next] = ["moves", "next"].map(|file| world.file(file));
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >>$0; sleep 0.5; done; sleep 1000";
    let options = ["--stall", "4", "--stall-file", &name(&file)];
    let mut first = world.start(&options, &["sh", "-c", script, &name(&file)]);
    written(&file).await;
    let mut second = world.start(&[], &["sh", "-c", "cat $0 >$1", &name(&file), &name(&next)]);
    assert_eq!(first.end().await.code(), Some(75));
    assert_eq!(second.end().await.code(), Some(0));
    assert!(written(&next).await.ends_with("10\n"), "it has lost the lock while it moved");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_ignores_sigterm_is_killed_after_the_grace_time() {
    let world = World::new().await;
    let file = world.file("ids");
    let script =
        "trap '' TERM; sh -c 'echo $$; while :; do sleep 0.05; done' >$0 & wait; while :; do sleep 1; done";
    let mut running = world.start(&["--grace", "0.3"], &["sh", "-c", script, &name(&file)]);
    let grandchild = written(&file).await;
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(is_running(&grandchild));
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    assert_eq!(running.end().await.code(), Some(75));
    until("the grandchild has ended, too", || (!is_running(&grandchild)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grandchild_that_outlives_its_parent_has_the_grace_time() {
    let world = World::new().await;
    let (started, ended) = (world.file("started"), world.file("ended"));
    let inner = "trap 'sleep 0.3; echo >$1; exit' TERM; echo >$0; while :; do sleep 0.02; done";
    let outer = "sh -c \"$0\" $1 $2 & wait";
    let mut running = world.start(&[], &["sh", "-c", outer, inner, &name(&started), &name(&ended)]);
    written(&started).await;
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    assert_eq!(running.end().await.code(), Some(75));
    assert!(ended.exists(), "it was not killed before it had cleaned up");
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_command_is_ended() {
    let world = World::new().await;
    let file = world.file("id");
    let options = ["--grace", "1000"];
    let mut running =
        world.start(&options, &["sh", "-c", "echo $$ >$0; while :; do sleep 0.02; done", &name(&file)]);
    let id = written(&file).await.trim().parse().expect("a number");
    kill_process(Pid::from_raw(id).expect("a process"), Signal::STOP).expect("stopped");
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    assert_eq!(running.end().await.code(), Some(75));
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_error_that_nobody_reads_does_not_keep_the_command_alive() {
    let world = World::new().await;
    let (started, ended) = (world.file("started"), world.file("ended"));
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("flags");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("set");
    while writer.write(&[b'.'; 512]).is_ok() {}
    while writer.write(b".").is_ok() {}
    fcntl_setfl(&writer, flags).expect("set");
    let mut command = Command::new(binary());
    // A shell reports what a signal has ended.
    let script = format!("exec 2>/dev/null; {NOTE_THE_END}");
    let script = ["sh", "-c", &script, &name(&started), &name(&ended)];
    let mut running = Running::start(command.args(world.arguments(&["-v"], &script)).stderr(writer));
    written(&started).await;
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    written(&ended).await;
    assert_eq!(running.end().await.code(), Some(75));
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_that_only_the_release_finds_is_a_loss() {
    let (world, proxy) = (World::new().await, proxy().await);
    let (started, go_on) = (world.file("started"), world.file("go-on"));
    let script = "echo >$0; while ! test -e $1; do sleep 0.02; done";
    // Nobody reports that the node is gone.
    proxy.swallow_events();
    let options = ["--hosts", &proxy.hosts(), "--session", "60"];
    let mut running = world.start(&options, &["sh", "-c", script, &name(&started), &name(&go_on)]);
    written(&started).await;
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    std::fs::write(&go_on, "").expect("written");
    assert_eq!(running.end().await.code(), Some(75), "another may have held the lock beside the command");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_ends_while_the_servers_are_away_keeps_its_exit_code() {
    let (world, proxy) = (World::new().await, proxy().await);
    let (started, go_on) = (world.file("started"), world.file("go-on"));
    let script = "echo >$0; while ! test -e $1; do sleep 0.02; done; exit 6";
    let options = ["--hosts", &proxy.hosts(), "--session", "10"];
    let mut running = world.start(&options, &["sh", "-c", script, &name(&started), &name(&go_on)]);
    written(&started).await;
    proxy.black_hole();
    std::fs::write(&go_on, "").expect("written");
    assert_eq!(running.end().await.code(), Some(6), "the lock was its own to its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_reports_an_outage_and_its_end() {
    let (world, proxy) = (World::new().await, proxy().await);
    let held = world.mutex().lock().await.expect("held");
    let errors = world.file("errors");
    let (mut command, options) = (Command::new(binary()), ["--hosts", &proxy.hosts(), "--session", "4"]);
    command.args(world.arguments(&options, &["true"])).stderr(File::create(&errors).expect("created"));
    let mut running = Running::start(&mut command);
    world.contenders("a waiter", |all| all.len() == 2).await;
    let reported = async |text: &str| {
        let is_there = || std::fs::read_to_string(&errors).is_ok_and(|errors| errors.contains(text)).then_some(());
        until(text, is_there).await;
    };
    proxy.refuse();
    reported("the servers do not answer, or have no majority").await;
    proxy.heal();
    reported("connected again; still waiting").await;
    held.release().await.expect("released");
    assert_eq!(running.end().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_zklock_ends_its_command_when_it_goes_on() {
    let world = World::new().await;
    let (started, ended) = (world.file("started"), world.file("ended"));
    let options = ["--session", "1"];
    let mut running = world.start(&options, &["sh", "-c", NOTE_THE_END, &name(&started), &name(&ended)]);
    written(&started).await;
    running.signal(Signal::STOP);
    world.contenders("its session has expired", <[_]>::is_empty).await;
    assert!(!ended.exists(), "a paused process cannot stop another one: that is what the token is for");
    running.signal(Signal::CONT);
    written(&ended).await;
    assert_eq!(running.end().await.code(), Some(75));
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_ends_while_zklock_is_paused_may_have_lost_the_lock() {
    let world = World::new().await;
    let (started, go_on) = (world.file("started"), world.file("go-on"));
    let script = "echo >$0; while ! test -e $1; do sleep 0.02; done; echo >$0.end";
    let options = ["--session", "1"];
    let mut running = world.start(&options, &["sh", "-c", script, &name(&started), &name(&go_on)]);
    written(&started).await;
    running.signal(Signal::STOP);
    world.contenders("its session has expired", <[_]>::is_empty).await;
    std::fs::write(&go_on, "").expect("written");
    written(&world.file("started.end")).await;
    running.signal(Signal::CONT);
    assert_eq!(running.end().await.code(), Some(75));
}

#[tokio::test(flavor = "multi_thread")]
async fn zombies_are_not_waited_for() {
    let world = World::new().await;
    let (id, started) = (world.file("id"), world.file("started"));
    let (id_name, started_name) = (name(&id), name(&started));
    let script = format!("{LEAVE_A_ZOMBIE}; echo >$1; exec sleep 1000");
    let arguments = world.arguments(&["--grace", "1000"], &["sh", "-c", &script, &id_name, &started_name]);
    let mut running = Running::start(binary_without_an_init().args(arguments));
    written(&started).await;
    let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
    assert!(world.mutex().break_lock(&all[0]).await.expect("broken"));
    assert_eq!(running.end().await.code(), Some(75), "long before the end of the grace time");
}

/// Kills zklock, which holds a lock for a command that is started like this, and returns the command's process.
async fn killed_with(world: &World, options: &[&str], how: &[&str]) -> String {
    let file = world.file("id");
    let file_name = name(&file);
    let script = ["sh", "-c", "echo $$ >$0; while :; do sleep 0.02; done", &file_name];
    let command = [how, &script].concat();
    let mut running = world.start(&[&["--session", "1"], options].concat(), &command);
    let id = written(&file).await;
    running.signal(Signal::KILL);
    running.end().await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn command_outlives_a_killed_zklock_and_the_lock_does_not() {
    let world = World::new().await;
    let id = killed_with(&world, &[], &[]).await;
    world.contenders("its session has expired", <[_]>::is_empty).await;
    assert!(is_running(&id), "README.md warns of it");
    let id = Pid::from_raw(id.trim().parse().expect("a number")).expect("a process");
    kill_process(id, Signal::KILL).expect("killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_asks_for_it_ends_with_a_killed_zklock() {
    let world = World::new().await;
    let id = killed_with(&world, &[], &["setpriv", "--pdeathsig", "TERM", "--"]).await;
    until("it has ended, too", || (!is_running(&id)).then_some(())).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn command_dies_with_its_parent() {
    let world = World::new().await;
    let id = killed_with(&world, &["--die-with-parent"], &[]).await;
    until("it has ended", || (!is_running(&id)).then_some(())).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn command_that_dies_with_its_parent_is_as_any_other() {
    let world = World::new().await;
    let options = ["--die-with-parent"];
    let script = "echo $ZK_LOCK_PATH $1; exit 7";
    let done = world.run(&options, &["sh", "-c", script, "sh", "-x"]);
    assert_eq!((code(&done), stdout(&done)), (Some(7), format!("{} -x\n", world.path)), "{}", stderr(&done));
    for (command, expected) in [("/etc", 126), ("no-such-command", 127)] {
        let done = world.run(&options, &[command]);
        assert_eq!(code(&done), Some(expected), "{}", stderr(&done));
        assert!(
            stderr(&done).starts_with(&format!("zklock: cannot execute \"{command}\": ")),
            "{}",
            stderr(&done)
        );
    }
    let mut running = world.holder(&options).await;
    running.signal(Signal::TERM);
    assert_eq!(running.end().await.code(), Some(143));
}

/// The process ids that a script writes, a line each, when zklock is killed under it.
#[cfg(target_os = "linux")]
async fn left_of(world: &World, options: &[&str], script: &str, count: usize) -> Vec<String> {
    let file = world.file("ids");
    let name = file.display().to_string();
    let mut running = world.start(options, &["sh", "-c", script, &name]);
    let ids = until("all have written their ids", || {
        let ids: Vec<_> = std::fs::read_to_string(&file).ok()?.lines().map(str::to_owned).collect();
        (ids.len() == count).then_some(ids)
    })
    .await;
    assert!(ids.iter().all(|id| is_running(id)), "{ids:?}");
    running.signal(Signal::KILL);
    running.end().await;
    ids
}

/// In other groups and sessions, and orphaned.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn descendants_die_with_the_parent_of_the_command() {
    let world = World::new().await;
    let one = "echo $$ >>$0; sleep 1000";
    let script = format!("setsid sh -c '{one}' $0 & (setsid sh -c '{one}' $0 &) ; sh -c '{one}' $0 & {one}");
    for id in left_of(&world, &["--die-with-parent"], &script, 4).await {
        until("it has ended", || (!is_running(&id)).then_some(())).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn descendant_that_ignores_the_signal_is_killed_after_the_grace_time() {
    let world = World::new().await;
    let script = "trap '' TERM; echo $$ >>$0; setsid sh -c 'echo $$ >>$0; while :; do sleep 0.1; done' $0";
    for id in left_of(&world, &["--die-with-parent", "--grace", "300ms"], script, 2).await {
        until("it has ended", || (!is_running(&id)).then_some(())).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn command_under_a_guard_ends_by_a_signal_as_any_other() {
    let world = World::new().await;
    for (script, expected) in [("kill -KILL $$", 137), ("kill -TERM $$", 143), ("exit 200", 200)] {
        let done = world.run(&["--die-with-parent"], &["sh", "-c", script]);
        assert_eq!(code(&done), Some(expected), "{script}: {}", stderr(&done));
    }
}
