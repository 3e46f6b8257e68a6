//! A contender as the laboratory sees it: a process that reports its steps, and that signals reach with its children.

use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Outcome;
use crate::event::{Event, What};
use crate::servers::clock::Clock;
use crate::work::Order;

/// The steps of all contenders of a run, in the order in which they were read.
#[derive(Clone, Debug)]
pub struct Log {
    events: Arc<Mutex<Vec<Event>>>,
    length: watch::Sender<usize>,
}

impl Default for Log {
    fn default() -> Self {
        Self { events: Arc::default(), length: watch::Sender::new(0) }
    }
}

impl Log {
    /// Adds a step.
    pub fn push(&self, event: Event) {
        // Not under its lock: a waiter takes the two the other way round.
        let length = {
            let mut events = self.locked();
            events.push(event);
            events.len()
        };
        self.length.send_replace(length);
    }

    /// Adds what the laboratory does.
    pub fn fault(&self, text: &str) {
        self.push(Event::now(0, What::Fault).with_text(text));
    }

    /// All steps so far, by time.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.locked().clone();
        events.sort_by_key(|event| event.at);
        events
    }

    /// Waits until the steps so far fulfil a condition; false if they do not within the limit.
    pub async fn wait(&self, limit: Duration, mut fulfilled: impl FnMut(&[Event]) -> bool) -> bool {
        let mut length = self.length.subscribe();
        let waiting = length.wait_for(|_| fulfilled(&self.locked()));
        timeout(limit, waiting).await.is_ok()
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A contender. Dropping it kills the process.
#[derive(Debug)]
pub struct Actor {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    log: Log,
}

impl Actor {
    /// Starts this program once more, with an order, and with another clock if one is given.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(name: &str, order: &Order, clock: Option<&Clock>, log: &Log) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("contend").arg(serde_json::to_string(order)?);
        let is_java = !order.place.java.is_empty();
        command.envs(clock.into_iter().flat_map(|clock| match is_java {
            true => clock.environment_of_java(),
            false => clock.environment().into(),
        }));
        // Java is in the group, too. When this process ends for any reason the input ends, and the contender with it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or("piped")?;
        let (reader, contender) = (log.clone(), name.to_owned());
        thread::spawn(move || {
            for line in io::BufRead::lines(io::BufReader::new(output)).map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str::<Event>(&line) {
                    reader.push(Event { contender: contender.clone(), ..event });
                }
            }
        });
        let input = child.stdin.take();
        Ok(Self { name: name.to_owned(), child, input, log: log.clone() })
    }

    /// Waits until it has done this.
    ///
    /// # Errors
    ///
    /// If it has not within the limit; the message has what failed.
    pub async fn wait(&self, what: What, limit: Duration) -> Outcome {
        let done = |event: &Event| event.contender == self.name && event.what == what;
        if self.log.wait(limit, |events| events.iter().any(done)).await {
            return Ok(());
        }
        let failed = self.log.events().into_iter().filter(|event| event.contender == self.name);
        let why = failed.filter_map(|event| event.text).next_back().unwrap_or_default();
        Err(format!("{} was not {what:?} within {limit:?} {why}", self.name).into())
    }

    /// Lets it begin, or pass its gate.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn go(&mut self) -> Outcome {
        let input = self.input.as_mut().ok_or("its input was closed")?;
        Ok(io::Write::write_all(input, b"go\n")?)
    }

    /// Stops it with SIGSTOP, and waits until all of its threads have stopped.
    pub fn stop(&self) {
        self.log.fault(&format!("{} is stopped", self.name));
        self.signal(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // It fails only if the process has ended.
        let _ = waitid(WaitId::Pid(Pid::from_child(&self.child)), stopped);
    }

    /// Lets it continue.
    pub fn resume(&self) {
        self.log.fault(&format!("{} continues", self.name));
        self.signal(Signal::CONT);
    }

    /// Kills it with SIGKILL.
    pub fn kill(&self) {
        self.log.fault(&format!("{} is killed", self.name));
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // It fails only if the process has ended.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}
