//! The lock that `zookeeper-client` itself has. It is exclusive only, and cannot be tried.

use std::mem;
use std::time::{Duration, Instant};

use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

use crate::Outcome;
use crate::crew::Worker;
use crate::workloads::{Shape, Workload};

/// A worker with a lock of the client.
#[derive(Debug)]
pub(crate) struct ClientLock {
    client: Client,
    path: String,
    shape: Shape,
    /// The next path, where each is used once.
    next: usize,
    /// The time of all acquires since it was last taken.
    acquires: Duration,
}

/// Whether the client has such a lock.
pub(crate) fn has(shape: Shape) -> bool {
    matches!(shape, Shape::Own | Shape::First | Shape::Shared | Shape::Deep)
}

pub(crate) fn workers(clients: &[Client], workload: &Workload, path: &str) -> Vec<ClientLock> {
    let worker = |worker: usize| ClientLock {
        client: clients[worker % workload.sessions].clone(),
        path: if workload.shape == Shape::Own { format!("{path}/{worker}") } else { path.to_owned() },
        shape: workload.shape,
        next: 0,
        acquires: Duration::ZERO,
    };
    (0..workload.workers).map(worker).collect()
}

impl Worker for ClientLock {
    async fn cycle(&mut self) -> Outcome {
        let Self { path, next, .. } = self;
        let path = match self.shape {
            Shape::First => format!("{path}/{next}"),
            Shape::Deep => format!("{path}/{next}/1/2/3/4/lock"),
            _ => path.clone(),
        };
        *next += 1;
        let ancestors = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(ancestors)?;
        let began = Instant::now();
        let lock = self.client.lock(LockPrefix::new_curator(&path, "lock-")?, b"", options).await?;
        self.acquires += began.elapsed();
        // Dropping it deletes in the background; awaiting the delete is what a release is here.
        let node = lock.lock_path().to_owned();
        std::mem::forget(lock);
        self.client.delete(&node, None).await?;
        Ok(())
    }

    fn counted(&mut self) -> Option<Duration> {
        let acquires = mem::take(&mut self.acquires);
        (self.shape == Shape::First).then_some(acquires)
    }
}
