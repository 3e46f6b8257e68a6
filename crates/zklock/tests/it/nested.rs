//! `zklock` within `zklock run`, on one path.

use crate::support::{World, binary, code, stderr, stdout};

/// `zklock run` with these options, around a zklock with these arguments before the path.
fn nested(world: &World, outer: &[&str], inner: &[&str]) -> (Option<i32>, String) {
    let command: &[&str] = if inner[0] == "run" { &["true"] } else { &[] };
    let command = [&[binary()], inner, &[&world.path], command].concat();
    let done = world.run(outer, &command);
    (code(&done), format!("{}{}", stdout(&done), stderr(&done)))
}

#[tokio::test(flavor = "multi_thread")]
async fn zklock_does_not_wait_for_itself() {
    for (outer, inner) in [
        (&[][..], &["run"][..]),
        (&[], &["run", "-w", "1000"]),
        (&[], &["run", "-s"]),
        (&["-s"], &["run"]),
        (&["-s"], &["run", "-x"]),
        (&["-N", "1"], &["run", "-N", "1"]),
        (&[], &["hold"]),
        (&[], &["wait"]),
    ] {
        let world = World::new().await;
        let (code, output) = nested(&world, outer, inner);
        assert_eq!(code, Some(64), "{inner:?} in {outer:?}: {output}");
        let expected = format!("{} is held by the `zklock run` that this runs under", world.path);
        assert!(output.contains(&expected), "{inner:?} in {outer:?}: {output}");
    }
}

/// It waited for itself for ever.
#[tokio::test(flavor = "multi_thread")]
async fn zklock_does_not_wait_for_a_lock_further_out() {
    let world = World::new().await;
    let other = format!("{}-other", world.path);
    for inner in [&["run", "-w", "30"][..], &["hold", "-w", "30"], &["wait", "-w", "1"]] {
        let inner = [inner, &[&world.path]].concat();
        let inner: Vec<_> = if inner[0] == "run" { [&inner[..], &["true"]].concat() } else { inner };
        let command = [&[binary(), "run", &other, binary()], &inner[..]].concat();
        let done = world.run(&[], &command);
        let is_refused = inner[0] != "wait";
        assert_eq!(code(&done), Some(if is_refused { 64 } else { 1 }), "{inner:?}: {}", stderr(&done));
    }
    let command = [binary(), "run", &other, binary(), "wait", &world.path];
    let done = world.run(&[], &command);
    assert_eq!(code(&done), Some(64), "{}", stderr(&done));
}

#[tokio::test(flavor = "multi_thread")]
async fn zklock_that_does_not_wait_for_itself_is_not_refused() {
    for (outer, inner, expected) in
        [(&[][..], &["run", "-n"][..], 1), (&["-s"], &["run", "-s"], 0), (&["-N", "2"], &["run", "-N", "2"], 0)]
    {
        let world = World::new().await;
        let (code, output) = nested(&world, outer, inner);
        assert_eq!(code, Some(expected), "{inner:?} in {outer:?}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_outlive_the_lock_refuse_nothing() {
    let world = World::new().await;
    let done = world.run(&[], &["sh", "-c", "echo $ZK_LOCK_TOKEN"]);
    let mut command = assert_cmd::Command::new(binary());
    let command = command.env("ZK_LOCK_PATH", &world.path).env("ZK_LOCK_TOKEN", stdout(&done).trim());
    let done = command.args(world.arguments(&[], &["true"])).assert();
    assert_eq!((code(&done), stderr(&done)), (Some(0), String::new()));
    let other = format!("{}-other", world.path);
    let done = world.run(&[], &[binary(), "run", &other, "true"]);
    assert_eq!(code(&done), Some(0), "{}", stderr(&done));
}
