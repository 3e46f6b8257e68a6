//! Owns the execution of a program, as execvp(3) does it: a script without `#!` is run by the shell.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::io::Errno;

use crate::exit::{CANNOT_EXECUTE, Failure, NOT_FOUND};

const SHELL: &str = "/bin/sh";

/// Executes a command with `start`, and with a shell before it if it has no format that the system knows.
pub(crate) fn execute<T>(command: &[OsString], start: impl Fn(Command) -> io::Result<T>) -> io::Result<T> {
    let (program, arguments) = command.split_first().ok_or(ErrorKind::InvalidInput)?;
    let mut plain = Command::new(program);
    plain.args(arguments);
    match start(plain) {
        Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            let mut by_shell = Command::new(SHELL);
            by_shell.arg(file(program)).args(arguments);
            start(by_shell)
        }
        done => done,
    }
}

/// The file that a program is. Without a slash in its name it is the first one in PATH that may be executed.
fn file(program: &OsStr) -> PathBuf {
    let may_be_executed = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let path = env::var_os("PATH").filter(|_| !program.as_bytes().contains(&b'/')).unwrap_or_default();
    let mut files = env::split_paths(&path).map(|folder| folder.join(program));
    files.find(may_be_executed).unwrap_or_else(|| program.into())
}

/// Why a command was not executed.
pub(crate) fn failure(command: &[OsString], error: &io::Error) -> Failure {
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    let program = command.first().map(|program| program.display().to_string()).unwrap_or_default();
    Failure::new(code, format!("cannot execute {program:?}: {error}"))
}
