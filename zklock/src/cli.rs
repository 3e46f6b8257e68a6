//! Owns the command line: subcommands, options, and what their values may be.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::exit;

const CODES: &str = "Exit codes of zklock's own:
    1  busy, timed out, no such node, not confirmed, or the doctor has found something to fix
   64  the command line cannot be used
   69  no server answered
   70  a request was refused, or another error
   74  the output cannot be written
   75  the lock was lost
   77  the ACLs or the credentials do not allow it
   78  the path is used both as a lock and as a semaphore
  126  the command cannot be executed
  127  the command was not found
128+N  signal N has ended the command, or zklock while it waited";

/// flock(1) for a fleet: runs a command while it holds a lock on ZooKeeper.
#[derive(Debug, Parser)]
#[command(name = "zklock", version, after_help = CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    Run(Run),
    List(List),
    Wait(Wait),
    Break(Break),
    Revoke(Revoke),
    Watch(Watch),
    Doctor(Doctor),
    /// Prints a script of completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes the manual pages, one a subcommand, into a directory.
    Man {
        /// The directory; it must exist.
        directory: PathBuf,
    },
}

/// Where the servers are, and who we are to them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Connection {
    /// The servers, as zk1:2181,zk2:2181,zk3:2181/chroot.
    #[arg(long, env = "ZK_HOSTS", value_name = "HOSTS")]
    pub(crate) hosts: String,
    /// The node below which all paths begin, instead of after the hosts.
    #[arg(long, env = "ZK_CHROOT", value_name = "PATH", value_parser = chroot)]
    pub(crate) chroot: Option<String>,
    /// The session timeout: after a crash of the holder, the lock is free that much later.
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = session)]
    pub(crate) session: Duration,
    /// Authenticates, as digest:USER:PASSWORD. Others can read a command line: prefer --auth-file, or the variables of services:
    /// ZK_AUTH, which is USER:PASSWORD without digest:, or ZK_AUTH_FILE, a file with that.
    #[arg(long, value_name = "SCHEME:CREDENTIALS")]
    pub(crate) auth: Vec<String>,
    /// Authenticates with each line of a file, as --auth does.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Authenticates by SASL DIGEST-MD5 with USER:PASSWORD, the first line of a file.
    #[cfg(feature = "sasl-digest-md5")]
    #[arg(long, value_name = "FILE")]
    pub(crate) sasl_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) tls: Tls,
}

/// TLS.
#[cfg(feature = "tls")]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Tls {
    /// Connects over TLS, to servers whose certificates these authorities have signed, in PEM. A host with tcp:// before it is
    /// connected without.
    #[arg(long, env = "ZK_TLS_CA_FILE", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Our certificate, in PEM.
    #[arg(long, env = "ZK_TLS_CERT_FILE", value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of our certificate, in PEM.
    #[arg(long, env = "ZK_TLS_KEY_FILE", value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Runs a command while it holds a lock.
///
/// The command is executed without a shell, and its exit code is returned. If the lock is lost, the command's process group
/// gets SIGTERM before the servers can grant the lock to anybody else, and SIGKILL after the grace time.
///
/// The command finds the lock path in ZK_LOCK_PATH, and the fencing token in ZK_LOCK_TOKEN.
#[derive(Args, Debug)]
#[command(after_help = CODES)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Shared: holds the lock together with other shared holders, as a reader.
    #[arg(short, long, conflicts_with_all = ["exclusive", "slots"])]
    pub(crate) shared: bool,
    /// Exclusive, as a writer among the readers of Curator's read-write lock. The default is exclusive, too, as Curator's
    /// mutex.
    #[arg(short = 'x', long, conflicts_with = "slots")]
    pub(crate) exclusive: bool,
    /// Holds one slot of a semaphore: SLOTS commands may run at once.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Does not wait: exits if the lock is busy.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Waits for SECS at most, all requests included.
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the lock is busy.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NO)]
    pub(crate) busy_code: u8,
    /// The exit code if the lock is lost.
    #[arg(long, value_name = "CODE", default_value_t = exit::LOST)]
    pub(crate) lost_code: u8,
    /// How long the command may go on after SIGTERM when the lock is lost.
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = seconds)]
    pub(crate) grace: Duration,
    /// Keeps the lock for SECS at least, however short the command is: the clocks of a fleet differ.
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) min_hold: Option<Duration>,
    /// Sends the command SIGTERM when somebody asks for the lock with `zklock revoke`.
    #[arg(long)]
    pub(crate) revocable: bool,
    /// What `zklock list` shows of us; host name and process id by default.
    #[arg(long, env = "ZK_IDENTIFIER", value_name = "TEXT")]
    pub(crate) identifier: Option<String>,
    /// Creates nodes that only we may read, change and delete, by the identity with which we authenticate.
    #[arg(long)]
    pub(crate) private: bool,
    /// Reports each step on standard error.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The lock path, as /locks/nightly-report.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// The command and its arguments, after --.
    #[arg(required = true, last = true, action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}

