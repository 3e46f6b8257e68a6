//! The drivers of Curator and kazoo, which are those of the interop tests.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::workloads::{Shape, Workload};
use crate::{Outcome, PATIENCE, SESSION_TIMEOUT, java};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/apart/interop");

/// A client in a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Curator,
    Kazoo,
}

impl Client {
    /// Whether it has such a lock.
    pub(crate) fn has(self, shape: Shape) -> bool {
        self == Self::Curator || !matches!(shape, Shape::Many(_))
    }

    fn is_installed(self) -> bool {
        let name = if self == Self::Curator { "PEER_CLASSPATH" } else { "PEER_PYTHON" };
        std::env::var_os(name).is_some()
    }

    async fn command(self) -> Command {
        match self {
            // As a service runs it: with the compiler that takes its time, and with the default collector.
            Self::Curator => java::command(SOURCES, &[]).await,
            Self::Kazoo => {
                let mut command = Command::new(variable("PEER_PYTHON"));
                // No compiled files beside the sources.
                command.arg("-B").arg(format!("{SOURCES}/python/peer.py"));
                command
            }
        }
    }
}

/// A variable that `zk-docker/run --peers` sets.
pub(crate) fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| {
        panic!("no {name}: run it as `zk-docker/run --peers cargo bench --manifest-path bench/Cargo.toml --bench peers`")
    })
}

/// A running driver. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Peer {
    _process: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Starts a driver, if its client is installed.
    pub(crate) async fn start(client: Client, hosts: &str) -> Outcome<Option<Self>> {
        if !client.is_installed() {
            return Ok(None);
        }
        let mut process = client
            .command()
            .await
            .arg(hosts)
            .arg(SESSION_TIMEOUT.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().expect("piped");
        let mut answers = BufReader::new(process.stdout.take().expect("piped")).lines();
        match timeout(PATIENCE, answers.next_line()).await?? {
            Some(line) if line == "ready" => Ok(Some(Self { _process: process, input, answers })),
            line => Err(format!("the driver of {client:?} does not start: {line:?}").into()),
        }
    }

    /// What the client and its language are.
    pub(crate) async fn version(&mut self) -> Outcome<String> {
        self.ask("version").await
    }

    /// Lets each worker do `cycles` cycles; returns the elapsed time and the CPU time of its process.
    pub(crate) async fn time(
        &mut self,
        workload: &Workload,
        path: &str,
        cycles: usize,
    ) -> Outcome<(Duration, Duration)> {
        let (shape, count) = workload.shape.words();
        let Workload { sessions, workers, .. } = workload;
        let answer = self.ask(&format!("bench {shape} {sessions} {workers} {count} {path} {cycles}")).await?;
        let (elapsed, cpu) = answer.split_once(' ').ok_or("not two numbers")?;
        Ok((Duration::from_nanos(elapsed.parse()?), Duration::from_nanos(cpu.parse()?)))
    }

    async fn ask(&mut self, command: &str) -> Outcome<String> {
        self.input.write_all(format!("peers {command}\n").as_bytes()).await?;
        let answer = timeout(PATIENCE, self.answers.next_line()).await.map_err(|_| "no answer")??;
        let answer = answer.ok_or("the driver has exited")?;
        match answer.strip_prefix("peers ok ") {
            Some(rest) => Ok(rest.to_owned()),
            None => Err(answer.into()),
        }
    }
}
