//! The examples that people copy, as processes of their own: what they do when one of them dies or stands still.

mod built;

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};

/// Far longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server that the suite was given, with a chroot that nobody else uses.
async fn hosts() -> String {
    let servers = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`");
    let chroot = format!("/examples-{}", Uuid::new_v4().simple());
    let admin = Client::connect(&servers).await.expect("connects");
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.create(&chroot, b"", &open).await.expect("created");
    servers + &chroot
}

/// A machine on which the job of the example `cron` is due.
struct Machine {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Machine {
    fn wakes(hosts: &str, due: &str) -> Self {
        static CRON: LazyLock<PathBuf> = LazyLock::new(|| built::example("cron"));
        let mut process = Command::new(&*CRON)
            .arg(due)
            .env("ZK_HOSTS", hosts)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it can be run");
        let said = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Self { process, said }
    }

    /// What it says next, without its name; nothing once it has ended.
    async fn says(&mut self) -> Option<String> {
        let said = tokio::time::timeout(PATIENCE, self.said.next_line()).await.expect("it says nothing");
        said.expect("it can be read").map(|line| line.split_once(": ").expect("a name").1.to_owned())
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.process.id().expect("it runs").cast_signed()).expect("it is not 0");
        kill_process(id, signal).expect("it runs");
    }

    /// All it says from now on; fails unless it ends well.
    async fn ends(mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(line) = self.says().await {
            all.push(line);
        }
        let ended = self.process.wait().await.expect("it ends");
        assert!(ended.success(), "{ended}: {all:?}");
        all
    }
}

/// A fleet on which a job is due, of which one machine has begun.
async fn fleet(hosts: &str, due: &str) -> (Machine, [Machine; 2]) {
    let mut runner = Machine::wakes(hosts, due);
    assert_eq!(runner.says().await, Some(format!("runs {due}")));
    (runner, [Machine::wakes(hosts, due), Machine::wakes(hosts, due)])
}

/// One of these machines runs the job, and the other finds it on record.
async fn is_run_once_by(machines: [Machine; 2], due: &str) {
    let [one, other] = machines;
    let (one, other) = tokio::join!(one.ends(), other.ends());
    let ran = [format!("runs {due}"), format!("has run {due}")];
    let found = [format!("{due} is done already")];
    let all = [&one[..], &other[..]];
    assert!(all == [&ran[..], &found[..]] || all == [&found[..], &ran[..]], "{all:?}");
}

#[tokio::test]
async fn job_is_run_once_a_time_by_whoever_comes_first() {
    let hosts = hosts().await;
    for due in ["02:00", "03:00"] {
        let (runner, others) = fleet(&hosts, due).await;
        assert_eq!(runner.ends().await, [format!("has run {due}")]);
        for other in others {
            assert_eq!(other.ends().await, [format!("{due} is done already")]);
        }
        let late = Machine::wakes(&hosts, due);
        assert_eq!(late.ends().await, [format!("{due} is done already")]);
    }
}

#[tokio::test]
async fn job_whose_runner_is_killed_is_run_by_another() {
    let hosts = hosts().await;
    let (mut runner, others) = fleet(&hosts, "02:00").await;
    runner.signal(Signal::KILL);
    assert_eq!(runner.says().await, None, "it was killed at its work");
    is_run_once_by(others, "02:00").await;
}

#[tokio::test]
async fn job_whose_runner_stands_still_is_run_by_another_and_not_put_on_record_by_the_first() {
    let hosts = hosts().await;
    let (mut runner, others) = fleet(&hosts, "02:00").await;
    runner.signal(Signal::STOP);
    is_run_once_by(others, "02:00").await;
    runner.signal(Signal::CONT);
    assert_eq!(runner.says().await, None, "it has lost the lock");
    let ended = runner.process.wait().await.expect("it ends");
    assert!(!ended.success(), "{ended}");
}

#[tokio::test]
async fn candidates_stop_when_told_whether_they_lead_or_follow() {
    let ran = Command::new(built::example("leader")).kill_on_drop(true).output();
    let ran = tokio::time::timeout(PATIENCE, ran).await.expect("it does not end").expect("it can be run");
    let [said, complained] = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ran.status.success(), "{said}{complained}");
}
