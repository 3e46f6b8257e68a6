//! A minute of everything at once: the example `chaos` with client processes and faults of all kinds, judged by what
//! its clients wrote down.
//!
//! `CHAOS_SEED` repeats the faults of another run, `CHAOS_MINUTES` makes it longer.

use std::path::PathBuf;

use tokio::process::Command;

const CLIENTS: usize = 8;

#[tokio::test]
async fn minute_of_chaos_breaks_no_promise() {
    let seed = std::env::var("CHAOS_SEED").unwrap_or_else(|_| fastrand::u64(..1_000_000).to_string());
    let minutes = std::env::var("CHAOS_MINUTES").unwrap_or_else(|_| "1".to_owned());
    println!("CHAOS_SEED={seed}");
    let out = tempfile::tempdir().expect("a temporary folder");
    let played = Command::new(executable())
        .args(["--minutes", &minutes, "--seed", &seed, "--clients", &CLIENTS.to_string(), "--out"])
        .arg(out.path())
        .kill_on_drop(true)
        .output()
        .await
        .expect("it can be run");
    let [said, complained] =
        [played.stdout, played.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{said}\n{complained}");
    if !played.status.success() {
        let kept = out.keep();
        panic!("{}: see above, and the history in {}; CHAOS_SEED={seed}", played.status, kept.display());
    }
}

/// `cargo test` builds the examples beside the tests.
fn executable() -> PathBuf {
    let mut path = std::env::current_exe().expect("the path of this binary");
    path.pop();
    path.pop();
    path.push("examples/chaos");
    assert!(
        path.exists(),
        "{} is not there: build it with `cargo build --example chaos`, or run all tests with `cargo test`",
        path.display()
    );
    path
}
