//! Runs the examples as separate processes, and kills or stops some of them.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use uuid::Uuid;
use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode};

/// Far longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server given to the suite, with a fresh chroot.
async fn hosts() -> String {
    let servers = std::env::var("ZK_HOSTS").expect("no ZK_HOSTS: run the suite as `zk-docker/run cargo test`");
    let chroot = format!("/examples-{}", Uuid::new_v4().simple());
    let admin = Client::connect(&servers).await.expect("connects");
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.create(&chroot, b"", &open).await.expect("created");
    servers + &chroot
}

/// An example in a process of its own.
struct Machine {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Machine {
    /// A machine on which the job of the example `cron` is due.
    fn wakes(hosts: &str, due: &str) -> Self {
        Self::starts(Command::new(env!("CARGO_BIN_EXE_cron")).arg(due).env("ZK_HOSTS", hosts))
    }

    /// A machine with the example `worker`.
    fn works(hosts: &str) -> Self {
        let timeout = ("ZK_SESSION_TIMEOUT_MS", "4000");
        Self::starts(Command::new(env!("CARGO_BIN_EXE_worker")).env("ZK_HOSTS", hosts).envs([timeout]))
    }

    fn starts(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it can be run");
        let output = BufReader::new(process.stdout.take().expect("stdout is piped")).lines();
        Self { process, output }
    }

    /// The next line of output, without the machine's name; `None` once the process has ended.
    async fn next_line(&mut self) -> Option<String> {
        self.line().await.map(|line| line.split_once(": ").expect("a name").1.to_owned())
    }

    /// The next line of output; `None` once the process has ended.
    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.expect("no output in time");
        line.expect("readable")
    }

    /// Waits for the next order, and returns its number.
    async fn order(&mut self) -> u64 {
        let line = self.prints("order ").await;
        line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number")
    }

    /// Waits for a line of output that begins like this.
    async fn prints(&mut self, beginning: &str) -> String {
        loop {
            let line = self.line().await.expect("it goes on");
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.process.id().expect("running").cast_signed()).expect("not 0");
        kill_process(id, signal).expect("running");
    }

    /// Waits until it has ended with success.
    async fn exits(mut self) {
        // Whoever writes to a pipe that nobody reads does not end.
        while self.line().await.is_some() {}
        let ended = tokio::time::timeout(PATIENCE, self.process.wait()).await.expect("no end in time");
        assert!(ended.expect("it exits").success());
    }

    /// The rest of the output. Fails unless the process exits with success.
    async fn ends(mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(line) = self.next_line().await {
            all.push(line);
        }
        let ended = self.process.wait().await.expect("it exits");
        assert!(ended.success(), "{ended}: {all:?}");
        all
    }
}

/// Three machines on which a job is due. One has started it.
async fn fleet(hosts: &str, due: &str) -> (Machine, [Machine; 2]) {
    let mut runner = Machine::wakes(hosts, due);
    assert_eq!(runner.next_line().await, Some(format!("runs {due}")));
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
async fn job_is_run_once_by_the_first_machine() {
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
    assert_eq!(runner.next_line().await, None, "it was killed at work");
    is_run_once_by(others, "02:00").await;
}

#[tokio::test]
async fn job_whose_runner_is_stopped_is_run_by_another_and_not_recorded_by_the_first() {
    let hosts = hosts().await;
    let (mut runner, others) = fleet(&hosts, "02:00").await;
    runner.signal(Signal::STOP);
    is_run_once_by(others, "02:00").await;
    runner.signal(Signal::CONT);
    assert_eq!(runner.next_line().await, None, "it has lost the lock");
    let ended = runner.process.wait().await.expect("it exits");
    assert!(!ended.success(), "{ended}");
}

#[tokio::test]
async fn leading_and_following_candidates_stop_on_request() {
    let ran = Command::new(env!("CARGO_BIN_EXE_leader")).kill_on_drop(true).output();
    let ran = tokio::time::timeout(PATIENCE, ran).await.expect("it exits in time").expect("it can be run");
    let [output, errors] = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ran.status.success(), "{output}{errors}");
}

#[tokio::test]
async fn worker_hands_over_on_sigterm_and_does_no_harm_after_a_pause() {
    let hosts = hosts().await;
    let mut first = Machine::works(&hosts);
    first.prints("leads").await;
    first.order().await;
    let mut second = Machine::works(&hosts);
    second.prints("ZooKeeper: connected").await;
    first.signal(Signal::TERM);
    first.exits().await;
    second.prints("leads").await;
    let before = second.order().await;
    let mut third = Machine::works(&hosts);
    third.prints("ZooKeeper: connected").await;
    second.signal(Signal::STOP);
    third.prints("leads").await;
    let after = third.order().await;
    assert!(after >= before, "{after} after {before}");
    second.signal(Signal::CONT);
    for order in after + 1..after + 4 {
        assert_eq!(third.order().await, order, "nobody else writes");
    }
    second.signal(Signal::TERM);
    third.signal(Signal::TERM);
    tokio::join!(second.exits(), third.exits());
}
