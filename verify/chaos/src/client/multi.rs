//! Several locks, acquired together. Each member is an object of the history.

use testbed::history::Acquire;
use zookeeper_recipes::{MultiLock, MultiLockGuard};

use super::acquire::{Futures, Way, acquire};
use super::visit::visit;
use super::{Result, Worker};
use crate::workload::path;

/// Acquires two or three of three locks together, each for reading or for writing.
pub(super) async fn at_once(mut worker: Worker) -> Result {
    while !worker.should_stop() {
        let members = some(&mut worker, ["multi-a", "multi-b", "multi-c"]);
        let mut builder = MultiLock::builder(&worker.session);
        let mut objects = Vec::new();
        for path in &members {
            if worker.random.u8(0..3) == 0 {
                builder = builder.read(path);
                objects.push(Acquire::shared(path.as_str()));
            } else {
                builder = builder.write(path);
                objects.push(Acquire::exclusive(path.as_str()));
            }
        }
        let way = Way::any(&mut worker);
        hold(&mut worker, way, &builder.build()?, objects).await;
    }
    Ok(())
}

/// At least two of them, in random order.
fn some(worker: &mut Worker, names: [&str; 3]) -> Vec<String> {
    let mut members = names.map(path).to_vec();
    worker.random.shuffle(&mut members);
    members.truncate(worker.random.usize(2..=3));
    members
}

async fn hold(worker: &mut Worker, way: Way, lock: &MultiLock, objects: Vec<Acquire>) {
    let futures = Futures { wait: lock.lock(), enqueue: lock.enqueue(), attempt: lock.try_lock_for(way.limit()) };
    let paths: Vec<_> = objects.iter().map(|object| object.object.clone()).collect();
    let tokens = |guard: &MultiLockGuard| vec![guard.fencing_token().get(); paths.len()];
    let Some((held, guard)) = acquire(worker, way, objects, futures, tokens).await else { return };
    visit(worker, held, &paths[0], guard).await;
}
