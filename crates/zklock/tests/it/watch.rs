//! `zklock watch` into a file, and `zklock wait`.

use std::process::Command;
use std::time::{Duration, Instant};

use testbed::proxy::Proxy;
use zookeeper_recipes::Semaphore;

use crate::support::{Running, World, binary, code, hosts, stderr, until, zklock};

/// A watch that writes into a file.
fn watch(world: &World, hosts: &str) -> Running {
    let log = std::fs::File::create(world.file("log")).expect("created");
    Running::start(Command::new(binary()).args(["watch", "--hosts", hosts, &world.path]).stdout(log))
}

/// Waits until what is after the time in the lines begins like this.
async fn lines(world: &World, expected: &[&str]) {
    let mut last = String::new();
    until(&format!("{expected:?}"), || {
        last = std::fs::read_to_string(world.file("log")).expect("read");
        let lines: Vec<_> = last.lines().filter_map(|line| line.split_once(' ')).collect();
        let fit = lines.iter().zip(expected).all(|((_, line), expected)| line.starts_with(expected));
        (fit && lines.len() == expected.len()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_is_a_line() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    let _watch = watch(&world, &hosts());
    lines(&world, &["holds lock token="]).await;
    let mut waiter = world.start(&["--identifier", "billing-7"], &["sleep", "1000"]);
    lines(&world, &["holds lock", "waits lock"]).await;
    let all = world.mutex().contenders().await.expect("listed");
    assert!(world.mutex().revoke(&all[0]).await.expect("revoked"));
    lines(&world, &["holds lock", "waits lock", "holds,asked lock"]).await;
    guard.release().await.expect("released");
    lines(&world, &["holds lock", "waits lock", "holds,asked lock", "left lock", "holds lock"]).await;
    waiter.signal(rustix::process::Signal::TERM);
    waiter.end().await;
    lines(&world, &["holds lock", "waits lock", "holds,asked lock", "left lock", "holds lock", "left lock"]).await;
    let log = std::fs::read_to_string(world.file("log")).expect("read");
    assert_eq!(log.matches("identifier=billing-7\n").count(), 3, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_goes_on_after_a_lost_connection() {
    let world = World::new().await;
    let proxy = Proxy::start(hosts().split(',').next().expect("a host")).await.expect("a proxy");
    let _watch = watch(&world, &proxy.hosts());
    let guard = world.mutex().lock().await.expect("held");
    lines(&world, &["holds lock"]).await;
    proxy.cut_now();
    until("it has connected again", || (proxy.connections() > 0).then_some(())).await;
    guard.release().await.expect("released");
    lines(&world, &["holds lock", "left lock"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_when_the_lock_is_free() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    assert_eq!(code(&zklock(["wait", "-w", "0", &world.path])), Some(1));
    let began = Instant::now();
    assert_eq!(code(&zklock(["wait", "-w", "0.5", &world.path])), Some(1));
    assert!(began.elapsed() >= Duration::from_millis(500));
    let mut waiting = Running::start(Command::new(binary()).args(["wait", &world.path]));
    assert!(waiting.is_running());
    guard.release().await.expect("released");
    assert_eq!(waiting.end().await.code(), Some(0));
    let done = zklock(["wait", "-w", "0", &world.path]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_slot_ends_when_one_is_free() {
    let world = World::new().await;
    let semaphore = Semaphore::new(&world.session, &world.path, 2).expect("a semaphore");
    let one = semaphore.acquire().await.expect("held");
    assert_eq!(code(&zklock(["wait", "-w", "0", "-N", "2", &world.path])), Some(0));
    let _other = semaphore.acquire().await.expect("held");
    assert_eq!(code(&zklock(["wait", "-w", "0", "-N", "2", &world.path])), Some(1));
    let mut waiting = Running::start(Command::new(binary()).args(["wait", "-N", "2", &world.path]));
    one.release().await.expect("released");
    assert_eq!(waiting.end().await.code(), Some(0));
}
