//! Owns [`Fleet`]: the processes of the service, what they report, and the clients.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use demos::Result;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use zookeeper_groups::tools::Plan;

use crate::SHARDS;
use crate::client::{Acknowledged, Clients};
use crate::history::History;

/// Far longer than anything takes. A step that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Fleet {
    folder: PathBuf,
    hosts: String,
    began: Instant,
    processes: HashMap<String, Process>,
    send: UnboundedSender<Report>,
    reports: UnboundedReceiver<Report>,
    clients: Option<Clients>,
    acknowledged: UnboundedReceiver<Acknowledged>,
    /// When a write was last acknowledged, for each shard.
    written: BTreeMap<u32, Duration>,
    /// When the present step began, and the longest wait of a write since then.
    step: Duration,
    longest_write: Duration,
    pub(crate) history: History,
    /// The write of a frozen process, and after it has gone on, whether the store has accepted it.
    pub(crate) frozen: Option<String>,
    pub(crate) late: Vec<(String, bool)>,
    errors: Vec<String>,
}

struct Process {
    child: Child,
    reader: JoinHandle<()>,
}

/// A line of a process, or `None` at its end.
struct Report {
    at: Instant,
    name: String,
    line: Option<String>,
}

/// How a step went.
#[derive(Debug)]
pub(crate) struct Settled {
    /// When the last shard got its planned owner, and when a write of each shard had been acknowledged, since the step began.
    pub(crate) owned: Duration,
    pub(crate) written: Duration,
    pub(crate) moved: usize,
    /// The longest time in which a shard was not served, and a write waited.
    pub(crate) gap: Duration,
    pub(crate) wait: Duration,
}

/// The beginning of a step.
pub(crate) struct Step {
    pub(crate) at: Duration,
    owners: BTreeMap<u32, String>,
}

