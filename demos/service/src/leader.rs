//! What one process of the fleet does: it counts shipments, from time to time.

use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::{Election, Error, Term};

use crate::failure::Failure;
use crate::http::App;
use crate::store::Store;

const PERIOD: Duration = Duration::from_secs(1);

/// Leads whenever it is elected, until the service drains; then it has resigned.
pub(crate) async fn lead(election: &Election, app: &App) -> Result<(), Error> {
    let store = &app.store;
    election.run_until(app.draining.cancelled(), |term| report(term, store.clone())).await
}

/// Dropped when the leadership is lost, so it looks only for requests to end.
async fn report(term: Term, store: Store) {
    tracing::info!(token = %term.fencing_token(), "leads");
    loop {
        tokio::select! {
            () = term.revoke_requested() => return,
            () = sleep(PERIOD) => {}
        }
        match store.report(term.fencing_token()).await {
            Ok(()) => {}
            // Another has led since: only a later token is of use.
            Err(Failure::Outdated) => return,
            Err(error) => tracing::warn!(%error, "no report"),
        }
    }
}
