//! Candidates which are elected and resign.

use testbed::history::Acquire;
use zookeeper_recipes::Election;

use super::acquire::{Futures, Way, acquire, token};
use super::visit::visit;
use super::{Result, Worker};
use crate::workload::path;

/// Campaigns, leads and resigns in a loop.
pub(super) async fn lead(mut worker: Worker) -> Result {
    let path = path("election");
    let election = Election::new(&worker.session, &path)?;
    while !worker.should_stop() {
        let way = Way::any(&mut worker);
        let futures = Futures {
            wait: election.campaign(),
            enqueue: election.enqueue(),
            attempt: election.try_campaign_for(way.limit()),
        };
        let object = vec![Acquire::exclusive(path.as_str())];
        let Some((held, leadership)) = acquire(&worker, way, object, futures, token).await else { continue };
        visit(&mut worker, held, &path, leadership).await;
    }
    Ok(())
}
