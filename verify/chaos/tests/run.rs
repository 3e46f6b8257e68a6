//! How runs end that are interrupted, and clients without servers.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

#[tokio::test]
async fn interrupted_run_leaves_nothing_behind() {
    let [out, temporary] = [(), ()].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let mut run = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["--minutes", "5", "--clients", "1", "--workload", "election", "--seed", "1", "--out"])
        .arg(out.path())
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it can be run");
    let mut lines = BufReader::new(run.stdout.take().expect("it is piped")).lines();
    while lines.next_line().await.expect("it can be read").expect("it does not end")
        != "chaos: all clients have started"
    {}
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("it is there");
        entries.map(|entry| entry.expect("it can be read").file_name()).collect::<Vec<_>>()
    };
    assert!(!names(out.path()).is_empty() && !names(temporary.path()).is_empty(), "nothing could be left behind");
    let id = Pid::from_raw(run.id().expect("it runs").cast_signed()).expect("it is not 0");
    kill_process(id, Signal::INT).expect("it runs");
    let ended = run.wait().await.expect("it ends");
    assert_eq!(ended.code(), Some(2), "{ended}");
    assert_eq!(names(out.path()), [""; 0]);
    assert_eq!(names(temporary.path()), [""; 0]);
}

#[tokio::test]
async fn client_that_never_connects_fails() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [journal, register] = ["journal", "register"].map(|name| folder.path().join(name));
    // No server listens on that port, and the end of its input stops the client.
    let client = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["client", "c0.1", "127.0.0.1:1", "lock", "500", "1"])
        .args([journal, register])
        .stdin(Stdio::null())
        .output();
    let ended = client.await.expect("it can be run");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && errors.contains("never connected"), "{errors}");
}
