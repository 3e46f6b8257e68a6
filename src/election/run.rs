//! Owns the loop of [`Election::run`](crate::Election::run): a campaign and a term, one after the other.

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::election::pauses::TermEnd;
use crate::election::{Election, Leadership, Term};
use crate::error::{Error, Result};

/// The first pause after a campaign that has failed. Each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Campaigns and leads, term after term, until `stop` resolves or the session is over.
pub(super) async fn run_until<F, R>(election: Election, stop: impl Future<Output = ()>, mut lead: F) -> Result<()>
where
    F: FnMut(Term) -> R,
    R: Future<Output = ()>,
{
    let (mut stop, mut pauses) = (pin!(stop.fuse()), election.pauses());
    let mut eligible = election.eligible.clone();
    loop {
        let won = tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            won = win_if(&mut eligible, &election) => won?,
        };
        let Some(leadership) = won else { return Ok(()) };
        let (began, term) = (Instant::now(), Term::new(leadership.monitor()));
        // When `leads` ends, it has dropped the term's future, so the candidate resigns later. A panic of that drop is
        // caught, too.
        let leads = async {
            let led = term.run_until_lost(lead(term.clone())).await;
            term.finished().await;
            // The leadership may have been lost while the tasks ran.
            led.and(term.state().end().map_or(Ok(()), Err))
        };
        let mut leads = pin!(AssertUnwindSafe(leads).catch_unwind());
        let led = tokio::select! {
            biased;
            () = &mut stop => {
                term.revoke();
                leads.await
            }
            () = becomes(&mut eligible, false) => {
                term.revoke();
                leads.await
            }
            led = &mut leads => led,
        };
        let end = match led {
            Ok(Ok(())) => TermEnd::Returned,
            Ok(Err(ended)) => {
                tracing::info!(path = term.path(), %ended, "leadership has ended; campaigning again");
                TermEnd::Lost
            }
            Err(panic) => TermEnd::Panicked(panic),
        };
        let led = began.elapsed();
        resign(leadership).await;
        if !stop.is_terminated() {
            tokio::select! {
                biased;
                () = &mut stop => {}
                () = pauses.after(led, end) => {}
            }
        }
        // After a panic, the end of the leadership ends the tasks.
        term.finished().await;
        if stop.is_terminated() {
            return Ok(());
        }
    }
}

/// Waits until the candidate may stand, or, if `wanted` is false, until it may not.
async fn becomes(eligible: &mut Option<watch::Receiver<bool>>, wanted: bool) {
    let is_so = match eligible {
        Some(changes) => changes.wait_for(|is_eligible| *is_eligible == wanted).await.is_ok(),
        None => wanted,
    };
    if !is_so {
        // Its sender is gone, so nothing changes any more.
        pending().await
    }
}

/// Campaigns while the candidate may stand, until the election is won.
async fn win_if(eligible: &mut Option<watch::Receiver<bool>>, election: &Election) -> Result<Option<Leadership>> {
    loop {
        becomes(eligible, true).await;
        tokio::select! {
            biased;
            // Dropping the campaign withdraws the candidate.
            () = becomes(eligible, false) => {}
            won = win(election) => return won,
        }
    }
}

/// Campaigns until the election is won, with a pause after each failure. Returns `None` once the session is closed or
/// drained.
pub(crate) async fn win(election: &Election) -> Result<Option<Leadership>> {
    let mut pause = FIRST_PAUSE;
    loop {
        match election.campaign().await {
            Ok(won) => return Ok(Some(won)),
            Err(Error::Closed) => return Ok(None),
            Err(error @ Error::SessionEnded { .. }) => return Err(error),
            Err(error) => tracing::warn!(%error, retry_in = ?pause, "cannot campaign"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Resigns. Logs a failure, after which the next campaign queues behind the leftover node.
pub(crate) async fn resign(leadership: Leadership) {
    let path = leadership.path().to_owned();
    match leadership.resign().await {
        Ok(()) | Err(Error::Lost(_)) => {}
        Err(error) => tracing::warn!(path, %error, "cannot resign"),
    }
}
