//! What one process of the fleet does: it counts shipments, from time to time.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::sleep;
use zookeeper_recipes::{DistributedElection, Error, Term};

use crate::failure::Failure;
use crate::http::App;
use crate::store::Store;

const PERIOD: Duration = Duration::from_secs(1);

/// Leads whenever it is elected, until the service drains; then it has resigned.
pub(crate) async fn lead(election: &dyn DistributedElection, app: &App) -> Result<(), Error> {
    election.lead_until(app.draining.cancelled(), |term| report(term, app.store.clone())).await.map(drop)
}

/// Dropped when the leadership ends, so it need not look.
async fn report(term: Term, store: Store) -> ControlFlow<()> {
    tracing::info!(token = %term.fencing_token(), "leads");
    loop {
        sleep(PERIOD).await;
        match store.report(term.fencing_token()).await {
            Ok(()) => {}
            // Another has led since: only a later token is of use.
            Err(Failure::Outdated) => return ControlFlow::Continue(()),
            Err(error) => tracing::warn!(%error, "no report"),
        }
    }
}
