//! Owns `--die-with-parent`: the command and all its descendants end when zklock is killed.
//!
//! 1. Only a process itself can ask for a signal when its parent dies, and the request survives an exec. So zklock starts itself
//!    once more, as a guard in the process group of the command. The guard asks for the signal and starts the command, which
//!    asks too, in case the guard is killed.
//! 2. The guard is a subreaper: orphaned descendants become its children, also those in other groups and sessions. So all of them
//!    are found by their parents.
//! 3. The signal comes when the thread ends that started the process. That is the main thread, which ends with zklock.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use tokio::time::{Instant, sleep};

use crate::cli::DieWith;
use crate::exit::{self, CANNOT_EXECUTE, Failure};
use crate::messages::report;
use crate::program;
use crate::signals::{Signals, catch};

/// Lasts when the file of zklock is replaced by another version.
const OURSELVES: &str = "/proc/self/exe";

/// How often descendants that have to end are looked for.
const LOOK: Duration = Duration::from_millis(20);

/// How long after SIGKILL the guard gives up on descendants, which may belong to another user.
const PATIENCE: Duration = Duration::from_secs(1);

/// Wraps a command in a guard. `grace`: how long its descendants may take to end after SIGTERM.
pub(crate) fn wrap(command: &[OsString], grace: Duration) -> Vec<OsString> {
    let grace = format!("--guard={}ms", grace.as_millis());
    die_with(process::id(), &[grace.as_str()], command)
}

fn die_with(parent: u32, options: &[&str], command: &[OsString]) -> Vec<OsString> {
    let parent = parent.to_string();
    let ourselves = [&[OURSELVES, "die-with"], options, &[&parent, "--"]].concat();
    ourselves.iter().map(OsString::from).chain(command.iter().cloned()).collect()
}

/// Executes the command in place of this process, or guards it. Returns the exit code of the command.
pub(crate) async fn execute(given: &DieWith) -> Result<u8, Failure> {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return Err(Failure::new(CANNOT_EXECUTE, format!("--die-with-parent does not work here: {error}")));
    }
    if is_orphan(given) {
        return Err(ended());
    }
    if let Some(grace) = given.guard {
        return guard(given, grace).await;
    }
    let Err(error) = program::execute(&given.command, |mut command| Err::<Infallible, _>(command.exec()));
    Err(program::failure(&given.command, &error))
}

/// Whether the parent has ended.
fn is_orphan(given: &DieWith) -> bool {
    getppid() != Pid::from_raw(given.parent)
}

/// The exit code of a process that SIGTERM has ended.
fn ended() -> Failure {
    Failure::new(exit::signal(Signal::TERM.as_raw()), "")
}

/// Runs the command to its end, or ends it and all its descendants when the parent does.
async fn guard(given: &DieWith, grace: Duration) -> Result<u8, Failure> {
    let cannot = |error| Failure::new(CANNOT_EXECUTE, format!("--die-with-parent does not work here: {error}"));
    set_child_subreaper(Some(getpid())).map_err(|error| cannot(error.into()))?;
    let mut changes = catch(Signal::CHILD)?;
    let wrapped = die_with(process::id(), &[], &given.command);
    let (program, arguments) = wrapped.split_first().ok_or_else(|| cannot(std::io::ErrorKind::NotFound.into()))?;
    let child = process::Command::new(program).args(arguments).spawn().map_err(cannot)?.id();
    // The whole group gets signals, and the guard outlives the command. A signal before this line ends the guard, and so the
    // command: if the guard caught it before there is a command, nobody would end.
    let mut signals = Signals::catch()?;
    loop {
        while let Ok(Some((id, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if id.as_raw_nonzero().get().cast_unsigned() != child {
                continue;
            }
            match status.stopping_signal().and_then(Signal::from_named_raw) {
                // So that zklock learns of it.
                Some(signal) => _ = kill_process(getpid(), signal),
                None => return Ok(code(status)),
            }
        }
        tokio::select! {
            _ = changes.recv() => {}
            _ = signals.next() => if is_orphan(given) {
                end_all(grace).await;
                return Err(ended());
            },
        }
    }
}

fn code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(u8::MAX),
        (None, Some(number)) => exit::signal(number),
        (None, None) => exit::OTHER,
    }
}

/// Ends all descendants: with SIGTERM, and with SIGKILL after the grace time.
async fn end_all(grace: Duration) {
    let deadline = Instant::now() + grace;
    let mut asked = HashSet::new();
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let (left, now) = (descendants(), Instant::now());
        if left.is_empty() {
            return;
        }
        if now > deadline + PATIENCE {
            report(format_args!("{} processes of the command go on, and get no signal from us", left.len()));
            return;
        }
        for &id in &left {
            if now >= deadline {
                _ = kill_process(id, Signal::KILL);
            } else if asked.insert(id) {
                _ = kill_process(id, Signal::TERM);
                // It reaches also what is stopped.
                _ = kill_process(id, Signal::CONT);
            }
        }
        sleep(LOOK).await;
    }
}

/// The processes that descend from this one, and run.
fn descendants() -> HashSet<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| fs::read(process.path().join("stat")).ok());
    let parents: HashMap<_, _> = stats.filter_map(|stat| parent_of(&stat)).collect();
    descend(&parents, getpid())
}

fn descend(parents: &HashMap<Pid, Pid>, root: Pid) -> HashSet<Pid> {
    let descends = |&id: &Pid| {
        let mut at = Some(id);
        // A table that was read while it changed may have a circle.
        for _ in 0..parents.len() {
            at = at.and_then(|at| parents.get(&at).copied());
            if at == Some(root) {
                return true;
            }
        }
        false
    };
    parents.keys().copied().filter(descends).collect()
}

/// A process that runs, and its parent, as /proc/PID/stat has them: `17 (a) b) S PARENT …`.
fn parent_of(stat: &[u8]) -> Option<(Pid, Pid)> {
    let text = |bytes| str::from_utf8(bytes).ok()?.trim().parse().ok().and_then(Pid::from_raw);
    let name = stat.iter().position(|&byte| byte == b'(')?;
    let after = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = stat[after..].split(|&byte| byte == b' ').skip(1);
    let state = *fields.next()?.first()?;
    let ids = (text(&stat[..name])?, text(fields.next()?)?);
    (!matches!(state, b'Z' | b'X')).then_some(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_by_their_parents() {
        let id = |number| Pid::from_raw(number).expect("a process");
        assert_eq!(parent_of(b"17 (a) Z 9 9) S 4 17 0"), Some((id(17), id(4))));
        assert_eq!(parent_of(b"17 (a) Z 4 17 0"), None, "it has ended");
        assert_eq!(parent_of(b"1 (init) S 0 1 0"), None);
        let parents = [(2, 1), (4, 2), (5, 4), (6, 5), (7, 2), (8, 9), (9, 8)];
        let parents = parents.into_iter().map(|(child, parent)| (id(child), id(parent))).collect();
        assert_eq!(descend(&parents, id(4)), HashSet::from([id(5), id(6)]));
    }
}
