//! Permits of a semaphore.

use testbed::history::Acquire;
use zookeeper_recipes::{LockGuard, Semaphore};

use super::acquire::{Futures, Way, acquire};
use super::visit::Visit;
use super::{Result, Worker};
use crate::workload::{PERMITS, path};

/// Acquires one permit or several in a loop.
pub(super) async fn take(mut worker: Worker) -> Result {
    let path = path("permits");
    let semaphore = Semaphore::new(&worker.session, &path, PERMITS)?;
    while !worker.should_stop() {
        let way = Way::any(&mut worker);
        let count = [1, 1, 2, PERMITS][worker.random.usize(0..4)];
        let futures = Futures {
            wait: semaphore.acquire_many(count),
            enqueue: semaphore.enqueue(count),
            attempt: semaphore.try_acquire_many_for(count, way.limit()),
        };
        let tokens = |guard: &_| vec![LockGuard::fencing_token(guard).get()];
        let object = vec![Acquire::permits(path.as_str(), count)];
        let Some((held, permit)) = acquire(&worker, way, object, futures, tokens).await else { continue };
        let mut visit = Visit::new(&mut worker, held, &path);
        let work = worker.work();
        visit.stay(&mut worker, &permit, tokio::time::sleep(work)).await;
        visit.leave(&mut worker, permit).await;
    }
    Ok(())
}
