//! Owns `--die-with-parent`: the system sends the command SIGTERM when zklock is killed.
//!
//! 1. A process can only ask for that itself, and the request outlasts the execution of another program. So zklock starts itself
//!    once more, asks there, and executes the command in place of that process.
//! 2. The signal comes when the thread ends that has started the process. That is the main thread, which ends with zklock.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cli::DieWith;
use crate::exit::{self, CANNOT_EXECUTE, Failure};
use crate::program;

/// Lasts when the file of zklock is replaced by another version.
const OURSELVES: &str = "/proc/self/exe";

/// The command that executes a command so.
pub(crate) fn wrap(command: &[OsString]) -> Vec<OsString> {
    let id = process::id().to_string();
    let ourselves = [OURSELVES, "die-with", &id, "--"].map(OsString::from);
    ourselves.iter().chain(command).cloned().collect()
}

/// Executes the command in place of this process, and returns only if that fails.
pub(crate) fn execute(given: &DieWith) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return Failure::new(CANNOT_EXECUTE, format!("--die-with-parent does not work here: {error}"));
    }
    // It has ended before we asked.
    if getppid() != Pid::from_raw(given.parent) {
        return Failure::new(exit::signal(Signal::TERM.as_raw()), "");
    }
    let Err(error) = program::execute(&given.command, |mut command| Err::<Infallible, _>(command.exec()));
    program::failure(&given.command, &error)
}
