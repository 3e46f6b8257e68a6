//! Owns the screen: when it is to be drawn again, and the keys that are read meanwhile.

use std::io;

use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr,
};
use tokio::signal::unix;

use crate::exit::Failure;
use crate::signals::catch;

/// The times at which what was drawn is not there any more: the terminal has another size, or we were stopped.
#[derive(Debug)]
pub(crate) struct Redraws([unix::Signal; 2]);

impl Redraws {
    pub(crate) fn catch() -> Result<Self, Failure> {
        Ok(Self([catch(Signal::WINCH)?, catch(Signal::CONT)?]))
    }

    /// Waits for the next; without a screen there is none.
    pub(crate) async fn next(redraws: &mut Option<Self>) {
        match redraws {
            Some(Self([resized, continued])) => tokio::select! {
                _ = resized.recv() => {}
                _ = continued.recv() => {}
            },
            None => std::future::pending().await,
        }
    }
}

/// The keys of a terminal on standard input, which come without Enter and are not shown until this is dropped.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The settings before.
    before: Termios,
}

impl Keys {
    /// `None` without a terminal that is ours.
    pub(crate) fn take() -> Option<Self> {
        let is_ours = isatty(io::stdin()) && tcgetpgrp(io::stdin()).is_ok_and(|owner| owner == getpgrp());
        let keys = Self { before: is_ours.then(|| tcgetattr(io::stdin()).ok()).flatten()? };
        keys.set();
        Some(keys)
    }

    /// Stops us as Ctrl-Z does, and returns when we go on. Meanwhile the terminal is as it was.
    pub(crate) fn stop(&self) {
        self.undo();
        _ = kill_process(getpid(), Signal::STOP);
        self.set();
    }

    fn set(&self) {
        let mut modes = self.before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
    }

    fn undo(&self) {
        _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.undo();
    }
}
