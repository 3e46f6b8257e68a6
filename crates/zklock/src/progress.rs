//! Owns the status that is shown while we wait: the holder, and our position.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use zookeeper_recipes::{Session, SessionState};

use crate::acquire::Kind;
use crate::messages::{Status, report};
use crate::queue::{Queue, plain};

/// Most locks are granted before anybody would want to know.
const FIRST: Duration = Duration::from_millis(300);

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// How long no server answers before that is reported.
const OUTAGE: Duration = Duration::from_secs(10);

/// Shows the queue on standard error if that is a terminal, and reports it once if the user wants reports. Reports outages in any case.
pub(crate) async fn show(session: &Session, path: &str, kind: Kind, verbose: bool) -> Infallible {
    tokio::select! {
        never = show_queue(session, path, kind, verbose) => never,
        never = report_outages(session) => never,
    }
}

async fn report_outages(session: &Session) -> Infallible {
    let mut states = session.states();
    while states.wait_for(|state| !state.is_connected()).await.is_some() {
        if timeout(OUTAGE, states.wait_for(SessionState::is_connected)).await.is_err() {
            report(
                "the servers do not answer, or have no majority; the wait goes on when they do: see `zklock doctor`",
            );
            if states.wait_for(SessionState::is_connected).await.is_some() {
                report("connected again; still waiting");
            }
        }
    }
    // The session is over, which the call that waits reports.
    std::future::pending().await
}

async fn show_queue(session: &Session, path: &str, kind: Kind, verbose: bool) -> Infallible {
    let is_terminal = Status::is_seen();
    if !is_terminal && !verbose {
        return std::future::pending().await;
    }
    let (began, mut status, mut is_reported) = (Instant::now(), Status::default(), false);
    sleep(FIRST).await;
    loop {
        let look = Instant::now();
        if let Some(text) = describe(session, path, kind).await {
            if is_terminal {
                status.show(format_args!("{text}; {} s", began.elapsed().as_secs()));
            } else if !is_reported {
                is_reported = true;
                report(text);
            }
        }
        // A queue of thousands is not read every second.
        sleep(LOOK.max(20 * look.elapsed())).await;
    }
}

/// `None` if we are not in the queue, or no server answers.
async fn describe(session: &Session, path: &str, kind: Kind) -> Option<String> {
    let queue = Queue::look(session, path, kind.slots()).await.ok()?;
    let entries = queue.entries();
    let ours = entries.iter().find(|entry| entry.contender.session_id() == session.id() && entry.position > 0)?;
    let holder = entries.iter().find(|entry| entry.contender.is_holder())?;
    let by = plain(&holder.contender.identifier_lossy(), 60);
    Some(format!("{path} is held by {by}; position {} in the queue", ours.position))
}
