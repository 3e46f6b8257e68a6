//! Readers and writers; some writers downgrade.

use testbed::history::{Acquire, Held};
use zookeeper_recipes::rwlock::DowngradeError;
use zookeeper_recipes::{RwLock, RwLockWriteGuard};

use super::acquire::{Futures, Way, acquire, token};
use super::visit::visit;
use super::{Result, Worker};
use crate::workload::path;

/// Reads and writes in a loop.
pub(super) async fn read_and_write(mut worker: Worker) -> Result {
    let path = path("rw");
    let lock = RwLock::new(&worker.session, &path)?;
    while !worker.should_stop() {
        let way = Way::any(&mut worker);
        if worker.random.u8(0..5) < 3 {
            let futures = Futures {
                wait: lock.read(),
                enqueue: lock.enqueue_read(),
                attempt: lock.try_read_for(way.limit()),
            };
            let object = vec![Acquire::shared(path.as_str())];
            let Some((held, guard)) = acquire(&worker, way, object, futures, token).await else { continue };
            visit(&mut worker, held, &path, guard).await;
        } else {
            let futures = Futures {
                wait: lock.write(),
                enqueue: lock.enqueue_write(),
                attempt: lock.try_write_for(way.limit()),
            };
            let object = vec![Acquire::exclusive(path.as_str())];
            let Some((held, guard)) = acquire(&worker, way, object, futures, token).await else { continue };
            match worker.random.u8(0..3) {
                0 => downgrade(&mut worker, held, &path, guard).await,
                _ => visit(&mut worker, held, &path, guard).await,
            }
        }
    }
    Ok(())
}

async fn downgrade(worker: &mut Worker, held: Vec<Held>, path: &str, guard: RwLockWriteGuard) {
    held.iter().for_each(Held::downgrade);
    match guard.downgrade().await {
        Ok(reading) => visit(worker, held, path, reading).await,
        Err(DowngradeError { guard, source, .. }) => {
            if !matches!(source, zookeeper_recipes::Error::Lost(_)) {
                worker.wrong(format!("cannot downgrade: {source:?}"));
            }
            visit(worker, held, path, guard).await;
        }
    }
}
