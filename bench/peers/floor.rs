//! The floor: the fewest bare requests that do the work, by the same client and in the same sessions as this crate.

use std::mem;
use std::time::{Duration, Instant};

use zookeeper_recipes::zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteResult};

use crate::Outcome;
use crate::crew::Worker;
use crate::workloads::{Shape, Workload};

/// As long as the names of locks are.
const NAME: &str = "_c_6a9dd10d-c6f1-4dc1-9c1b-0d5f3c4d8f5e-lock-";

/// A worker that sends bare requests.
#[derive(Debug)]
pub(crate) struct Bare {
    client: Client,
    task: Task,
}

#[derive(Debug)]
enum Task {
    /// Create and delete.
    Alone { prefix: String },
    /// Create and delete under paths that exist; only the create counts.
    First { path: String, next: usize, counted: Duration },
    /// Create, watch and delete. The predecessor is known without a listing: all names differ in their numbers only, and
    /// nobody gives up. With several permits there are as many queues, which take turns.
    Queue { prefix: String, permits: i64 },
    /// A listing. It is the least that shows that a lock is held.
    Look { path: String },
    /// One transaction creates all, and one deletes all.
    Many { prefixes: Vec<String> },
    /// One transaction creates the ancestors with the node; then comes the delete.
    Deep { path: String, next: usize },
}

/// The workers, and the paths that they need.
pub(crate) async fn workers(clients: &[Client], workload: &Workload, path: &str) -> Outcome<Vec<Bare>> {
    let folder = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let mut workers = Vec::new();
    for worker in 0..workload.workers {
        let client = clients[worker % workload.sessions].clone();
        let made = match workload.shape {
            Shape::Own => vec![format!("{path}/{worker}")],
            Shape::Many(locks) => (0..locks).map(|lock| format!("{path}/{lock}")).collect(),
            _ => vec![path.to_owned()],
        };
        for path in &made {
            client.mkdir(path, &folder).await?;
        }
        let mut prefixes = made.iter().map(|path| format!("{path}/{NAME}"));
        let mut prefix = || prefixes.next().expect("at least one path");
        let task = match workload.shape {
            Shape::Own | Shape::Read => Task::Alone { prefix: prefix() },
            Shape::First => Task::First { path: path.to_owned(), next: 0, counted: Duration::ZERO },
            Shape::Shared => Task::Queue { prefix: prefix(), permits: 1 },
            Shape::Permits(permits) => Task::Queue { prefix: prefix(), permits: i64::try_from(permits)? },
            Shape::Many(_) => Task::Many { prefixes: prefixes.collect() },
            Shape::Deep => Task::Deep { path: path.to_owned(), next: 0 },
            Shape::Try => {
                let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
                clients[workload.sessions].create(&prefix(), b"", &mode).await?;
                Task::Look { path: path.to_owned() }
            }
        };
        workers.push(Bare { client, task });
    }
    Ok(workers)
}

impl Worker for Bare {
    async fn cycle(&mut self) -> Outcome {
        let (client, mode) = (&self.client, CreateMode::EphemeralSequential.with_acls(Acls::anyone_all()));
        match &mut self.task {
            Task::Alone { prefix } => {
                let (_, number) = client.create(prefix, b"", &mode).await?;
                client.delete(&format!("{prefix}{number}"), None).await?;
            }
            Task::First { path, next, counted } => {
                let prefix = format!("{path}/{next}/{NAME}");
                *next += 1;
                let began = Instant::now();
                let (_, number) = client.create(&prefix, b"", &mode).await?;
                *counted += began.elapsed();
                client.delete(&format!("{prefix}{number}"), None).await?;
            }
            Task::Queue { prefix, permits } => {
                let (_, number) = client.create(prefix, b"", &mode).await?;
                let predecessor = number.into_i64() - *permits;
                if predecessor >= 0 {
                    match client.get_and_watch_data(&format!("{prefix}{predecessor:010}")).await {
                        Ok((_, _, watcher)) => drop(watcher.changed().await),
                        Err(Error::NoNode) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                client.delete(&format!("{prefix}{number}"), None).await?;
            }
            Task::Look { path } => drop(client.list_children(path).await?),
            Task::Many { prefixes } => {
                let mut creates = client.new_multi_writer();
                for prefix in prefixes {
                    creates.add_create(prefix, b"", &mode)?;
                }
                let mut deletes = client.new_multi_writer();
                for created in creates.commit().await? {
                    if let MultiWriteResult::Create { path, .. } = created {
                        deletes.add_delete(&path, None)?;
                    }
                }
                deletes.commit().await?;
            }
            Task::Deep { path, next } => {
                *next += 1;
                let mut creates = client.new_multi_writer();
                let mut deep = path.clone();
                for name in [&*next.to_string(), "1", "2", "3", "4", "lock"] {
                    deep = format!("{deep}/{name}");
                    creates.add_create(&deep, b"", &CreateMode::Container.with_acls(Acls::anyone_all()))?;
                }
                creates.add_create(&format!("{deep}/{NAME}"), b"", &mode)?;
                let Some(MultiWriteResult::Create { path, .. }) = creates.commit().await?.pop() else {
                    return Err("a create without a path".into());
                };
                client.delete(&path, None).await?;
            }
        }
        Ok(())
    }

    fn counted(&mut self) -> Option<Duration> {
        match &mut self.task {
            Task::First { counted, .. } => Some(mem::take(counted)),
            _ => None,
        }
    }
}
