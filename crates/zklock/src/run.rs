//! Owns `zklock run`: a command under a lock.
//!
//! 1. Nothing comes between a loss and the signal to the command, not even a message.
//! 2. The exit code is the command's only if the lock was held to the command's end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};
use zookeeper_recipes::{HoldMonitor, HoldState, LockGuard, Loss};

use crate::acquire::Held;
use crate::cli::Run;
use crate::command::{Command, code};
use crate::exit::{self, Failure};
use crate::locked::{locked, lost, release, report_suspensions};
use crate::messages::report;
use crate::nested;
use crate::program;
use crate::signals::Signals;
use crate::stall::follow;

/// How the command came to its end.
enum End {
    Exited(ExitStatus),
    Lost(Loss, ExitStatus),
}

pub(crate) async fn run(run: &Run) -> Result<u8, Failure> {
    if let Some(most) = run.jitter {
        let mut signals = Signals::catch()?;
        tokio::select! {
            biased;
            number = signals.next() => return Ok(exit::signal(number)),
            () = sleep(random(most)) => {}
        }
    }
    locked(&run.connection, &run.wanted, run.stall, async |held, signals| command_under(run, held, signals).await)
        .await
}

/// Runs the command, and releases the lock.
async fn command_under(run: &Run, Held { guard, monitor }: Held, signals: &mut Signals) -> Result<u8, Failure> {
    let (granted, wanted) = (Instant::now(), &run.wanted);
    if let HoldState::Lost(loss) = guard.state() {
        return Ok(lost(wanted, loss, "the command was not started"));
    }
    let environment = nested::environment(&wanted.path, guard.fencing_token());
    let command = Command::start(&executed(run), &environment);
    let mut command = command.map_err(|error| program::failure(&run.command, &error))?;
    let end = supervise(run, (&*guard, monitor), &mut command, signals).await;
    let end = end.map_err(|error| Failure::new(exit::OTHER, format!("cannot wait for the command: {error}")))?;
    let status = match (end, guard.state()) {
        (End::Exited(status), HoldState::Lost(loss)) | (End::Lost(loss, status), _) => {
            return Ok(lost(wanted, loss, has_ended(status)));
        }
        (End::Exited(status), _) => status,
    };
    if wanted.verbose {
        report(has_ended(status));
    }
    if command.has_left_some() {
        report("the command has left processes behind; they go on without the lock");
    }
    command.leave_terminal(status);
    // A signal asks for the end, also one that the command has got. The command's exit code is what it was.
    if let Some(least) = run.min_hold.filter(|_| !signals.ask_for_the_end()) {
        let revoked = guard.revoke_requested();
        tokio::select! {
            biased;
            _ = signals.next() => {}
            _ = guard.lost() => {}
            () = revoked, if run.revocable => {}
            () = sleep_until((granted + least).into()) => {}
        }
    }
    let released = tokio::select! {
        biased;
        released = release(wanted, guard) => released,
        _ = signals.next() => Ok(()),
    };
    Ok(match released {
        Ok(()) => code(status),
        Err(loss) => lost(wanted, loss, has_ended(status)),
    })
}

/// A time of at most `most`.
fn random(most: Duration) -> Duration {
    // The keys of each hash map in the standard library are random.
    let number = RandomState::new().build_hasher().finish();
    most.mul_f64(number as f64 / u64::MAX as f64)
}

/// The command that is executed.
fn executed(run: &Run) -> Vec<std::ffi::OsString> {
    #[cfg(target_os = "linux")]
    if run.die_with_parent {
        return crate::die_with_parent::wrap(&run.command, run.grace);
    }
    run.command.clone()
}

fn has_ended(status: ExitStatus) -> String {
    format!("the command has ended: {status}")
}

/// Waits for the end of the command, or for the loss of the lock, which ends it.
async fn supervise(
    run: &Run,
    (guard, monitor): (&dyn LockGuard, HoldMonitor),
    command: &mut Command,
    signals: &mut Signals,
) -> io::Result<End> {
    let (mut lost, mut revoked, mut is_revoked) = (guard.lost(), guard.revoke_requested(), false);
    let path = &run.wanted.path;
    let (suspensions, moves) = (report_suspensions(&run.wanted, monitor.clone()), follow(run, &monitor));
    tokio::pin!(suspensions, moves);
    if run.wanted.verbose {
        report(format_args!("the command is process {}", command.id()));
    }
    loop {
        let number = tokio::select! {
            biased;
            loss = &mut lost => {
                command.terminate();
                report(format_args!("{path}: lock was lost: {loss}; the command gets SIGTERM"));
                let status = command.stop(run.grace).await?;
                return Ok(End::Lost(loss, status));
            }
            number = signals.next() => number,
            () = &mut revoked, if !is_revoked => {
                is_revoked = true;
                let does = if run.revocable { "the command gets SIGTERM" } else { "it goes on; see --revocable" };
                report(format_args!("a release of {path} is requested; {does}"));
                if !run.revocable {
                    continue;
                }
                rustix::process::Signal::TERM.as_raw()
            }
            status = command.end() => return Ok(End::Exited(status?)),
            never = &mut suspensions => match never {},
            never = &mut moves => match never {},
        };
        command.signal(number);
    }
}
