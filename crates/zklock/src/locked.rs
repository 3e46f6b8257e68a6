//! Owns the lock of `zklock run` and `zklock hold`, from the first request to the last.

use std::convert::Infallible;
use std::fmt::Display;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use zookeeper_recipes::zookeeper_client::{Acl, Acls, Permission};
use zookeeper_recipes::{Error, HoldMonitor, HoldState, LockGuard, Loss, Options, Session};

use crate::acquire::{Held, Kind, Patience, acquire, refuse_mixture};
use crate::cli::{Connection, Wanted};
use crate::connect::{connect_as, has_identity};
use crate::exit::{self, Failure, NO_SERVER, USAGE};
use crate::messages::report;
use crate::nested::refuse_own;
use crate::progress;
use crate::queue::report_busy;
use crate::signals::Signals;

/// How long the end waits for servers that have been away for a while.
const FAREWELL: Duration = Duration::from_secs(1);

/// Connects, acquires the lock, and calls `work` with it. No node is left afterwards. `stall`: how long the work may stand still.
pub(crate) async fn locked(
    connection: &Connection,
    wanted: &Wanted,
    stall: Option<Duration>,
    work: impl AsyncFnOnce(Held, &mut Signals) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let began = Instant::now();
    let has_identity = has_identity(connection)?;
    if wanted.private && !has_identity {
        return Err(Failure::new(
            USAGE,
            "--private needs an identity: give --auth-file, --sasl-file or --tls-cert",
        ));
    }
    let mut signals = Signals::catch()?;
    signals.catch_stops()?;
    let limit = wanted.wait.filter(|limit| !limit.is_zero());
    let session = tokio::select! {
        biased;
        number = signals.next() => return Ok(exit::signal(number)),
        connected = connect_as(connection, wanted.unique_name.as_deref(), limit) => connected?,
    };
    let mut options = Options::new();
    if let Some(identifier) = wanted.identifier.as_ref().filter(|text| !text.is_empty()) {
        options = options.with_identifier(identifier);
    }
    if wanted.private {
        options = options.with_acls(Acls::creator_all());
    }
    if let Some(limit) = stall {
        options = options.with_stall_limit(limit);
    }
    let locks = session.clone().with_lock_options(options);
    let expects_closed = has_identity && !wanted.private;
    let done = under_lock(wanted, &locks, began, expects_closed, &mut signals, work).await;
    // The nodes are gone when the session has ended: at the latest now, however this has ended.
    let is_connected = session.state().is_connected();
    tokio::select! {
        biased;
        closed = session.close() => if let Err(error) = closed {
            report(format_args!("the session could not be closed, and ends by itself: {error}"));
        },
        () = sleep(FAREWELL), if !is_connected => {}
        // Another signal is from a user who does not want to wait. Those that come together are one.
        () = async { sleep(FAREWELL).await; signals.next().await; } => {}
    }
    done
}

/// Acquires the lock, and calls `work` with it. `expects_closed`: reports a lock that everyone may break.
async fn under_lock(
    wanted: &Wanted,
    session: &Session,
    began: Instant,
    expects_closed: bool,
    signals: &mut Signals,
    work: impl AsyncFnOnce(Held, &mut Signals) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let kind = Kind::of(wanted);
    let acquired = tokio::select! {
        biased;
        number = signals.next() => return Ok(exit::signal(number)),
        acquired = take(wanted, session, kind, began) => acquired?,
        never = progress::show(session, &wanted.path, kind, wanted.verbose) => match never {},
    };
    let Some(held) = acquired else {
        report_busy(session, &wanted.path, kind.slots()).await;
        return Ok(wanted.busy_code);
    };
    if wanted.verbose {
        let (token, waited) = (held.guard.fencing_token(), began.elapsed());
        report(format_args!("{} is ours after {waited:.1?}, with token {token}", wanted.path));
    }
    if expects_closed && is_open(session, &wanted.path, kind).await {
        report(format_args!(
            "{} is open to everyone, although you have credentials; --private closes it",
            wanted.path
        ));
    }
    work(held, signals).await
}

/// Whether everyone may delete the node of a lock that is held: the ACL of the path decides that.
async fn is_open(session: &Session, path: &str, kind: Kind) -> bool {
    let folder = match kind {
        Kind::Slot(_) => format!("{path}/leases"),
        _ => path.to_owned(),
    };
    let Some(client) = session.client() else { return false };
    let look = timeout(FAREWELL, client.get_acl(&folder)).await;
    let everyone = |acl: &Acl| acl.scheme() == "world" && acl.permission().has(Permission::DELETE);
    matches!(look, Ok(Ok((acls, _))) if acls.iter().any(everyone))
}

/// Waits for the lock; `None` if it is busy.
async fn take(wanted: &Wanted, session: &Session, kind: Kind, began: Instant) -> Result<Option<Held>, Failure> {
    let path = &wanted.path;
    let left = || wanted.wait.map(|limit| limit.saturating_sub(began.elapsed()));
    let look = async {
        // A semaphore would create its own nodes in a path of others before it finds them, and a lock would be in the way of
        // a semaphore for a moment.
        refuse_mixture(session, path, kind).await?;
        if wanted.nonblock { Ok(()) } else { refuse_own(session, path, kind).await }
    };
    match left() {
        Some(limit) if !limit.is_zero() => timeout(limit, look).await.map_err(|_| {
            let limit = wanted.wait.unwrap_or_default();
            Failure::new(NO_SERVER, format!("no answer about {path} within {limit:.1?}"))
        })??,
        _ => look.await?,
    }
    let patience = match left() {
        None if wanted.nonblock => Patience::None,
        None => Patience::Endless,
        // What is left of a limit that has just passed is enough for a look.
        Some(limit) => Patience::For(limit),
    };
    let held = acquire(session, path, kind, patience).await?;
    if held.is_some() {
        refuse_mixture(session, path, kind).await?;
    }
    Ok(held)
}

/// Reports when the connection is lost and comes back, if the user wants reports.
pub(crate) async fn report_suspensions(wanted: &Wanted, hold: HoldMonitor) -> Infallible {
    if !wanted.verbose {
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

/// Releases the lock, and returns how it was lost before, if it was.
pub(crate) async fn release(wanted: &Wanted, guard: Box<dyn LockGuard>) -> Result<(), Loss> {
    match guard.release().await {
        Ok(()) => {}
        // Its node was deleted at an unknown time, maybe while the lock was needed.
        Err(Error::Lost(Loss::Deleted)) => return Err(Loss::Deleted),
        // It was ours until now.
        Err(Error::Lost(_)) => report(format_args!(
            "no server has confirmed the release; {} is free when the session expires",
            wanted.path
        )),
        Err(error) => {
            let failure = Failure::from(error);
            report(format_args!("{} stays locked until the session has ended: {failure}", wanted.path));
        }
    }
    Ok(())
}

/// Reports a loss and what follows from it, and returns the exit code.
pub(crate) fn lost(wanted: &Wanted, loss: Loss, so: impl Display) -> u8 {
    report(format_args!("{}: lock was lost: {loss}; {so}", wanted.path));
    wanted.lost_code
}
