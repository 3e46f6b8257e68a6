//! Owns the command: its process group, its end, and how it is stopped.
//!
//! 1. All signals go to the whole group, so that what a shell has started does not outlive it.
//! 2. A group is signalled only while it has a member, because the number of an empty one may be given to another.
//! 3. We do not stop while it runs, not even by Ctrl-Z: the session would expire.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep, timeout_at};

use crate::exit;
use crate::messages::report;
use crate::terminal::Terminal;

/// How often an orphaned group is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How often the terminal is looked at for a command that waits for it. No signal reports that a shell has given it to us.
const LOOK_AT_TERMINAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Command {
    child: Child,
    group: Pid,
    terminal: Option<Terminal>,
    /// It was stopped because it wanted a terminal that it has not got.
    wants_terminal: bool,
    /// A child has ended, stopped or gone on.
    changes: unix::Signal,
    /// What would stop us, unless it is caught: Ctrl-Z, and a pager behind us that reads while the command has the terminal,
    /// because the whole group of the pager is stopped then.
    _stops: [unix::Signal; 3],
}

impl Command {
    /// Starts it, in a process group of its own, with the terminal if that is ours and the command uses it.
    pub(crate) fn start(command: &[OsString], environment: &[(&str, String)]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let changes = unix::signal(SignalKind::child())?;
        let caught = |signal: Signal| unix::signal(SignalKind::from_raw(signal.as_raw()));
        let stops = [caught(Signal::TSTP)?, caught(Signal::TTIN)?, caught(Signal::TTOU)?];
        let terminal = Terminal::open();
        let mut command = std::process::Command::new(program);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
        let child = tokio::process::Command::from(command).spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
        let mut command = Self { child, group, terminal, wants_terminal: false, changes, _stops: stops };
        if Terminal::is_used() {
            command.lend_terminal();
        }
        Ok(command)
    }

    /// The id of its process, which is that of its group.
    pub(crate) fn id(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// Waits for its end.
    ///
    /// A command that is stopped from the keyboard goes on at once. Nobody could start it again: the shell waits for us, and we
    /// must not stop. One that is stopped because it reads in the background gets the terminal when we have it.
    pub(crate) async fn end(&mut self) -> io::Result<ExitStatus> {
        loop {
            tokio::select! {
                biased;
                status = self.child.wait() => return status,
                _ = self.changes.recv() => self.go_on(),
                () = sleep(LOOK_AT_TERMINAL), if self.wants_terminal => self.lend_terminal(),
            }
        }
    }

    /// Passes a signal on. It reaches also what is stopped, as that of `timeout(1)` does.
    pub(crate) fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            if let Err(Errno::PERM) = self.send(signal) {
                report(format_args!(
                    "process {} does not belong to us: it gets no signal, and goes on",
                    self.id()
                ));
            }
            _ = self.send(Signal::CONT);
        }
    }

    /// Sends the group SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM.as_raw());
    }

    /// Waits for its end after [`terminate`](Self::terminate), and sends SIGKILL after the grace time. A signal from outside
    /// shortens nothing: it was on its way to the command in any case.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + grace;
        let ended = timeout_at(deadline, self.child.wait()).await;
        while self.has_left_some() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
        if self.has_left_some() {
            _ = self.send(Signal::KILL);
        }
        match ended {
            Ok(status) => status,
            Err(_) => self.child.wait().await,
        }
    }

    /// Whether the group has a member: after the end of the command, a process that it has left behind.
    pub(crate) fn has_left_some(&self) -> bool {
        // As process 1 of a container we get the orphans, and those that have ended are members until somebody asks.
        // Not before the command itself was asked for, which its waiter does.
        if self.child.id().is_none() {
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            while let Ok(Some(_)) = waitid(WaitId::Pgid(Some(self.group)), ended) {}
        }
        // One that we may not signal is one.
        !matches!(test_kill_process_group(self.group), Err(Errno::SRCH))
    }

    /// Takes the terminal back after the end.
    pub(crate) fn leave_terminal(&mut self, status: ExitStatus) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(status.signal().is_some());
        }
    }

    /// A group without a member has ended, and then nobody needs the signal.
    fn send(&self, signal: Signal) -> Result<(), Errno> {
        kill_process_group(self.group, signal)
    }

    fn lend_terminal(&mut self) {
        let Some(terminal) = &mut self.terminal else {
            self.wants_terminal = false;
            return;
        };
        if terminal.lend(self.group) || terminal.is_lent_to(self.group) {
            self.wants_terminal = false;
            // It was stopped if it has read before.
            _ = self.send(Signal::CONT);
        }
    }

    fn go_on(&mut self) {
        let stopped = waitid(WaitId::Pid(self.group), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let by = stopped.ok().flatten().and_then(|status| status.stopping_signal());
        let Some(by) = by.and_then(Signal::from_named_raw) else { return };
        match by {
            Signal::TSTP if self.terminal.as_ref().is_some_and(|terminal| terminal.is_lent_to(self.group)) => {
                _ = self.send(Signal::CONT);
            }
            Signal::TTIN | Signal::TTOU => {
                self.wants_terminal = true;
                self.lend_terminal();
            }
            _ => {}
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
