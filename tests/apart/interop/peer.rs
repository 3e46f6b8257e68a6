//! A driver program: another client in a process of its own, which runs our commands.
//!
//! A command is a line, `HANDLE VERB ARGUMENT…`, and so is its answer, `HANDLE WORD REST`. Each handle is one lock,
//! with a thread of its own that runs one command after the other. Only `cancel` takes effect at once, and has no
//! answer.
//!
//! | command | answer |
//! |---|---|
//! | `new KIND PATH…` | `ok` |
//! | `acquire [MILLISECONDS]` | `held`, `timeout` or `cancelled` |
//! | `cancel` | none; the waiting `acquire` answers |
//! | `release` | `ok` |
//! | `work LEDGER MARK LIMIT TIMES` | `ok`, after as many turns, each written to the [`ledger`](crate::ledger) |
//! | `contenders` | `ok IDENTIFIER,…` of all contenders, as kazoo sees them |
//! | `revoke NODE`, `revocable`, `participants`, `read`, `unread`, `leader`, `count MAXIMUM`, `members`, `set DATA` | `ok REST`; Curator, by kind |
//! | `ask`, `unlock` | `ok true` or `ok false`, `ok`; ZooKeeper's own recipe, called once and not closed |
//! | `bench SHAPE SESSIONS WORKERS COUNT PATH CYCLES` | `ok NANOSECONDS CPU-NANOSECONDS`, for `peers`; Curator and kazoo |
//! | `version` | `ok VERSION`; Curator and kazoo |
//!
//! Any of them may answer `error TEXT`. The first line of a driver is `ready`. It ends, and closes its session, when its
//! input ends.

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use crate::golang;
use crate::java;
use crate::support::soon;

/// The session timeout of the drivers, in milliseconds.
const SESSION: &str = "8000";

/// For virtual machines of which many are started, for seconds only.
const SHORT_LIVED: &[&str] = &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

pub(crate) const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop");

/// The language of a driver.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Go,
    Python,
    /// Curator, and ZooKeeper's own recipes.
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
            Self::Java => java::command(SOURCES, SHORT_LIVED).await,
        }
    }
}

pub(crate) fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| {
        panic!("no {name}: run these as `zk-docker/run --peers cargo test -p apart --test interop`")
    })
}

/// A running driver with one session. Dropping it kills the process, as a crash would.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Child,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    answers: Arc<Mutex<Answers>>,
}

/// The receivers of answers, by handle.
#[derive(Debug, Default)]
struct Answers {
    handles: HashMap<String, mpsc::UnboundedSender<Answer>>,
    /// Why there will be no more.
    end: Option<String>,
}

/// A driver's answer to a command.
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
    all: Arc<Mutex<Answers>>,
}

impl Answers {
    /// A name for a new handle, and its answers. After the end the channel is closed at once.
    fn handle(&mut self) -> (String, mpsc::UnboundedReceiver<Answer>) {
        let (sender, answers) = mpsc::unbounded_channel();
        let name = format!("h{}", self.handles.len());
        if self.end.is_none() {
            self.handles.insert(name.clone(), sender);
        }
        (name, answers)
    }

    /// Passes an answer to its handle.
    fn take(&self, line: &str) -> Result<(), String> {
        let mut parts = line.splitn(3, ' ').map(str::to_owned);
        let (handle, word, rest) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
        let to = handle.and_then(|handle| self.handles.get(&handle));
        let (Some(to), Some(word)) = (to, word) else { return Err(format!("not an answer: {line:?}")) };
        // The handle may have been dropped.
        let _ = to.send(Answer { word, rest });
        Ok(())
    }

    /// Ends the answers, and wakes everyone waiting for one.
    fn end(&mut self, why: String) {
        self.end = Some(why);
        self.handles.clear();
    }
}

fn locked(answers: &Mutex<Answers>) -> MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peer {
    /// Starts a driver with a session of its own.
    pub(crate) async fn start(language: Language, hosts: &str) -> Self {
        let mut command = language.command().await;
        command.args([hosts, SESSION]);
        Self::run(command).await
    }

    async fn run(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the driver starts");
        let input = process.stdin.take().expect("piped");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let first = soon("the driver's first line", lines.next_line()).await.expect("readable");
        assert_eq!(first.as_deref(), Some("ready"), "{command:?}");
        let answers = Arc::new(Mutex::new(Answers::default()));
        let all = answers.clone();
        tokio::spawn(async move {
            let why = loop {
                match lines.next_line().await {
                    Ok(Some(line)) => {
                        if let Err(why) = locked(&all).take(&line) {
                            break why;
                        }
                    }
                    Ok(None) => break "the driver has exited".to_owned(),
                    Err(error) => break format!("not text: {error}"),
                }
            };
            locked(&all).end(why);
        });
        Self { process, input: Arc::new(tokio::sync::Mutex::new(Some(input))), answers }
    }

    /// Makes a lock of a kind that the driver knows.
    pub(crate) async fn lock(&self, kind: &str, path: &str) -> Handle {
        let (name, answers) = locked(&self.answers).handle();
        let mut handle = Handle { name, input: self.input.clone(), answers, all: self.answers.clone() };
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
        soon("an answer of the driver", self.answers.recv()).await.unwrap_or_else(|| {
            let why = locked(&self.all).end.clone();
            panic!("{}: {}", self.name, why.expect("the end drops the senders"))
        })
    }

    /// Sends a command, whose answer must be `ok`, and returns the rest of it.
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// A driver that answers its first command with this line, and ignores the others.
    async fn answering(line: &str) -> Peer {
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; read -r command; echo \"$1\"; exec cat >/dev/null", "driver", line]);
        Peer::run(command).await
    }

    /// The panic message of a failed `lock`.
    async fn refusal(peer: &Peer) -> String {
        let made = std::panic::AssertUnwindSafe(peer.lock("mutex", "/path")).catch_unwind().await;
        *made.expect_err("no answer").downcast::<String>().expect("a message")
    }

    #[tokio::test]
    async fn malformed_answer_ends_all_waiting_at_once() {
        for line in ["Exception in thread main", "h0", "h7 ok"] {
            let peer = answering(line).await;
            let expected = format!("not an answer: {line:?}");
            for handle in ["h0", "h1"] {
                // Both the waiting handle and a later one report the line.
                let message = refusal(&peer).await;
                assert!(message.ends_with(&expected), "{handle}: {message}");
            }
        }
    }
}
