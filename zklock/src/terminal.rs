//! Owns the terminal, which belongs to one process group at a time.
//!
//! The command has a process group of its own, so that all of it can be stopped when the lock is lost. A group that does not
//! own the terminal is stopped when it reads from it. So the command's group gets the terminal while the command runs, as
//! a shell does it for its jobs: the command can read, and Ctrl-C goes to it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::io::Result;
use rustix::process::{Pid, getpgrp};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal of standard input, in whose foreground we are.
#[derive(Debug)]
pub(crate) struct Terminal(File);

impl Terminal {
    /// `None` without a terminal, and in its background, where the command has to stay, too.
    pub(crate) fn in_foreground() -> Option<Self> {
        let stdin = io::stdin();
        let ours = isatty(&stdin) && tcgetpgrp(&stdin).is_ok_and(|owner| owner == getpgrp());
        // A copy: what the command or we do with standard input does not matter.
        ours.then(|| stdin.as_fd().try_clone_to_owned())
            .and_then(io::Result::ok)
            .map(|terminal| Self(terminal.into()))
    }

    /// Gives it to another group.
    pub(crate) fn give(&self, group: Pid) -> Result<()> {
        as_owner(|| tcsetpgrp(&self.0, group))
    }
}

impl Drop for Terminal {
    /// Takes it back: a script that has started us reads from it, too.
    fn drop(&mut self) {
        // It may be gone, and then nobody needs it.
        _ = self.give(getpgrp());
    }
}

/// A group that does not own the terminal is stopped by SIGTTOU when it gives it away, unless it blocks that signal.
fn as_owner<T>(give: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = SigSet::from(Signal::SIGTTOU);
    _ = stop.thread_block();
    let given = give();
    _ = stop.thread_unblock();
    given
}
