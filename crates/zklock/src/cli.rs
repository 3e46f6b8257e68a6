//! Owns the command line: subcommands and their options.

mod values;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use zookeeper_recipes::FencingToken;

use crate::cli::values::{chroot, lock_path, parent, session, session_ms, shard, time, truth};
use crate::doctor::ids::IDS;
use crate::exit;
use crate::queue::plain;

const CODES: &str = "Exit codes of zklock's own:
    1  busy, timed out, no such node, not confirmed, or the doctor has found something to fix
   64  the command line cannot be used, the chroot does not exist, or zklock would wait for itself
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

impl Cli {
    /// Parses the command line of this process. As for services, an empty variable is not set.
    pub(crate) fn of_process() -> Result<Self, clap::Error> {
        let mut command = without_empty_variables(Self::command());
        let parsed = command.try_get_matches_from_mut(env::args_os());
        let parsed = parsed
            .and_then(|matches| Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
        parsed.map_err(advised)
    }
}

fn without_empty_variables(command: Command) -> Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| if is_empty(&arg) { arg.env(None::<&str>) } else { arg });
    command.mut_subcommands(without_empty_variables)
}

/// The error with a hint for users of flock(1), and without long values.
fn advised(mut error: clap::Error) -> clap::Error {
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    if let Some(value) = text(&error, ContextKind::InvalidValue).filter(|value| value.chars().count() > LONGEST) {
        error.insert(ContextKind::InvalidValue, ContextValue::String(plain(&value, LONGEST)));
    }
    let (argument, subcommand) =
        (text(&error, ContextKind::InvalidArg), text(&error, ContextKind::InvalidSubcommand));
    let hint = match error.kind() {
        ErrorKind::InvalidSubcommand if subcommand.as_ref().is_some_and(|given| given.starts_with('/')) => {
            "`zklock run PATH COMMAND...` takes a lock as flock(1) does"
        }
        ErrorKind::ArgumentConflict if subcommand.is_some() => {
            "`zklock shards PATH` shows a group. A change (drain, undrain, pin, unpin) comes first, and its options after it"
        }
        ErrorKind::UnknownArgument if matches!(argument.as_deref(), Some("-c" | "--command")) => {
            "zklock executes the command itself: run PATH COMMAND ARG..., or run PATH sh -c '...'"
        }
        ErrorKind::MissingRequiredArgument if argument.is_some_and(|missing| missing.contains("<COMMAND>")) => {
            "`zklock hold PATH` holds a lock without a command"
        }
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.to_owned().into()]));
    error
}

/// The longest value that an error shows.
const LONGEST: usize = 100;

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    Run(Run),
    Hold(Hold),
    List(List),
    Ls(Ls),
    Wait(Wait),
    Break(Break),
    Revoke(Revoke),
    Watch(Watch),
    Count(Count),
    Shards(Shards),
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
    #[cfg(target_os = "linux")]
    DieWith(DieWith),
}

