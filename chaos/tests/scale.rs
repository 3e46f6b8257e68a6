//! Runs with servers and faults of all kinds: one with client processes, one in rounds.
//!
//! `CHAOS_SEED` repeats the faults of another run, and `CHAOS_MINUTES` sets its length.

use tokio::process::Command;
use tokio::sync::Mutex;

const CLIENTS: &str = "8";

#[tokio::test]
async fn minute_of_chaos_breaks_no_promise() {
    play(&["--clients", CLIENTS]).await;
}

#[tokio::test]
async fn every_free_lock_is_granted_within_a_second_after_a_minute_of_cuts_and_deletions_by_hand() {
    play(&["random"]).await;
}

async fn play(arguments: &[&str]) {
    // They take the machine for themselves.
    static TURN: Mutex<()> = Mutex::const_new(());
    let _turn = TURN.lock().await;
    let seed = std::env::var("CHAOS_SEED").unwrap_or_else(|_| fastrand::u64(..1_000_000).to_string());
    let minutes = std::env::var("CHAOS_MINUTES").unwrap_or_else(|_| "1".to_owned());
    println!("CHAOS_SEED={seed}");
    let out = tempfile::tempdir().expect("a temporary directory");
    let run = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(arguments)
        .args(["--minutes", &minutes, "--seed", &seed, "--out"])
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
