//! Owns the exit codes, and [`Failure`]: why nothing could be done, with the code for it.
//!
//! The codes of our own failures are those of `sysexits.h`, and of shells for commands that cannot be executed.

use std::error::Error as _;
use std::fmt;
use std::io;

use zookeeper_recipes::{Error, zookeeper_client};

/// The lock is held by others, the wait timed out, the node is not there, or there is something to fix.
pub(crate) const NO: u8 = 1;
/// The command line cannot be used.
pub(crate) const USAGE: u8 = 64;
/// No server answered.
pub(crate) const NO_SERVER: u8 = 69;
/// The servers refused a request, the node was deleted while it waited, or we are at fault.
pub(crate) const OTHER: u8 = 70;
/// The output cannot be written.
pub(crate) const OUTPUT: u8 = 74;
/// The lock was lost.
pub(crate) const LOST: u8 = 75;
/// The ACLs or the credentials do not allow it.
pub(crate) const NO_PERMISSION: u8 = 77;
/// The path is used both as a lock and as a semaphore.
pub(crate) const MIXED: u8 = 78;
/// The command cannot be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// There is no such command.
pub(crate) const NOT_FOUND: u8 = 127;

/// The error of servers that keep the session local, which may then have no ephemeral nodes. The client has no name for it.
pub(crate) const LOCAL_SESSION: i32 = -120;

/// The message for it.
pub(crate) const NO_LOCK_IN_A_LOCAL_SESSION: &str = "a session is local, and gets no lock; set \
    localSessionsUpgradingEnabled=true, or localSessionsEnabled=false";

/// The code of what a signal has ended, as in shells.
pub(crate) fn signal(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// Why nothing could be done.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Empty if there is nothing to report: the reader of our output has gone.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::InvalidInput { .. } => USAGE,
            Error::NoAuth { .. } | Error::Client { source: zookeeper_client::Error::AuthFailed, .. } => {
                NO_PERMISSION
            }
            Error::Unavailable { .. } => NO_SERVER,
            Error::Lost(_) => LOST,
            _ => OTHER,
        };
        if let Error::Client { source: zookeeper_client::Error::UnexpectedErrorCode(LOCAL_SESSION), .. } = &error {
            return Self { code, message: NO_LOCK_IN_A_LOCAL_SESSION.to_owned() };
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message += &format!(": {cause}");
            source = cause.source();
        }
        Self { code, message }
    }
}

/// Failures to write our own output; others are not converted.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(signal(13), ""),
            _ => Self::new(OUTPUT, format!("cannot write the output: {error}")),
        }
    }
}