/// Where the servers are, and who we are to them.
///
/// It is the last part of each subcommand, because a heading is that of all later options.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Connection {
    /// The servers, as zk1:2181,zk2:2181,zk3:2181/chroot. Required, unless ZK_HOSTS is set.
    #[arg(long, env = "ZK_HOSTS", value_name = "HOSTS")]
    pub(crate) hosts: Option<String>,
    /// The node below which all paths begin, instead of after the hosts.
    #[arg(long, env = "ZK_CHROOT", value_name = "PATH", value_parser = chroot)]
    pub(crate) chroot: Option<String>,
    /// Creates a missing chroot. If you authenticate, only you have access to it.
    #[arg(long, env = "ZK_CREATE_CHROOT", value_parser = truth)]
    pub(crate) create_chroot: bool,
    /// The session timeout: after a crash of the holder, the lock is free that much later [default: 10s, or the milliseconds in
    /// ZK_SESSION_TIMEOUT_MS].
    #[arg(long, value_name = "TIME", value_parser = session)]
    session: Option<Duration>,
    /// The same for services.
    #[arg(long, hide = true, env = "ZK_SESSION_TIMEOUT_MS", value_name = "MS", value_parser = session_ms)]
    session_timeout_ms: Option<Duration>,
    /// Authenticates. Others can read a command line: prefer --auth-file, or the variables ZK_AUTH and ZK_AUTH_FILE, which
    /// have the same form.
    #[arg(long, value_name = "USER:PASSWORD")]
    pub(crate) auth: Vec<String>,
    /// Authenticates with USER:PASSWORD, the only line of a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
    /// The scheme of the credentials in --auth, --auth-file, ZK_AUTH and ZK_AUTH_FILE. With another scheme they may have
    /// another form.
    #[arg(long, value_name = "SCHEME", default_value = DIGEST)]
    pub(crate) auth_scheme: String,
    /// Authenticates by SASL DIGEST-MD5 with USER:PASSWORD, the first line of a file.
    #[cfg(feature = "sasl-digest-md5")]
    #[arg(long, value_name = "FILE")]
    pub(crate) sasl_file: Option<PathBuf>,
    /// The epoch of fencing tokens: raise it after the data of the servers was wiped or restored, as docs/fencing.md has it.
    #[arg(long, env = "ZK_TOKEN_EPOCH", value_name = "0-255", help_heading = None::<&str>)]
    pub(crate) token_epoch: Option<u8>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    pub(crate) tls: Tls,
}

/// The scheme of users with passwords.
pub(crate) const DIGEST: &str = "digest";

impl Connection {
    /// The session timeout to ask for.
    pub(crate) fn session(&self) -> Duration {
        self.session.or(self.session_timeout_ms).unwrap_or(Duration::from_secs(10))
    }
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

/// A lock to acquire, and how.
#[derive(Args, Debug)]
pub(crate) struct Wanted {
    /// The lock path, as /locks/nightly-report.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// Shared: holds the lock together with other shared holders, as a reader.
    #[arg(short, long, conflicts_with_all = ["exclusive", "slots"])]
    pub(crate) shared: bool,
    /// Exclusive, as a writer of Curator's read-write lock. Without -s, -x and -N the lock is exclusive as Curator's mutex.
    #[arg(short = 'x', long, conflicts_with = "slots")]
    pub(crate) exclusive: bool,
    /// One slot of a semaphore: SLOTS contenders may hold it at once.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Does not wait: exits if the lock is busy.
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Waits for TIME at most, all requests included. Times are as 2, 500ms, 30s, 5m or 2h; without a unit, in seconds.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the lock is busy.
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NO)]
    pub(crate) busy_code: u8,
    /// The exit code if the lock is lost.
    #[arg(long, value_name = "CODE", default_value_t = exit::LOST)]
    pub(crate) lost_code: u8,
    /// Our name in `zklock list`; host name, process id and a random part by default.
    #[arg(long, env = "ZK_IDENTIFIER", value_name = "TEXT")]
    pub(crate) identifier: Option<String>,
    /// A name that one process at a time has. If zklock was killed, it takes the lock of its last life at once, and not after its
    /// session timeout. Two processes of one NAME take each other's lock away.
    #[arg(long, value_name = "NAME")]
    pub(crate) unique_name: Option<String>,
    /// Creates nodes that only we may read, change and delete, by the identity with which we authenticate.
    #[arg(long)]
    pub(crate) private: bool,
    /// Reports each step on standard error.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Runs a command while it holds a lock.
