//! Candidates which are elected and resign.

use testbed::history::Acquire;
use zookeeper_recipes::{Election, LockGuard};

use super::acquire::{Futures, Way, acquire};
use super::visit::Visit;
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
        let tokens = |guard: &_| vec![LockGuard::fencing_token(guard).get()];
        let object = vec![Acquire::exclusive(path.as_str())];
        let Some((held, leadership)) = acquire(&worker, way, object, futures, tokens).await else { continue };
        let mut visit = Visit::new(&mut worker, held, &path);
        let work = worker.work();
        visit.stay(&mut worker, &leadership, tokio::time::sleep(work)).await;
        visit.leave(&mut worker, leadership).await;
    }
    Ok(())
}
