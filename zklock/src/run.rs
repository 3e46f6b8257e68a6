//! Owns `zklock run`: a command under a lock, from the first request to the last.
//!
//! 1. Nothing comes between a loss and the signal to the command, not even a message.
//! 2. The exit code is the command's only if the lock was held to the command's end.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};
use zookeeper_recipes::zookeeper_client::{Acls, SessionState};
use zookeeper_recipes::{Ended, Error, HoldMonitor, HoldState, LockGuard, Loss, Options, Session};

use crate::acquire::{Kind, Patience, acquire, refuse_mixture};
use crate::cli::Run;
use crate::command::{Command, code};
use crate::connect::connect;
use crate::exit::{self, CANNOT_EXECUTE, Failure, NOT_FOUND};
use crate::messages::report;
use crate::progress;
use crate::signals::Signals;

/// How long the end waits for servers that have been away for a while.
const FAREWELL: Duration = Duration::from_secs(1);

/// How the command came to its end.
enum End {
    Exited(ExitStatus),
    Lost(Loss, ExitStatus),
}

pub(crate) async fn run(run: &Run) -> Result<u8, Failure> {
    let began = Instant::now();
    let mut signals = Signals::catch()?;
    let limit = run.wait.filter(|limit| !limit.is_zero());
    let session = tokio::select! {
        biased;
        number = signals.next() => return Ok(exit::signal(number)),
        connected = connect(&run.connection, limit) => connected?,
    };
    let mut options = Options::new();
    if let Some(identifier) = &run.identifier {
        options = options.with_identifier(identifier);
    }
    if run.private {
        options = options.with_acls(Acls::creator_all());
    }
    let locks = session.clone().with_lock_options(options);
    let done = under_lock(run, &locks, began, &mut signals).await;
    // The nodes are gone when the session has ended: at the latest now, however this has ended.
    let is_connected = session.state() == SessionState::SyncConnected;
    tokio::select! {
        biased;
        // A second signal is from somebody who does not want to wait.
        _ = signals.next() => {}
        closed = session.close() => if let Err(error) = closed {
            report(format_args!("the session could not be closed, and ends by itself: {error}"));
        },
        () = sleep(FAREWELL), if !is_connected => {}
    }
    done
}

/// Acquires the lock, runs the command, and releases.
async fn under_lock(run: &Run, session: &Session, began: Instant, signals: &mut Signals) -> Result<u8, Failure> {
    let kind = match run.slots {
        Some(slots) => Kind::Slot(slots),
        None if run.shared => Kind::Reader,
        None if run.exclusive => Kind::Writer,
        None => Kind::Mutex,
    };
    if let Kind::Slot(_) = kind {
        // It would create its own nodes in a path of others before it finds them.
        refuse_mixture(session, &run.path, kind).await?;
    }
    let patience = match run.wait {
        None if run.nonblock => Patience::None,
        None => Patience::Endless,
        // What is left of a limit that has just passed is enough for a look.
        Some(limit) => Patience::For(limit.saturating_sub(began.elapsed())),
    };
    let acquired = tokio::select! {
        biased;
        number = signals.next() => return Ok(exit::signal(number)),
        acquired = acquire(session, &run.path, kind, patience) => acquired?,
        never = progress::show(session, &run.path, kind, run.verbose) => match never {},
    };
    let Some(guard) = acquired else {
        report(format_args!("{} is busy", run.path));
        return Ok(run.busy_code);
    };
    let granted = Instant::now();
    refuse_mixture(session, &run.path, kind).await?;
    if run.verbose {
        let (token, waited) = (guard.fencing_token(), began.elapsed());
        report(format_args!("{} is ours after {waited:.1?}, with token {token}", run.path));
    }
    if let HoldState::Lost(loss) = guard.state() {
        return Ok(lost(run, loss, None));
    }
    let environment = [("ZK_LOCK_PATH", run.path.clone()), ("ZK_LOCK_TOKEN", guard.fencing_token().to_string())];
    let mut command = Command::start(&run.command, &environment).map_err(|error| cannot_start(run, &error))?;
    let end = supervise(run, &*guard, &mut command, signals).await;
    let end = end.map_err(|error| Failure::new(exit::OTHER, format!("cannot wait for the command: {error}")))?;
    let status = match (end, guard.state()) {
        (End::Exited(status), HoldState::Lost(loss)) | (End::Lost(loss, status), _) => {
            return Ok(lost(run, loss, Some(status)));
        }
        (End::Exited(status), _) => status,
    };
    if run.verbose {
        report(format_args!("the command has ended: {status}"));
    }
    if command.has_left_some() {
        report("the command has left processes behind; they go on without the lock");
    }
    // It takes the terminal back.
    drop(command);
    // A signal asks for the end, also one that the command has got.
    let least = run.min_hold.filter(|_| !signals.have_come());
    let still_to_hold = least.map(|least| tokio::time::Instant::from_std(granted + least));
    tokio::select! {
        biased;
        number = signals.next() => return Ok(exit::signal(number)),
        _ = guard.lost() => {}
        () = async { if let Some(end) = still_to_hold { sleep_until(end).await } } => {}
    }
    release(run, guard, status).await
}

