//! A server's process in a temporary folder, both of which go when this process ends for any reason.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::Outcome;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

// Its input ends when this process ends for any reason.
const WATCHDOG: &str = r#"read -r; kill -INT "$1"; sleep 2; kill -KILL "$1"; rm -rf -- "$2""#;

/// A folder for a server's data.
///
/// # Errors
///
/// If it cannot be created.
pub fn folder() -> Outcome<TempDir> {
    Ok(tempfile::Builder::new().prefix("lab-server.").tempdir()?)
}

/// The program in the first of these folders that has it, or in the `PATH`.
///
/// # Errors
///
/// If none has it; the message names Debian's package.
pub fn find(program: &str, package: &str, folders: &[PathBuf]) -> Outcome<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = folders.iter().cloned().chain(std::env::split_paths(&path)).map(|folder| folder.join(program));
    all.find(|file| file.is_file()).ok_or_else(|| {
        format!("there is no {program}; `apt-get install --no-install-recommends {package}` installs it").into()
    })
}

/// What a program prints, if it succeeds.
///
/// # Errors
///
/// If it does not; the message has what it printed.
pub fn output(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}: {}", output.status, why.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// An ordinary user, for servers that refuse to run as root.
#[derive(Clone, Copy, Debug)]
pub struct User(Option<(u32, u32)>);

impl User {
    /// The current user, or the first of these that exists if the current one is root.
    ///
    /// # Errors
    ///
    /// If none exists.
    pub fn ordinary(names: &[&str]) -> Outcome<Self> {
        if !geteuid().is_root() {
            return Ok(Self(None));
        }
        let id = |option, name| output(Command::new("id").args([option, name])).ok()?.parse::<u32>().ok();
        let found = names.iter().find_map(|name| Some((id("-u", name)?, id("-g", name)?)));
        found.map(|ids| Self(Some(ids))).ok_or_else(|| format!("there is no user of {names:?}").into())
    }

    /// Makes the folder the user's.
    ///
    /// # Errors
    ///
    /// If that is not allowed.
    pub fn own(self, folder: &Path) -> Outcome {
        if let Some((user, group)) = self.0 {
            chown(folder, Some(user), Some(group))?;
        }
        Ok(())
    }

    /// Lets the command run as the user.
    pub fn run(self, command: &mut Command) -> &mut Command {
        match self.0 {
            Some((user, group)) => command.uid(user).gid(group),
            None => command,
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Process {
    command: Command,
    child: Child,
    watchdog: Child,
    folder: TempDir,
    stop: Signal,
}

impl Process {
    /// Starts a server that writes into the folder only.
    ///
    /// # Errors
    ///
    /// If the program or its watchdog cannot be started.
    pub fn start(mut command: Command, folder: TempDir) -> Outcome<Self> {
        let (child, watchdog) = launch(&mut command, folder.path())?;
        Ok(Self { command, child, watchdog, folder, stop: Signal::INT })
    }

    /// Stops it with this signal in the end; SIGINT by default.
    #[must_use]
    pub fn stopped_by(mut self, signal: Signal) -> Self {
        self.stop = signal;
        self
    }

    /// The folder that the server writes into.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The id of the process, which may have ended.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process in order, for some seconds, and then kills it.
    pub fn stop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // PostgreSQL would leave shared memory after a SIGKILL.
            let _ = kill_process(Pid::from_child(&self.child), self.stop);
            let deadline = Instant::now() + STOP_LIMIT;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(POLL);
            }
        }
        self.kill();
    }

    /// Kills the process and its children with SIGKILL, and waits until it has ended.
    pub fn kill(&mut self) {
        // PostgreSQL's children have groups of their own.
        let children = children(self.child.id());
        // All fail only if the process has ended.
        let _ = self.child.kill();
        for child in children.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = self.child.wait();
    }

    /// Starts a killed server again, with what is in its folder by now.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn restart(&mut self) -> Outcome {
        (self.child, self.watchdog) = launch(&mut self.command, self.folder.path())?;
        Ok(())
    }

    /// Waits until `connect` succeeds.
    ///
    /// # Errors
    ///
    /// If the process ends, or takes a minute; the message has the end of its log.
    pub async fn ready<T>(&mut self, connect: impl Fn() -> BoxFuture<'static, Outcome<T>>) -> Outcome<T> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let connected = connect().await;
            // What answers could be another server that has taken the port.
            let has_exited = self.child.try_wait()?.is_some();
            match connected {
                Ok(connected) if !has_exited => return Ok(connected),
                Err(_) if !has_exited && Instant::now() < deadline => sleep(POLL).await,
                _ => return Err(format!("the server did not start; the end of its log:\n{}", self.log()).into()),
            }
        }
    }

    fn log(&self) -> String {
        let log = fs::read(self.folder.path().join("server.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// Starts the program, and a watchdog that ends it and removes the folder if this process ends first.
fn launch(command: &mut Command, folder: &Path) -> Outcome<(Child, Child)> {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("server.log"))?;
    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C must reach only us; the watchdog notices when we end.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let watchdog = Command::new("bash")
        .args(["-c", WATCHDOG, "watchdog", &child.id().to_string()])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    match watchdog {
        Ok(watchdog) => Ok((child, watchdog)),
        Err(error) => {
            child.kill()?;
            child.wait()?;
            Err(format!("cannot start bash: {error}").into())
        }
    }
}

/// The CPU time of a process and its children so far, in user and kernel mode.
///
/// # Errors
///
/// If there is no such process.
pub fn cpu_time(process: u32) -> Outcome<Duration> {
    let stat = stat(process).ok_or_else(|| format!("there is no process {process}"))?;
    // Of the process, and of its children that have ended.
    let mut ticks: u64 = stat[11..15].iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    for child in children(process) {
        let stat = self::stat(child.unsigned_abs()).unwrap_or_default();
        ticks += stat.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    }
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// The fields of proc(5)'s `stat` from the third on, the state.
fn stat(process: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn children(of: u32) -> Vec<i32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = of.to_string();
    all.filter(|process| stat(*process).is_some_and(|stat| stat.get(1) == Some(&parent)))
        .filter_map(|process| i32::try_from(process).ok())
        .collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}
