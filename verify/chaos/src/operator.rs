//! An operator who deletes nodes, and names the client for the nemesis to pause.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use testbed::history::{Journal, now};
use testbed::nemesis::{Accomplice, Kind, Struck};
use tokio::time::timeout;
use zookeeper_recipes::zookeeper_client::{Client, Error};

use crate::line::{Mark, What};
use crate::register::Register;
use crate::run::SESSION;
use crate::workload::{Workload, path};

const PATIENCE: Duration = Duration::from_secs(4);
const TRIES: usize = 5;

/// The part of the nemesis which knows the locks.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) hosts: String,
    pub(crate) journal: Journal,
    pub(crate) register: Arc<Register>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) faults: Arc<std::sync::Mutex<Vec<Struck>>>,
}

impl Accomplice for Operator {
    fn aim(&mut self) -> Option<usize> {
        // `c3.1/0` is a task of the first process of client 3.
        let inside = self.register.someone_inside()?;
        inside.strip_prefix('c')?.split_once('.')?.0.parse().ok()
    }

    fn delete(&mut self, kind: Kind, dice: u64) {
        let mut random = Rng::with_seed(dice);
        let of = |workload: &Workload| [workload.objects(), workload.others()].concat();
        let objects: Vec<_> = self.workloads.iter().flat_map(of).collect();
        let Some(object) = random.choice(objects) else { return };
        let deletion =
            Deletion { hosts: self.hosts.clone(), journal: self.journal.clone(), path: path(object), random };
        tokio::spawn(async move {
            let deleted = async {
                match kind {
                    Kind::PathDeletion => deletion.delete_path().await,
                    _ => deletion.delete_node().await,
                }
            };
            // Unreachable servers and vanishing nodes are expected.
            let _ = timeout(PATIENCE, deleted).await;
        });
    }

    fn over(&mut self, struck: Struck) {
        self.journal.write(&struck).expect("the journal can be written");
        self.faults.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(struck);
    }
}

/// A deletion in the lock at `path`.
struct Deletion {
    hosts: String,
    journal: Journal,
    path: String,
    random: Rng,
}

impl Deletion {
    async fn delete_node(mut self) -> Result<(), Error> {
        let client = connect(&self.hosts).await?;
        let dirs = dirs(&client, &self.path).await?;
        let Some(dir) = self.random.choice(dirs) else { return Ok(()) };
        let mut names = client.list_children(&dir).await?;
        names.sort_by_key(|name| name[name.len().saturating_sub(10)..].to_owned());
        // Every other time the first node, which is the holder's.
        let at = if self.random.bool() { 0 } else { self.random.usize(0..names.len().max(1)) };
        match names.get(at) {
            Some(name) => self.delete(&client, &format!("{dir}/{name}")).await.map(|_| ()),
            None => Ok(()),
        }
    }

    async fn delete_path(self) -> Result<(), Error> {
        let client = connect(&self.hosts).await?;
        for _ in 0..TRIES {
            for dir in dirs(&client, &self.path).await? {
                for name in client.list_children(&dir).await? {
                    self.delete(&client, &format!("{dir}/{name}")).await?;
                }
                if dir != self.path {
                    self.delete(&client, &dir).await?;
                }
            }
            if self.delete(&client, &self.path).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns whether this call deleted the node. A node which is missing or has children is not an error.
    async fn delete(&self, client: &Client, node: &str) -> Result<bool, Error> {
        let Some(stat) = client.check_stat(node).await? else { return Ok(false) };
        let (at, token) = (now(), stat.czxid);
        let write = |what| {
            let mark = Mark { at, process: "operator".into(), what };
            self.journal.write(&mark).expect("the journal can be written");
        };
        // If the outcome stays unknown, the node may have been deleted.
        write(What::Deleting { node: node.to_owned(), token });
        let deleted = client.delete(node, None).await;
        let result = match &deleted {
            Ok(()) => "deleted".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        write(What::Deleted { node: node.to_owned(), token, result });
        match deleted {
            Ok(()) => Ok(true),
            Err(Error::NotEmpty | Error::NoNode) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The session has the timeout of the clients', and unanswered requests end with it.
pub(crate) async fn connect(hosts: &str) -> Result<Client, Error> {
    Client::connector().with_session_timeout(SESSION).connect(hosts).await
}

/// The parents of the nodes of the lock at `path`.
async fn dirs(client: &Client, path: &str) -> Result<Vec<String>, Error> {
    if path != crate::workload::path("permits") {
        return Ok(vec![path.to_owned()]);
    }
    let names = client.list_children(path).await?;
    Ok(names.iter().map(|name| format!("{path}/{name}")).collect())
}