/// Waits for the end of the command, or for the loss of the lock, which ends it.
async fn supervise(
    run: &Run,
    guard: &dyn LockGuard,
    command: &mut Command,
    signals: &mut Signals,
) -> io::Result<End> {
    let (mut lost, mut revoked) = (guard.lost(), guard.revoke_requested());
    let mut is_revoked = false;
    let suspensions = report_suspensions(guard.monitor(), run.verbose);
    tokio::pin!(suspensions);
    if run.verbose {
        report(format_args!("the command is process {}", command.id()));
    }
    loop {
        let number = tokio::select! {
            biased;
            loss = &mut lost => {
                let status = command.stop(run.grace).await?;
                return Ok(End::Lost(loss, status));
            }
            number = signals.next() => number,
            () = &mut revoked, if !is_revoked => {
                is_revoked = true;
                let does = if run.revocable { "the command gets SIGTERM" } else { "it goes on; see --revocable" };
                report(format_args!("somebody asks for {}; {does}", run.path));
                if !run.revocable {
                    continue;
                }
                rustix::process::Signal::TERM.as_raw()
            }
            status = command.end() => return Ok(End::Exited(status?)),
            never = &mut suspensions => match never {},
        };
        command.signal(number);
    }
}

/// Reports when the connection is lost and comes back.
async fn report_suspensions(hold: HoldMonitor, verbose: bool) -> Infallible {
    if !verbose {
        return std::future::pending().await;
    }
    let mut before = hold.state();
    loop {
        sleep(Duration::from_millis(200)).await;
        let state = hold.state();
        if state != before && matches!(state, HoldState::Held | HoldState::Suspended) {
            let left = hold.valid_for();
            report(format_args!("{} is {state}, and ours for {left:.1?} more without an answer", hold.path()));
        }
        before = state;
    }
}

/// Releases, and returns the command's exit code if the lock was held to the command's end.
async fn release(run: &Run, guard: Box<dyn LockGuard>, status: ExitStatus) -> Result<u8, Failure> {
    match guard.release().await {
        Ok(()) => Ok(code(status)),
        // Somebody deleted the node, nobody knows when: maybe under the command.
        Err(Error::Lost(Loss::Deleted)) => Ok(lost(run, Loss::Deleted, Some(status))),
        // It was ours when the command ended.
        Err(Error::Lost(_)) => {
            report(format_args!(
                "no server has confirmed the release; {} is free when the session expires",
                run.path
            ));
            Ok(code(status))
        }
        Err(error) => {
            let failure = Failure::from(error);
            report(format_args!("{} stays locked until the session has ended: {failure}", run.path));
            Ok(code(status))
        }
    }
}

fn lost(run: &Run, loss: Loss, ended: Option<ExitStatus>) -> u8 {
    let what = match ended {
        Some(status) => format!("the command has ended: {status}"),
        None => "the command was not started".to_owned(),
    };
    report(format_args!("{}: {}; {what}", run.path, Ended::Lost(loss)));
    run.lost_code
}

fn cannot_start(run: &Run, error: &io::Error) -> Failure {
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    let program = run.command.first().map(|program| program.display().to_string()).unwrap_or_default();
    Failure::new(code, format!("cannot execute {program:?}: {error}"))
}
