//! Owns [`Crew`]: workers, each a separate process, and the lines that they print.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zookeeper_recipes::{Mutex, Session};

use crate::{Result, Store};

/// Workers that compete for one lock, and for the store that it guards.
#[derive(Debug)]
pub struct Crew {
    tokens: &'static str,
    file: PathBuf,
    workers: Vec<Child>,
    send: UnboundedSender<(usize, Option<String>)>,
    lines: UnboundedReceiver<(usize, Option<String>)>,
    /// How many workers have not ended.
    running: usize,
}

impl Crew {
    /// Makes a crew without workers, and its store with this number.
    ///
    /// # Errors
    ///
    /// If SQLite fails.
    pub fn new(folder: &Path, checks: bool, number: usize) -> Result<Self> {
        let tokens = if checks { "checked" } else { "unchecked" };
        let file = folder.join(tokens);
        Store::create(&file, number)?;
        let (send, lines) = unbounded_channel();
        Ok(Self { tokens, file, workers: Vec::new(), send, lines, running: 0 })
    }

    /// `checked` or `unchecked`.
    #[must_use]
    pub fn tokens(&self) -> &'static str {
        self.tokens
    }

    /// Starts another worker.
    ///
    /// # Errors
    ///
    /// If the process cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        let number = self.workers.len();
        let mut worker = Command::new(std::env::current_exe()?)
            .args(["worker", &number.to_string(), self.tokens])
            .arg(&self.file)
            .arg(format!("/demos-{}/{}", std::process::id(), self.tokens))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = worker.stdout.take().ok_or("a worker has no output")?;
        let (mut lines, send) = (BufReader::new(output).lines(), self.send.clone());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = send.send((number, Some(line)));
            }
            let _ = send.send((number, None));
        });
        self.workers.push(worker);
        self.running += 1;
        Ok(())
    }

    /// The number of a worker, and the next line that it prints; `None` when all have ended.
    pub async fn next_line(&mut self) -> Option<(usize, String)> {
        while self.running > 0 {
            match self.lines.recv().await? {
                (number, Some(line)) => return Some((number, line)),
                (_, None) => self.running -= 1,
            }
        }
        None
    }

    /// Resumes a stopped worker.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn resume(&self, number: usize) -> Result<()> {
        let id = self.workers[number].id().ok_or("the worker has ended")?;
        let pid = Pid::from_raw(id.try_into()?).ok_or("no process has the id 0")?;
        Ok(kill_process(pid, Signal::CONT)?)
    }

    /// Waits until all workers have ended; returns the final number in the store.
    ///
    /// # Errors
    ///
    /// If a worker has failed.
    pub async fn end(mut self) -> Result<usize> {
        for worker in &mut self.workers {
            if !worker.wait().await?.success() {
                return Err("a worker has failed".into());
            }
        }
        Store::open(&self.file, false)?.number()
    }
}

/// The arguments of a worker process.
#[derive(Debug)]
pub struct Worker {
    number: usize,
    checks: bool,
    file: PathBuf,
    lock: String,
}

impl Worker {
    /// Returns `None` if this process is not a worker.
    pub(crate) fn from_arguments() -> Result<Option<Self>> {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Ok(None),
            ["worker", number, tokens, file, lock] => Ok(Some(Self {
                number: number.parse()?,
                checks: tokens == "checked",
                file: file.into(),
                lock: lock.to_owned(),
            })),
            _ => Err("these are not the arguments of a worker".into()),
        }
    }

    /// The number of workers that were started before it.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Opens the store of its crew.
    ///
    /// # Errors
    ///
    /// If SQLite fails.
    pub fn store(&self) -> Result<Store> {
        Store::open(&self.file, self.checks)
    }

    /// The lock of its crew.
    ///
    /// # Errors
    ///
    /// If its path is not a valid lock path.
    pub fn mutex(&self, session: &Session) -> Result<Mutex> {
        Ok(Mutex::new(session, &self.lock)?)
    }

    /// Stops this process (SIGSTOP) until it is [resumed](Crew::resume).
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent.
    pub fn stop(&self) -> Result<()> {
        stop_here()
    }
}

/// Stops this process (SIGSTOP), and returns when it has been continued.
///
/// # Errors
///
/// If the signal cannot be sent.
pub fn stop_here() -> Result<()> {
    kill_process(getpid(), Signal::STOP)?;
    // The signal may stop another thread first, and this one a moment later. Until then it must do nothing.
    sleep(Duration::from_millis(500));
    Ok(())
}