/// Lists the holders and waiters of a lock.
///
/// The holders are at position 0; a waiter at position N has N-1 waiters ahead.
#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Of a semaphore: how many slots it has. Otherwise every slot that is taken counts as held.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Prints an array of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
}

/// Waits until nobody holds a lock or waits for it.
///
/// It joins no queue, so the lock may be taken again at once. With -N it waits until a slot is free.
#[derive(Args, Debug)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Of a semaphore: how many slots it has.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Waits for SECS at most, and exits with 1 then.
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
}

/// Which contender is meant.
#[derive(Args, Debug)]
pub(crate) struct Target {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// The contender, by its node or its token, as `zklock list` shows them.
    pub(crate) node: String,
}

/// Removes one node of a lock, after showing it.
///
/// The lock is free at once, while its holder may still be at work: the holder learns of it a moment later. On a terminal it
/// asks first.
#[derive(Args, Debug)]
pub(crate) struct Break {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Does not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Asks a holder to release a lock.
///
/// It is a request. `zklock run --revocable` passes it on as SIGTERM; a service awaits `revoke_requested()`, or is one of
/// Curator's that is revocable.
#[derive(Args, Debug)]
pub(crate) struct Revoke {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Shows the queue of a lock, live: a table on a terminal, otherwise a line for each change.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Of a semaphore: how many slots it has. Otherwise every slot that is taken counts as held.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
}

/// Checks what would hurt locks: servers, versions, session limits, latencies, containers, ACLs.
///
/// It takes and releases a lock of its own beside PATH. Exits with 1 if there is something to fix.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// A lock path whose ACL and children are checked, too.
    #[arg(value_parser = lock_path)]
    pub(crate) path: Option<String>,
}

fn lock_path(text: &str) -> Result<String, String> {
    match zookeeper_recipes::path::validate(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(zookeeper_recipes::Error::InvalidInput { reason, .. }) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}

/// As services read it: the root, or nothing, is no chroot.
fn chroot(text: &str) -> Result<String, String> {
    match text {
        "" | "/" => Ok(String::new()),
        text => lock_path(text),
    }
}

/// A number of seconds, with decimals.
fn seconds(text: &str) -> Result<Duration, String> {
    // Not everything that is a number to Rust is one here: `inf`, `NaN`, `-1`, `1e9`.
    let well_formed = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = text.parse::<f64>().ok().filter(|_| well_formed);
    let seconds = seconds.ok_or("it should be a number of seconds, such as 2 or 0.5")?;
    // A clock can add a century to its time.
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|seconds| *seconds <= Duration::from_secs(3_153_600_000))
        .ok_or_else(|| "it is too long; a century is the most".to_owned())
}

fn session(text: &str) -> Result<Duration, String> {
    let seconds = seconds(text)?;
    let limits = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);
    if limits.contains(&seconds) { Ok(seconds) } else { Err("it should be from 0.1 s to a day".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seconds_are_plain_numbers() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        for odd in ["", ".", "-1", "inf", "NaN", "1e3", "+1", "1s", "1.2.3", "99999999999"] {
            assert!(seconds(odd).is_err(), "{odd}");
        }
    }
}
