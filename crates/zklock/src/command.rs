//! Owns the command: its end, and how it is stopped.
//!
//! All signals go to its whole process group, so that what a shell has started does not outlive it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::exit;
use crate::group::Group;
use crate::messages::report;
use crate::program;
use crate::terminal::Terminal;

/// How often an orphaned group is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How often the terminal is looked at for a command that waits for it. No signal reports that a shell has given it to us.
const LOOK_AT_TERMINAL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Command {
    child: Child,
    /// The id of its process, which is that of its group.
    id: Pid,
    terminal: Option<Terminal>,
    /// It was stopped because it wanted a terminal that it has not got.
    wants_terminal: bool,
    /// A child has ended, stopped or gone on.
    changes: unix::Signal,
}

impl Command {
    /// Starts it, in a process group of its own, with the terminal if that is ours and the command uses it.
    pub(crate) fn start(command: &[OsString], environment: &[(&str, String)]) -> io::Result<Self> {
        let changes = unix::signal(SignalKind::child())?;
        let terminal = Terminal::open();
        let child = program::execute(command, |mut command| {
            command.envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
            tokio::process::Command::from(command).spawn()
        })?;
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or(io::ErrorKind::NotFound)?;
        let mut command = Self { child, id, terminal, wants_terminal: false, changes };
        if Terminal::is_used() {
            command.lend_terminal();
        }
        Ok(command)
    }

    pub(crate) fn id(&self) -> i32 {
        self.id.as_raw_nonzero().get()
    }

    fn group(&self) -> Group {
        Group(self.id)
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
            if let Err(Errno::PERM) = self.group().send(signal) {
                report(format_args!(
                    "process {} does not belong to us: it gets no signal, and goes on",
                    self.id()
                ));
            }
            _ = self.group().send(Signal::CONT);
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
        let mut look = Instant::now();
        while self.has_left_some() {
            let now = Instant::now();
            if now >= deadline {
                _ = self.group().send(Signal::KILL);
                break;
            }
            // A look takes long on a machine with many processes.
            sleep_until(deadline.min(now + LOOK.max(10 * (now - look)))).await;
            look = Instant::now();
        }
        match ended {
            Ok(status) => status,
            Err(_) => self.child.wait().await,
        }
    }

    /// Whether a process of the group runs: after the end of the command, one that it has left behind.
    pub(crate) fn has_left_some(&self) -> bool {
        self.group().is_running()
    }

    /// Takes the terminal back after the end.
    pub(crate) fn leave_terminal(&mut self, status: ExitStatus) {
        if let Some(terminal) = &mut self.terminal {
            // That of a guard is the exit code that a shell would show.
            terminal.take_back(status.signal().is_some() || status.code().is_some_and(|code| code > 128));
        }
    }

    fn lend_terminal(&mut self) {
        let Some(terminal) = &mut self.terminal else {
            self.wants_terminal = false;
            return;
        };
        let group = Group(self.id);
        if terminal.lend(group) || terminal.is_lent_to(group) {
            self.wants_terminal = false;
            // It was stopped if it has read before.
            _ = group.send(Signal::CONT);
        }
    }

    fn go_on(&mut self) {
        let stopped = waitid(WaitId::Pid(self.id), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        let by = stopped.ok().flatten().and_then(|status| status.stopping_signal());
        let Some(by) = by.and_then(Signal::from_named_raw) else { return };
        match by {
            Signal::TSTP if self.terminal.as_ref().is_some_and(|terminal| terminal.is_lent_to(self.group())) => {
                _ = self.group().send(Signal::CONT);
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