///
/// The command is executed without a shell, and its exit code is returned. If the lock is lost, the command's process group
/// gets SIGTERM before the servers can grant the lock to another contender, and SIGKILL after the grace time.
///
/// The command finds the lock path in ZK_LOCK_PATH, and the fencing token in ZK_LOCK_TOKEN. ZK_LOCKS has both for all locks that
/// it runs under, a line each.
#[derive(Args, Debug)]
#[command(after_help = CODES, override_usage = "zklock run [OPTIONS] PATH [--] COMMAND [ARG]...")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Waits for a random time of at most TIME before it asks for the lock: cron starts it on all machines at once.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) jitter: Option<Duration>,
    /// How long the command may go on after SIGTERM when the lock is lost.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) grace: Duration,
    /// Keeps the lock for TIME at least, however short the command is: the clocks of a fleet differ.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) min_hold: Option<Duration>,
    /// The command loses the lock when the modification time of the --stall-file has not changed for TIME: it hangs, though its
    /// process lives.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "stall_file")]
    pub(crate) stall: Option<Duration>,
    /// A file that the command writes or touches whenever its work has moved, such as its log.
    #[arg(long, value_name = "FILE", requires = "stall")]
    pub(crate) stall_file: Option<PathBuf>,
    /// Sends the command SIGTERM when its lock is requested with `zklock revoke`.
    #[arg(long)]
    pub(crate) revocable: bool,
    /// Ends the command and all its descendants if zklock is killed: SIGTERM, and SIGKILL after the grace time. Processes of
    /// another user, as those of sudo, get no signal.
    #[cfg(target_os = "linux")]
    #[arg(long)]
    pub(crate) die_with_parent: bool,
    /// The command and its arguments. All that follows it is for the command, options included.
    #[arg(required = true, trailing_var_arg = true, action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Holds a lock without a command, until standard input ends or a signal comes.
///
/// When the lock is granted, it prints a line with the fencing token. Then it reads standard input to its end, and releases the
/// lock. A script that runs it as a coprocess holds the lock until the script closes the pipe or ends, even by SIGKILL. If
/// standard input is /dev/null, as in the background of a script, only a signal ends it.
///
/// It exits with 0 if the lock was held to the end. It exits at once, with another code, if the lock is lost. Unlike `zklock run`,
/// it cannot stop the work under the lock.
#[derive(Args, Debug)]
#[command(after_help = CODES)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Lists the holders and waiters of a lock.
///
/// The holders are at position 0; a waiter at position N has N-1 waiters ahead. On a terminal, columns that do not fit are left
/// out.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// Of a semaphore: how many slots it has. Otherwise every slot that is taken counts as held.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Prints an array of JSON; docs/zklock.md has its form.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Shows a number that services share, or sets it: how many permits a semaphore has, or how many numbers there are.
///
/// Curator's SharedCount reads and writes the same number.
#[derive(Args, Debug)]
pub(crate) struct Count {
    /// The node with the number.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// The new number.
    #[arg(value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    pub(crate) number: Option<u32>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Lists all locks below a path that somebody holds or waits for.
///
/// FOR is how long ago the first holder joined its queue, and LONGEST how long the first waiter has waited. On a terminal, columns
/// that do not fit are left out.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// The node below which the locks are, at any depth, or / for all.
    #[arg(value_parser = parent)]
    pub(crate) parent: String,
    /// Shows only locks with TEXT in the path, or in the identifier of a holder or waiter.
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// In which order: the longest, or the most, comes first.
    #[arg(long, value_name = "BY", value_enum, default_value_t = Order::Path)]
    pub(crate) sort: Order,
    /// Prints an array of JSON; docs/zklock.md has its form.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// The order of `zklock ls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// By the lock path.
    Path,
    /// By the longest wait.
    Wait,
    /// By the time since the holder joined the queue.
    Held,
    /// By the number of waiters.
    Waiters,
}

/// Waits until nobody holds a lock or waits for it.
///
/// It joins no queue, so the lock may be taken again at once. With -N it waits until a slot is free.
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// Of a semaphore: how many slots it has.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    /// Waits for TIME at most, and exits with 1 then.
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// A contender.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// The contender, by its node or its token, as `zklock list` shows them.
    pub(crate) node: String,
}

