//! Owns the command: its process group, its end, and how it is stopped.
//!
//! 1. All signals go to the whole group, so that what a shell has started does not outlive it.
//! 2. A group is signalled only while it has a member, because the number of an empty one may be given to another.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep, timeout_at};

use crate::exit;
use crate::terminal::Terminal;

/// How often an orphaned group is looked at.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Command {
    child: Child,
    group: Pid,
    terminal: Option<Terminal>,
    /// A child has ended, stopped or gone on.
    changes: unix::Signal,
    /// We go on after a stop.
    continued: unix::Signal,
}

impl Command {
    /// Starts it, in a process group of its own, with the terminal if we have it.
    pub(crate) fn start(command: &[OsString], environment: &[(&str, String)]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let changes = unix::signal(SignalKind::child())?;
        let continued = unix::signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        let terminal = Terminal::in_foreground();
        let mut command = std::process::Command::new(program);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
        let child = tokio::process::Command::from(command).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
        let command = Self { child, group, terminal, changes, continued };
        command.give_terminal();
        Ok(command)
    }

    /// The id of its process, which is that of its group.
    pub(crate) fn id(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Waits for its end.
    ///
    /// A command that is stopped from the keyboard goes on at once. Nobody could start it again: the shell waits for us, and we
    /// must not stop, because the session would expire.
    pub(crate) async fn end(&mut self) -> io::Result<ExitStatus> {
        loop {
            tokio::select! {
                biased;
                status = self.child.wait() => return status,
                _ = self.changes.recv() => self.go_on(),
                // A shell has put us into the foreground.
                _ = self.continued.recv() => {
                    if self.terminal.is_none() {
                        self.terminal = Terminal::in_foreground();
                    }
                    self.give_terminal();
                }
            }
        }
    }

    /// Passes a signal on.
    pub(crate) fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            // It has ended, and its group with it.
            _ = kill_process_group(self.group, signal);
        }
    }

    /// Sends the group SIGTERM, and SIGKILL after the grace time, and waits for its end. A signal from outside shortens
    /// nothing: it was on its way to the command in any case.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        // One that is stopped could not end.
        _ = kill_process_group(self.group, Signal::TERM);
        _ = kill_process_group(self.group, Signal::CONT);
        let deadline = Instant::now() + grace;
        let ended = timeout_at(deadline, self.child.wait()).await;
        while self.has_left_some() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
        if self.has_left_some() {
            _ = kill_process_group(self.group, Signal::KILL);
        }
        match ended {
            Ok(status) => status,
            Err(_) => self.child.wait().await,
        }
    }

    /// Whether the group has a member: after the end of the command, a process that it has left behind.
    pub(crate) fn has_left_some(&self) -> bool {
        test_kill_process_group(self.group).is_ok()
    }

    fn give_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            _ = terminal.give(self.group);
            // It may have been stopped when it read before it had the terminal.
            _ = kill_process_group(self.group, Signal::CONT);
        }
    }

    fn go_on(&self) {
        let stopped = waitid(WaitId::Pid(self.group), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let by = stopped.ok().flatten().and_then(|status| status.stopping_signal());
        if by.is_some_and(|by| by == Signal::TSTP.as_raw()) && self.terminal.is_some() {
            _ = kill_process_group(self.group, Signal::CONT);
        }
    }
}

/// The exit code that a shell would show.
pub(crate) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        // Only eight bits come back from a process.
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (None, Some(number)) => exit::signal(number),
        (None, None) => exit::OTHER,
    }
}
