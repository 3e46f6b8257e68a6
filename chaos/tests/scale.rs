//! A run with servers, client processes and faults of all kinds.
//!
//! `CHAOS_SEED` repeats the faults of another run, and `CHAOS_MINUTES` sets its length.

use tokio::process::Command;

const CLIENTS: usize = 8;

#[tokio::test]
async fn minute_of_chaos_breaks_no_promise() {
    let seed = std::env::var("CHAOS_SEED").unwrap_or_else(|_| fastrand::u64(..1_000_000).to_string());
    let minutes = std::env::var("CHAOS_MINUTES").unwrap_or_else(|_| "1".to_owned());
    println!("CHAOS_SEED={seed}");
    let out = tempfile::tempdir().expect("a temporary directory");
    let run = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["--minutes", &minutes, "--seed", &seed, "--clients", &CLIENTS.to_string(), "--out"])
        .arg(out.path())
        .kill_on_drop(true)
        .output()
        .await
        .expect("it can be run");
    let [output, errors] = [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{output}\n{errors}");
    if !run.status.success() {
        let kept = out.keep();
        panic!("{}: see above, and the history in {}; CHAOS_SEED={seed}", run.status, kept.display());
    }
}
