//! Permits of a semaphore.

use testbed::history::Acquire;
use zookeeper_recipes::Semaphore;

use super::acquire::{Futures, Way, acquire, token};
use super::visit::visit;
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
        let object = vec![Acquire::permits(path.as_str(), count)];
        let Some((held, permit)) = acquire(&worker, way, object, futures, token).await else { continue };
        visit(&mut worker, held, &path, permit).await;
    }
    Ok(())
}