impl Fleet {
    /// A fleet without processes, with the clients of all that will be started.
    pub(crate) fn new(folder: &Path, hosts: String, names: &[&str]) -> Self {
        let (send, reports) = mpsc::unbounded_channel();
        let (acknowledge, acknowledged) = mpsc::unbounded_channel();
        Self {
            folder: folder.to_owned(),
            hosts,
            began: Instant::now(),
            processes: HashMap::new(),
            send,
            reports,
            clients: Some(Clients::start(folder, names, &acknowledge)),
            acknowledged,
            written: BTreeMap::new(),
            step: Duration::ZERO,
            longest_write: Duration::ZERO,
            history: History::default(),
            frozen: None,
            late: Vec::new(),
            errors: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn start(&mut self, name: &str) -> Result<()> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["member", name])
            .arg(&self.folder)
            .env("ZK_HOSTS", &self.hosts)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("a process has no output")?).lines();
        let (send, of) = (self.send.clone(), name.to_owned());
        let reader = tokio::spawn(async move {
            loop {
                let line = lines.next_line().await.unwrap_or_default();
                let is_end = line.is_none();
                _ = send.send(Report { at: Instant::now(), name: of.clone(), line });
                if is_end {
                    return;
                }
            }
        });
        self.processes.insert(name.to_owned(), Process { child, reader });
        Ok(())
    }

    pub(crate) fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let id = self.processes.get(name).and_then(|process| process.child.id()).ok_or("the process has ended")?;
        Ok(kill_process(Pid::from_raw(id.try_into()?).ok_or("no process has the id 0")?, signal)?)
    }

    /// Waits until a process has ended, and all that it has reported was received.
    pub(crate) async fn ended(&mut self, name: &str) -> Result<ExitStatus> {
        let Process { mut child, reader } = self.processes.remove(name).ok_or("there is no such process")?;
        let status = timeout(PATIENCE, child.wait()).await.map_err(|_| format!("{name} does not end"))??;
        reader.await?;
        Ok(status)
    }

    /// Freezes a process within a write; returns when it is stopped.
    pub(crate) async fn freeze(&mut self, name: &str) -> Result<()> {
        self.signal(name, Signal::USR2)?;
        let frozen = async {
            while self.frozen.is_none() {
                self.receive().await;
            }
        };
        Ok(timeout(PATIENCE, frozen).await.map_err(|_| format!("{name} has no write to stop in"))?)
    }

    pub(crate) fn unfreeze(&mut self, name: &str) -> Result<()> {
        self.history.goes_on(self.now(), name);
        self.signal(name, Signal::CONT)
    }

    /// Begins a step.
    pub(crate) fn step(&mut self) -> Step {
        (self.step, self.longest_write) = (self.now(), Duration::ZERO);
        let owners = self.history.owners().into_iter().map(|(shard, span)| (shard, span.owner.clone()));
        Step { at: self.step, owners: owners.collect() }
    }

    /// Waits until each shard has the owner that the plan gives it, and a write of each was acknowledged by this owner after `since`.
    pub(crate) async fn settled(&mut self, plan: &Plan, step: &Step, since: Duration) -> Result<Settled> {
        let settled = async {
            while !self.is_settled(plan, since) {
                self.receive().await;
            }
        };
        if timeout(PATIENCE, settled).await.is_err() {
            let late: Vec<_> = (0..SHARDS).filter(|shard| !self.is_served(*shard, plan, since)).collect();
            return Err(format!("after {PATIENCE:?} their planned owners do not serve the shards {late:?}").into());
        }
        let owners = self.history.owners();
        let owned = owners.values().map(|span| span.from).max().unwrap_or_default();
        let moved = owners.iter().filter(|(shard, span)| step.owners.get(shard) != Some(&span.owner)).count();
        Ok(Settled {
            owned: owned.saturating_sub(step.at),
            written: self.now() - step.at,
            moved,
            gap: self.history.longest_gap(SHARDS, step.at, self.now()),
            wait: self.longest_write,
        })
    }

    fn is_settled(&self, plan: &Plan, since: Duration) -> bool {
        (0..SHARDS).all(|shard| self.is_served(shard, plan, since))
    }

    /// Whether a shard has its planned owner, which has done a write after `since`.
    fn is_served(&self, shard: u32, plan: &Plan, since: Duration) -> bool {
        let written = self.written.get(&shard);
        self.history.owners().get(&shard).is_some_and(|span| {
            plan.owner(shard) == Some(&span.owner) && written.is_some_and(|at| *at >= since.max(span.from))
        })
    }

    /// Lets the clients write for a while.
    pub(crate) async fn rest(&mut self, time: Duration) {
        let receive = async {
            loop {
                self.receive().await;
            }
        };
        // It does not end by itself.
        _ = timeout(time, receive).await;
    }

    /// Waits for the late write of a frozen process.
    pub(crate) async fn late_write(&mut self) -> Result<()> {
        let late = async {
            while self.late.is_empty() {
                self.receive().await;
            }
        };
        Ok(timeout(PATIENCE, late).await.map_err(|_| "the frozen process does not go on with its write")?)
    }

    /// Receives one report of a process or a client.
    async fn receive(&mut self) {
        // `self` has a sender of the first.
        tokio::select! {
            Some(report) = self.reports.recv() => self.note(report),
            Some(Acknowledged { at, shard, took }) = self.acknowledged.recv() => {
                let at = at - self.began;
                self.written.insert(shard, at);
                self.longest_write = self.longest_write.max(took.min(at.saturating_sub(self.step)));
            }
        }
    }

    fn note(&mut self, report: Report) {
        let (at, name) = (report.at - self.began, report.name);
        let Some(line) = report.line else { return self.history.gone(at, &name) };
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["+" | "-", shard, token] => match (shard.parse(), token.parse()) {
                (Ok(shard), Ok(token)) if words[0] == "+" => self.history.begin(at, &name, shard, token),
                (Ok(shard), Ok(token)) => self.history.end(at, shard, token),
                _ => self.errors.push(line),
            },
            ["freezes", key, token] => {
                self.history.stopped(at, &name);
                self.frozen = Some(format!("{key} with token {token}"));
            }
            ["late", answer, key, token] => {
                self.late.push((format!("{key} with token {token}"), answer == "accepted"));
            }
            _ => self.errors.push(format!("{name}: {line}")),
        }
    }

    /// Ends the clients, and returns the last number that was acknowledged of each key.
    pub(crate) async fn end_clients(&mut self) -> Result<BTreeMap<String, u64>> {
        let clients = self.clients.take().ok_or("the clients have ended")?;
        Ok(timeout(PATIENCE, clients.end()).await.map_err(|_| "a client waits for its last write")?)
    }

    /// Ends all processes, as for a restart. Returns what went wrong in them.
    pub(crate) async fn end(mut self) -> Result<Vec<String>> {
        let names: Vec<_> = self.processes.keys().cloned().collect();
        names.iter().try_for_each(|name| self.signal(name, Signal::TERM))?;
        for name in names {
            let status = self.ended(&name).await?;
            if !status.success() {
                self.errors.push(format!("{name} has ended with {status}"));
            }
        }
        Ok(self.errors)
    }
}
