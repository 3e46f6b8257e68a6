//! Which kinds of holders exclude each other on one path, those of services included.

use std::process::Command;

use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::{Contender, Mutex, RwLock, Semaphore};

use crate::support::{Running, World, binary, code, stderr, stdout, written, zklock};

#[tokio::test(flavor = "multi_thread")]
async fn all_but_readers_exclude_each_other() {
    for held in [&[][..], &["-x"], &["-s"]] {
        for wanted in [&["-n"][..], &["-n", "-x"], &["-n", "-s"]] {
            let world = World::new().await;
            let _holder = world.holder(held).await;
            let done = world.run(wanted, &["true"]);
            let together = held == ["-s"] && wanted == ["-n", "-s"];
            let expected = if together { 0 } else { 1 };
            assert_eq!(code(&done), Some(expected), "{wanted:?} beside {held:?}: {}", stderr(&done));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_of_a_service_excludes_every_kind() {
    let world = World::new().await;
    let guard = world.mutex().lock().await.expect("held");
    for kind in [&["-n"][..], &["-n", "-x"], &["-n", "-s"]] {
        assert_eq!(code(&world.run(kind, &["true"])), Some(1), "{kind:?}");
    }
    guard.release().await.expect("released");
    for kind in [&[][..], &["-x"], &["-s"]] {
        let _holder = world.holder(kind).await;
        assert!(world.mutex().try_lock().await.expect("tried").is_none(), "{kind:?}");
        let rw = RwLock::new(&world.session, &world.path).expect("a lock");
        assert!(rw.try_write().await.expect("tried").is_none(), "{kind:?}");
        assert_eq!(rw.try_read().await.expect("tried").is_some(), kind == ["-s"], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_those_of_the_recipes() {
    for (option, kind) in
        [(&[][..], ContenderKind::Lock), (&["-x"], ContenderKind::Write), (&["-s"], ContenderKind::Read)]
    {
        let world = World::new().await;
        let _holder = world.holder(option).await;
        let all = world.contenders("a holder", |all| all.iter().any(Contender::is_holder)).await;
        assert_eq!(all[0].kind(), kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_as_many_as_given() {
    let world = World::new().await;
    let files = [world.file("one"), world.file("two")];
    let hold = "echo >$0; sleep 1000";
    let _holders =
        files.each_ref().map(|file| world.start(&["-N", "2"], &["sh", "-c", hold, &file.display().to_string()]));
    for file in &files {
        written(file).await;
    }
    assert_eq!(code(&world.run(&["-N", "2", "-n"], &["true"])), Some(1));
    assert_eq!(code(&world.run(&["-N", "3", "-n"], &["true"])), Some(0));
    let semaphore = Semaphore::new(&world.session, &world.path, 2).expect("a semaphore");
    assert!(semaphore.try_acquire().await.expect("tried").is_none(), "those of services count the same slots");
}

#[tokio::test(flavor = "multi_thread")]
async fn path_without_a_holder_changes_its_use() {
    let world = World::new().await;
    for options in [&[][..], &["-N", "2"], &["-s"], &["-N", "1"]] {
        let done = world.run(options, &["true"]);
        assert_eq!(code(&done), Some(0), "{options:?}: {}", stderr(&done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn semaphore_that_comes_while_a_run_waits_for_a_lock_gives_78() {
    let world = World::new().await;
    let mutex = world.mutex();
    let holder = mutex.lock().await.expect("free");
    let mut waiting = world.start(&[], &["true"]);
    world.contenders("the run", |all| all.len() == 2).await;
    let semaphore = Semaphore::new(&world.session, &world.path, 1).expect("a semaphore");
    let _permit = semaphore.acquire().await.expect("free");
    // The run looks for the other recipe once it has the lock.
    drop(holder);
    assert_eq!(waiting.end().await.code(), Some(78));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_semaphore_leaves_nothing_in_the_path_of_a_lock() {
    let world = World::new().await;
    let _holder = world.holder(&[]).await;
    assert_eq!(code(&world.run(&["-N", "2"], &["true"])), Some(78));
    let children = world.session.children_of(&world.path).await.expect("listed");
    assert_eq!(children.len(), 1, "other clients fail at names that they do not know: {children:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn private_lock_is_listed_by_its_owner_only() {
    let world = World::new().await;
    let folder = world.path.rsplit_once('/').expect("a parent").0;
    // What others may not see, the test may not either: the command reports.
    let file = world.file("held");
    let mut command = Command::new(binary());
    command.env("ZK_AUTH", "billing:secret");
    let name = file.display().to_string();
    let arguments = world.arguments(&["--private"], &["sh", "-c", "echo >$0; sleep 1000", &name]);
    let _holder = Running::start(command.args(arguments));
    written(&file).await;
    assert!(Mutex::new(&world.session, &world.path).expect("a mutex").contenders().await.is_err());
    let auth = world.file("auth");
    std::fs::write(&auth, "billing:secret\n").expect("written");
    let done = zklock(["list", "--auth-file", &auth.display().to_string(), &world.path]);
    assert_eq!(stdout(&done).lines().count(), 2, "{folder}: {}", stderr(&done));
}