/// Removes one node of a lock, after showing it.
///
/// The lock is free at once, while its holder may still be at work: the holder learns of it a moment later. It asks first. If
/// standard input is no terminal, it needs --yes.
#[derive(Args, Debug)]
pub(crate) struct Break {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Does not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Asks a holder to release a lock.
///
/// It is a request. `zklock run --revocable` passes it on as SIGTERM; a service awaits `revoke_requested()`, or is one of
/// Curator's that is revocable.
#[derive(Args, Debug)]
pub(crate) struct Revoke {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Shows the queue of a lock, live: a table on a terminal, otherwise a line for each change.
///
/// On a terminal, the key q ends it.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The lock path.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// Of a semaphore: how many slots it has. Otherwise every slot that is taken counts as held.
    #[arg(short = 'N', long, value_name = "SLOTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) slots: Option<u32>,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Shows the shards of a group of zookeeper-groups: which member owns which, what moves, and why a shard has no owner.
///
/// It shows each member, and each shard that is pinned or not owned by its planned owner. The subcommands change the plan node,
/// PATH/plan, which all members follow.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "CHANGE",
    subcommand_help_heading = "Changes",
    disable_help_subcommand = true,
    override_usage = "zklock shards [OPTIONS] PATH\n       zklock shards CHANGE ..."
)]
pub(crate) struct Shards {
    #[command(subcommand)]
    pub(crate) change: Option<ShardsChange>,
    /// The path of the group.
    #[arg(value_parser = lock_path, required = true)]
    pub(crate) path: Option<String>,
    /// Shows each shard.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Prints an object of JSON; docs/zklock.md has its form.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// A change of the plan node of a group of shards.
#[derive(Debug, Subcommand)]
pub(crate) enum ShardsChange {
    /// Gives a member no shards: those that it has move to the others, and it stays in the group.
    Drain(OfMember),
    /// Gives a drained member shards again.
    Undrain(OfMember),
    /// Plans a shard for a member. While the member is not in the group, or is drained, the pin does not count.
    Pin(Pin),
    /// Removes the pin of a shard.
    Unpin(Unpin),
}

/// A member of a group of shards.
#[derive(Args, Debug)]
pub(crate) struct OfMember {
    /// The path of the group.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// The name of the member.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) end: EndOfChange,
}

/// A shard, and the member that should own it.
#[derive(Args, Debug)]
pub(crate) struct Pin {
    /// The path of the group.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// The number of the shard, from 0 on.
    #[arg(value_parser = shard)]
    pub(crate) shard: u32,
    /// The name of the member.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) end: EndOfChange,
}

/// A shard.
#[derive(Args, Debug)]
pub(crate) struct Unpin {
    /// The path of the group.
    #[arg(value_parser = lock_path)]
    pub(crate) path: String,
    /// The number of the shard, from 0 on.
    #[arg(value_parser = shard)]
    pub(crate) shard: u32,
    #[command(flatten)]
    pub(crate) end: EndOfChange,
}

/// The last options of each change.
#[derive(Args, Debug)]
pub(crate) struct EndOfChange {
    /// Prints an object of JSON; docs/zklock.md has its form.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Checks what would hurt locks: servers, versions, session limits, latencies, containers, ACLs.
///
/// It takes and releases a lock of its own beside PATH. Exits with 1 if there is something to fix, and with 69 if no server
/// gives a session. Each finding ends with its id in brackets.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// A lock path whose ACL and children are checked as well.
    #[arg(value_parser = lock_path)]
    pub(crate) path: Option<String>,
    /// The largest fencing token that a store has seen. Reports whether the tokens of the servers have fallen below it.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<FencingToken>,
    /// Leaves out the findings with this id. It may be given several times.
    #[arg(long, value_name = "ID", hide_possible_values = true, value_parser = PossibleValuesParser::new(IDS))]
    pub(crate) ignore: Vec<String>,
    /// Prints an object of JSON; docs/zklock.md has its form.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Executes a command that gets SIGTERM when its parent ends. Used by `zklock run --die-with-parent`.
#[cfg(target_os = "linux")]
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct DieWith {
    /// Guards the command and its descendants, which get this time after SIGTERM.
    #[arg(long, value_parser = time)]
    pub(crate) guard: Option<Duration>,
    /// The process id of the parent.
    pub(crate) parent: i32,
    /// The command and its arguments.
    #[arg(required = true, last = true, action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
