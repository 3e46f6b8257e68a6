//! A driver program: another client in a process of its own, which does what it is told.
//!
//! A command is a line, `HANDLE VERB ARGUMENT…`, and so is its answer, `HANDLE WORD REST`. Each handle is one lock, with a
//! thread of its own that obeys one command after the other; `cancel` alone is obeyed at once and has no answer.
//!
//! | command | answer |
//! |---|---|
//! | `new KIND PATH…` | `ok` |
//! | `acquire [MILLISECONDS]` | `held NODE…`, `timeout` or `cancelled` |
//! | `cancel` | none; the waiting `acquire` answers |
//! | `release` | `ok` |
//! | `work LEDGER MARK LIMIT TIMES` | `ok`, after as many turns, each written to the [`ledger`](crate::ledger) |
//! | `contenders` | `ok IDENTIFIER,…` of who is in line, as kazoo sees it |
//! | `revoke NODE`, `revocable`, `participants`, `read`, `unread`, `leader`, `count MAXIMUM` | `ok REST`; Curator only, by kind |
//!
//! Any of them may answer `error TEXT`. The first line of a driver is `ready`. It ends, and closes its session, when its
//! input ends.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use crate::golang;
use crate::java;
use crate::support::soon;

/// The session timeout of the drivers, in milliseconds.
const SESSION: &str = "8000";

pub(crate) const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop");

/// What a driver is written in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Go,
    Python,
    /// ZooKeeper's own recipes, in Java.
    Recipes,
    Java,
}

impl Language {
    async fn command(self) -> Command {
        match self {
            Self::Go => Command::new(golang::driver().await),
            Self::Python => {
                let mut command = Command::new(variable("PEER_PYTHON"));
                command.arg(format!("{SOURCES}/python/peer.py"));
                command
            }
            Self::Recipes => {
                let mut command = Command::new(Path::new(&variable("PEER_JAVA")).join("java"));
                command.arg("-cp").arg(variable("PEER_RECIPES")).arg(format!("{SOURCES}/zookeeper/Recipe.java"));
                command
            }
            Self::Java => java::command(SOURCES).await,
        }
    }
}

pub(crate) fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| {
        panic!("no {name}: run these as `zk-docker/run --peers cargo test --features interop --test interop`")
    })
}

/// A running driver with one session. Dropping it kills the process, as a crash would.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Child,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    answers: Answers,
}

type Answers = Arc<Mutex<HashMap<String, mpsc::UnboundedSender<Answer>>>>;

/// What a driver said to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) word: String,
    pub(crate) rest: String,
}

/// A lock in a driver.
#[derive(Debug)]
pub(crate) struct Handle {
    name: String,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    answers: mpsc::UnboundedReceiver<Answer>,
}

impl Peer {
    /// Starts a driver with a session of its own.
    pub(crate) async fn start(language: Language, hosts: &str) -> Self {
        let mut process = language
            .command()
            .await
            .args([hosts, SESSION])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the driver starts");
        let input = process.stdin.take().expect("piped");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let first = soon("the driver's first line", lines.next_line()).await.expect("readable");
        assert_eq!(first.as_deref(), Some("ready"), "{language:?}");
        let answers = Answers::default();
        let handles = answers.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut parts = line.splitn(3, ' ').map(str::to_owned);
                let (handle, word, rest) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
                let (Some(handle), Some(word)) = (handle, word) else { panic!("not an answer: {line:?}") };
                if let Some(one) = handles.lock().unwrap_or_else(PoisonError::into_inner).get(&handle) {
                    // A handle that is gone does not want it.
                    let _ = one.send(Answer { word, rest });
                }
            }
            // The process is gone: whoever waits for an answer hears of it.
            handles.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        Self { process, input: Arc::new(tokio::sync::Mutex::new(Some(input))), answers }
    }

    /// Makes a lock of a kind that the driver knows.
    pub(crate) async fn lock(&self, kind: &str, path: &str) -> Handle {
        let (sender, answers) = mpsc::unbounded_channel();
        let name = {
            let mut handles = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            let name = format!("h{}", handles.len());
            handles.insert(name.clone(), sender);
            name
        };
        let mut handle = Handle { name, input: self.input.clone(), answers };
        handle.done(&format!("new {kind} {path}")).await;
        handle
    }

    /// Kills the process with SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.expect("killed");
    }

    /// Ends the input and waits until the driver has closed its session.
    pub(crate) async fn close(mut self) {
        *self.input.lock().await = None;
        let status = soon("the driver's end", self.process.wait()).await.expect("waited for");
        assert!(status.success(), "the driver ended with {status}");
    }
}

impl Handle {
    /// Sends a command and does not wait for its answer.
    pub(crate) async fn send(&self, command: &str) {
        let mut input = self.input.lock().await;
        let line = format!("{} {command}\n", self.name);
        input.as_mut().expect("open").write_all(line.as_bytes()).await.expect("the driver reads");
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        soon("an answer of the driver", self.answers.recv()).await.expect("the driver is there")
    }

    /// Sends a command, whose answer must be `ok`, and returns what it says besides.
    pub(crate) async fn done(&mut self, command: &str) -> String {
        self.send(command).await;
        let answer = self.answer().await;
        assert_eq!(answer.word, "ok", "{command}: {}", answer.rest);
        answer.rest
    }

    /// Waits for the answer of an `acquire` that was sent, which must be `held`.
    pub(crate) async fn held(&mut self) -> String {
        let answer = self.answer().await;
        assert_eq!(answer.word, "held", "{}", answer.rest);
        answer.rest
    }

    pub(crate) async fn acquire(&mut self) -> String {
        self.send("acquire").await;
        self.held().await
    }

    pub(crate) async fn release(&mut self) {
        self.done("release").await;
    }

    /// Whether there is no answer yet.
    pub(crate) fn is_silent(&self) -> bool {
        self.answers.is_empty()
    }
}
