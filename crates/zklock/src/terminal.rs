//! Owns the terminal, which belongs to one process group at a time.
//!
//! The command has a process group of its own, so that all of it can be stopped when the lock is lost. A group that does not
//! own the terminal is stopped when it reads from it. So the command's group gets the terminal from us, as a shell does it
//! for its jobs: the command can read, and Ctrl-C goes to it.
//!
//! It gets only what is ours: another group may have the terminal by now.

use std::fs::File;
use std::io;

use nix::sys::signal::{self, SigSet};
use rustix::io::Result;
use rustix::process::{Signal, getpgrp};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use crate::group::Group;

/// The terminal that we were started at.
#[derive(Debug)]
pub(crate) struct Terminal {
    file: File,
    /// Who got it, and how it was set before.
    lent: Option<(Group, Option<Termios>)>,
}

impl Terminal {
    /// `None` without one.
    pub(crate) fn open() -> Option<Self> {
        File::open("/dev/tty").ok().map(|file| Self { file, lent: None })
    }

    /// Whether the command talks to a person: both its input and its output are a terminal. Otherwise it is a part of
    /// a pipeline, and the other parts may want the terminal.
    pub(crate) fn is_used() -> bool {
        isatty(io::stdin()) && isatty(io::stdout())
    }

    /// Lends it to a group; `false` if it is not ours.
    pub(crate) fn lend(&mut self, group: Group) -> bool {
        if !self.is_owned_by(Group(getpgrp())) {
            return false;
        }
        let modes = tcgetattr(&self.file).ok();
        let is_lent = as_owner(|| tcsetpgrp(&self.file, group.0)).is_ok();
        if is_lent {
            self.lent = Some((group, modes));
        }
        is_lent
    }

    /// Whether a group has got it, and not lost it since.
    pub(crate) fn is_lent_to(&self, group: Group) -> bool {
        self.lent.is_some() && self.is_owned_by(group)
    }

    /// Takes it back, because a script that has started us also reads from it. The command may have been killed before it could
    /// undo its settings, and then we undo them.
    pub(crate) fn take_back(&mut self, was_killed: bool) {
        let Some((group, modes)) = self.lent.take() else {
            return;
        };
        // It may be gone, or with a job of another shell by now, which needs it more.
        let owner = tcgetpgrp(&self.file).map(Group);
        if !owner.is_ok_and(|owner| owner == group || !owner.is_running()) {
            return;
        }
        _ = as_owner(|| tcsetpgrp(&self.file, getpgrp()));
        if was_killed && let Some(modes) = modes {
            _ = as_owner(|| tcsetattr(&self.file, OptionalActions::Now, &modes));
        }
        // A pager behind us was stopped if it has read from it meanwhile.
        _ = Group(getpgrp()).send(Signal::CONT);
    }

    fn is_owned_by(&self, group: Group) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|owner| owner == group.0)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back(false);
    }
}

/// A group that does not own the terminal is stopped by SIGTTOU when it changes it, unless it blocks that signal.
fn as_owner<T>(change: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = SigSet::from(signal::Signal::SIGTTOU);
    _ = stop.thread_block();
    let changed = change();
    _ = stop.thread_unblock();
    changed
}
