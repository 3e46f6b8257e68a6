//! Curator's `InterProcessMutex`, the real one, in a virtual machine of Java for each contending process. The driver is
//! that of the tests in `tests/apart/interop`.
//!
//! Source: Curator's documentation of its recipes. It promises exclusion among live sessions, the order of arrival, and
//! recovery of a node whose creation was not answered. The mutex itself does not report that it is lost: that is left
//! to a listener of the connection's state, which the textbook example does not have. It has no token.
//!
//! The documentation strongly recommends such a listener. The row with one asks it before each write: while the
//! connection is suspended the lock counts as not held, and once the session is lost it is lost for good.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{OnceCell, mpsc};
use zookeeper_recipes::DistributedLock;

use super::grant::{Grant, Recipe, Textbook};
use super::{LEASE, Pause, Place};
use crate::Outcome;

/// The machine of this process, which its tasks share as threads.
static MACHINE: OnceCell<Arc<Machine>> = OnceCell::const_new();

type Answers = Arc<Mutex<HashMap<String, mpsc::UnboundedSender<String>>>>;

struct Machine {
    // Killed with this process's group.
    _child: Child,
    input: tokio::sync::Mutex<ChildStdin>,
    answers: Answers,
}

struct Handle {
    machine: Arc<Machine>,
    name: String,
    /// Whether a listener knows if the lock is held.
    is_watched: bool,
    answers: tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>,
}

/// Connects a contender.
pub fn connect(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    connect_to("mutex", place)
}

/// Connects a contender that listens to the state of its connection.
pub fn connect_watched(place: Place, _pause: Pause) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    connect_to("watched", place)
}

fn connect_to(kind: &'static str, place: Place) -> BoxFuture<'static, Outcome<Arc<dyn DistributedLock>>> {
    async move {
        let machine = MACHINE.get_or_try_init(|| Machine::start(&place)).await?.clone();
        let name = format!("h{}", locked(&machine.answers).len());
        let (sender, answers) = mpsc::unbounded_channel();
        locked(&machine.answers).insert(name.clone(), sender);
        let is_watched = kind == "watched";
        let handle = Arc::new(Handle { machine, name, is_watched, answers: tokio::sync::Mutex::new(answers) });
        handle.run(&format!("new {kind} /{}", place.lock), "ok").await?;
        Ok(Arc::new(Textbook(handle)) as Arc<dyn DistributedLock>)
    }
    .boxed()
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    async fn start(place: &Place) -> Outcome<Arc<Self>> {
        let (program, arguments) = place.java.split_first().ok_or("no Java")?;
        let mut command = Command::new(program);
        command.args(arguments).arg(place.address()?.to_string()).arg(LEASE.as_millis().to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = tokio::sync::Mutex::new(child.stdin.take().ok_or("piped")?);
        let mut lines = BufReader::new(child.stdout.take().ok_or("piped")?).lines();
        if lines.next_line().await?.as_deref() != Some("ready") {
            return Err("Curator's driver did not connect".into());
        }
        let answers = Answers::default();
        let all = answers.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((handle, answer)) = line.split_once(' ') else { continue };
                if let Some(handle) = locked(&all).get(handle) {
                    // It may have been dropped.
                    let _ = handle.send(answer.to_owned());
                }
            }
        });
        Ok(Arc::new(Self { _child: child, input, answers }))
    }
}

impl Handle {
    /// Sends a command, and waits for this answer.
    async fn run(&self, command: &str, expected: &str) -> Outcome {
        let answer = self.ask(command).await?;
        if answer.split(' ').next() == Some(expected) { Ok(()) } else { Err(answer.into()) }
    }

    /// What the listener has seen so far. A driver that does not answer knows nothing of a lock.
    fn is_held(&self) -> bool {
        tokio::task::block_in_place(|| Runtime::current().block_on(self.ask("held")))
            .is_ok_and(|it| it == "ok true")
    }

    /// Sends a command, and waits for its answer.
    async fn ask(&self, command: &str) -> Outcome<String> {
        let mut answers = self.answers.lock().await;
        // The answer of a command that was given up.
        while answers.try_recv().is_ok() {}
        self.send(command).await?;
        Ok(answers.recv().await.ok_or("Curator's driver has ended")?)
    }

    async fn send(&self, command: &str) -> Outcome {
        let line = format!("{} {command}\n", self.name);
        Ok(self.machine.input.lock().await.write_all(line.as_bytes()).await?)
    }
}

/// Cancels the driver's wait when it is dropped.
struct Wait(Option<Arc<Handle>>);

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            tokio::spawn(async move { handle.send("cancel").await });
        }
    }
}

#[async_trait]
impl Recipe for Arc<Handle> {
    async fn acquire(&self) -> Outcome<Grant> {
        let mut wait = Wait(Some(self.clone()));
        let acquired = self.run("acquire", "held").await;
        wait.0 = None;
        acquired?;
        let handle = self.clone();
        let grant = Grant::new(async move { handle.run("release", "ok").await });
        let handle = self.clone();
        Ok(if self.is_watched { grant.held_while(move || handle.is_held()) } else { grant })
    }
}
