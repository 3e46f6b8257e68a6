//! Owns `zklock run`: a command under a lock, from the first request to the last.
//!
//! 1. Nothing comes between a loss and the signal to the command, not even a message.
//! 2. The exit code is the command's only if the lock was held to the command's end.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout};
use zookeeper_recipes::zookeeper_client::Acls;
use zookeeper_recipes::{Ended, Error, HoldMonitor, HoldState, LockGuard, Loss, Options, Session};

use crate::acquire::{Kind, Patience, acquire, refuse_mixture};
use crate::cli::Run;
use crate::command::{Command, code};
use crate::connect::{connect, has_identity};
use crate::exit::{self, CANNOT_EXECUTE, Failure, NO_SERVER, NOT_FOUND, USAGE};
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
    if run.private && !has_identity(&run.connection)? {
        return Err(Failure::new(
            USAGE,
            "--private needs an identity: give --auth-file, --sasl-file or --tls-cert, too",
        ));
    }
    let mut signals = Signals::catch()?;
    let limit = run.wait.filter(|limit| !limit.is_zero());
    let session = tokio::select! {
        biased;
        number = signals.next() => return Ok(exit::signal(number)),
        connected = connect(&run.connection, limit) => connected?,
    };
    let mut options = Options::new();
    if let Some(identifier) = run.identifier.as_ref().filter(|text| !text.is_empty()) {
        options = options.with_identifier(identifier);
    }
    if run.private {
        options = options.with_acls(Acls::creator_all());
    }
    let locks = session.clone().with_lock_options(options);
    let done = under_lock(run, &locks, began, &mut signals).await;
    // The nodes are gone when the session has ended: at the latest now, however this has ended.
    let is_connected = session.state().is_connected();
    tokio::select! {
        biased;
        closed = session.close() => if let Err(error) = closed {
            report(format_args!("the session could not be closed, and ends by itself: {error}"));
        },
        () = sleep(FAREWELL), if !is_connected => {}
        // Another signal is from somebody who does not want to wait. Those that come together are one.
        () = async { sleep(FAREWELL).await; signals.next().await; } => {}
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
    let acquired = tokio::select! {
        biased;
        number = signals.next() => return Ok(exit::signal(number)),
        acquired = take(run, session, kind, began) => acquired?,
        never = progress::show(session, &run.path, kind, run.verbose) => match never {},
    };
    let Some((guard, granted)) = acquired else {
        report(format_args!("{} is busy", run.path));
        return Ok(run.busy_code);
    };
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
    Ok(tokio::select! {
        biased;
        code = release(run, guard, status) => code,
        _ = signals.next() => code(status),
    })
}

/// Waits for the lock, and returns when it was granted; `None` if it is busy.
async fn take(
    run: &Run,
    session: &Session,
    kind: Kind,
    began: Instant,
) -> Result<Option<(Box<dyn LockGuard>, Instant)>, Failure> {
    let left = || run.wait.map(|limit| limit.saturating_sub(began.elapsed()));
    // A semaphore would create its own nodes in a path of others before it finds them, and a lock would be in the way of
    // a semaphore for a moment.
    let look = refuse_mixture(session, &run.path, kind);
    match left() {
        Some(limit) if !limit.is_zero() => timeout(limit, look).await.map_err(|_| {
            Failure::new(
                NO_SERVER,
                format!("no answer about {} within {:.1?}", run.path, run.wait.unwrap_or_default()),
            )
        })??,
        _ => look.await?,
    }
    let patience = match left() {
        None if run.nonblock => Patience::None,
        None => Patience::Endless,
        // What is left of a limit that has just passed is enough for a look.
        Some(limit) => Patience::For(limit),
    };
    let Some(guard) = acquire(session, &run.path, kind, patience).await? else {
        return Ok(None);
    };
    let granted = Instant::now();
    refuse_mixture(session, &run.path, kind).await?;
    Ok(Some((guard, granted)))
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
                command.terminate();
                report(format_args!("{}: {}; the command gets SIGTERM", run.path, Ended::Lost(loss)));
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
async fn release(run: &Run, guard: Box<dyn LockGuard>, status: ExitStatus) -> u8 {
    match guard.release().await {
        Ok(()) => code(status),
        // Somebody deleted the node, nobody knows when: maybe under the command.
        Err(Error::Lost(Loss::Deleted)) => lost(run, Loss::Deleted, Some(status)),
        // It was ours when the command ended.
        Err(Error::Lost(_)) => {
            report(format_args!(
                "no server has confirmed the release; {} is free when the session expires",
                run.path
            ));
            code(status)
        }
        Err(error) => {
            let failure = Failure::from(error);
            report(format_args!("{} stays locked until the session has ended: {failure}", run.path));
            code(status)
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
