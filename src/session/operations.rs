//! Owns what the servers are asked: each request of this crate, as a method. Only this file calls the client.
//!
//! 1. Nodes that are created in one transaction have one place in the order of all transactions, so no order of paths
//!    can make two callers wait for each other.
//! 2. A transaction that is refused changes nothing, and returns which of its parts was refused.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_client::{
    Client, CreateMode, CreateOptions, EventType, MultiWriteError, MultiWriteResult, MultiWriter, OneshotWatcher,
    Stat,
};

use crate::options::Options;
use crate::session::request::{Answer, Evidence, Failure, SessionOver, is_certain};
use crate::session::server_session::ServerSession;
use crate::session::trust::Request;

type ZkError = zookeeper_client::Error;

/// An ephemeral node that is to be created.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The path, without the number that the server appends if the node is sequential.
    pub(crate) path: String,
    pub(crate) is_sequential: bool,
    pub(crate) options: Options,
}

impl Draft {
    fn mode(&self) -> CreateOptions<'_> {
        let mode = if self.is_sequential { CreateMode::EphemeralSequential } else { CreateMode::Ephemeral };
        mode.with_acls(self.options.acls())
    }

    fn add_to(&self, writer: &mut MultiWriter<'_>) -> Result<(), ZkError> {
        writer.add_create(&self.path, self.options.identifier(), &self.mode())
    }

    /// Adds the create of a container, which has no data.
    fn add_container_to(&self, writer: &mut MultiWriter<'_>, path: &str) -> Result<(), ZkError> {
        writer.add_create(path, &[], &CreateMode::Container.with_acls(self.options.parent_acls()))
    }
}

/// A node that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    pub(crate) path: String,
    pub(crate) czxid: i64,
}

impl Created {
    /// The name within its parent.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Why a transaction was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// The part that was refused.
    pub(crate) index: usize,
    pub(crate) error: ZkError,
}

/// What became of a create: the nodes, or why each of the transactions was refused.
pub(crate) type Creation = Result<Vec<Created>, Vec<Refusal>>;

/// Whether nodes may have been created, or may be yet, although the answer names none.
pub(super) fn leaves_doubt(creation: &Result<Creation, Failure>) -> bool {
    match creation {
        Ok(Ok(_)) | Err(Failure::SessionOver) => false,
        Ok(Err(refusals)) => refusals.iter().any(|refusal| !is_certain(&refusal.error)),
        Err(Failure::Refused(error)) => !is_certain(error),
        Err(Failure::Unknown) => true,
    }
}

/// What became of a transaction; the outer error is of one that was not answered, or refused as a whole.
type Outcome<T = Vec<MultiWriteResult>> = Result<Result<T, Refusal>, ZkError>;

/// A one-shot watch on one node. Dropping it takes it back.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: OneshotWatcher,
    evidence: Arc<Evidence>,
}

/// What a watch has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Deleted,
    Changed,
}

impl Watch {
    pub(crate) async fn fired(self) -> Result<Event, SessionOver> {
        // The client's watcher panics when the runtime of its session is dropped under it.
        match AssertUnwindSafe(self.watcher.changed()).catch_unwind().await.map(|event| event.event_type) {
            Ok(EventType::NodeDeleted) => Ok(Event::Deleted),
            Ok(EventType::Session) => Err(SessionOver),
            Ok(_) => Ok(Event::Changed),
            Err(_) => {
                self.evidence.found_orphaned();
                Err(SessionOver)
            }
        }
    }
}

impl ServerSession {
    /// Creates nodes, and before them containers, of which there are several guesses: one transaction for each, all sent
    /// at once. At most one is to fit what is there; if none does, the answer has a refusal of each.
    ///
    /// If more than one was done, because somebody deleted in between what its predecessor had created, the outcome is unknown,
    /// and the nodes of all have to be searched for.
    pub(super) fn create(&self, guesses: Vec<Vec<String>>, drafts: Vec<Arc<Draft>>) -> Answer<Creation> {
        self.send(Request::Write, move |client| {
            async move {
                if let ([draft], [containers]) = (&drafts[..], &guesses[..])
                    && containers.is_empty()
                {
                    // A refusal of it is an error of the whole request: no quorum need have judged it.
                    let results = create_one(&client, draft).await?.map_err(|refusal| refusal.error)?;
                    return created(&client, results, 1).await.map(Ok);
                }
                let begin = |containers: &Vec<String>| match &drafts[..] {
                    [draft] if containers.is_empty() => create_one(&client, draft),
                    drafts => transact(&client, |writer| {
                        containers.iter().try_for_each(|path| drafts[0].add_container_to(writer, path))?;
                        drafts.iter().try_for_each(|draft| draft.add_to(writer))
                    }),
                };
                // All are sent before the first is awaited.
                let sent: Vec<_> = guesses.iter().map(begin).collect();
                let mut outcomes = Vec::with_capacity(sent.len());
                for transaction in sent {
                    outcomes.push(transaction.await);
                }
                match the_one_done(outcomes)? {
                    Ok(results) => created(&client, results, drafts.len()).await.map(Ok),
                    Err(refusals) => Ok(Err(refusals)),
                }
            }
            .boxed()
        })
    }

    /// Creates a node and deletes another, if that still has this version.
    pub(super) fn replace(&self, draft: Arc<Draft>, old: &str, version: i32) -> Answer<Creation> {
        let old = old.to_owned();
        self.send(Request::Write, move |client| {
            async move {
                let outcome = transact(&client, |writer| {
                    draft.add_to(writer)?;
                    writer.add_delete(&old, Some(version))
                });
                match outcome.await? {
                    Ok(results) => created(&client, results, 1).await.map(Ok),
                    Err(refusal) => Ok(Err(vec![refusal])),
                }
            }
            .boxed()
        })
    }

    /// Deletes a node, if it still has this version.
    pub(crate) fn delete(&self, path: &str, version: Option<i32>) -> Answer<()> {
        self.send(Request::Write, |client| client.delete(path, version).boxed())
    }

    /// Deletes several nodes.
    pub(super) fn delete_all(&self, paths: Vec<String>) -> Answer<Result<(), Refusal>> {
        self.send(Request::Write, move |client| {
            async move {
                let add =
                    |writer: &mut MultiWriter<'_>| paths.iter().try_for_each(|path| writer.add_delete(path, None));
                Ok(transact(&client, add).await?.map(drop))
            }
            .boxed()
        })
    }

    /// The names of the children.
    pub(super) fn children(&self, path: &str) -> Answer<Vec<String>> {
        let path = path.to_owned();
        self.send(Request::Read, move |client| async move { client.list_children(&path).await }.boxed())
    }

    pub(crate) fn read(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.send(Request::Read, |client| client.get_data(path).boxed())
    }

    /// The stat of a node, if it exists. Unlike [`read`](Self::read) it needs no permission on older servers.
    pub(crate) fn stat(&self, path: &str) -> Answer<Option<Stat>> {
        self.send(Request::Read, |client| client.check_stat(path).boxed())
    }

    /// Reads a node that exists, and watches it; unlike `exists`, it leaves no watch on one that does not.
    pub(crate) fn watch_data(&self, path: &str) -> Answer<(Vec<u8>, Stat, Watch)> {
        let (path, evidence) = (path.to_owned(), self.evidence.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
                Ok((data, stat, Watch { watcher, evidence }))
            }
            .boxed()
        })
    }

    /// Lists the children of a node that exists, and watches for others. The node of a contender has none, so of such a
    /// node it watches the deletion, and not changes of its data.
    pub(crate) fn watch_children(&self, path: &str) -> Answer<(Vec<String>, Stat, Watch)> {
        let (path, evidence) = (path.to_owned(), self.evidence.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (names, stat, watcher) = client.get_and_watch_children(&path).await?;
                Ok((names, stat, Watch { watcher, evidence }))
            }
            .boxed()
        })
    }

    /// Watches a node that may not exist yet; returns whether it does.
    pub(crate) fn watch_existence(&self, path: &str) -> Answer<(bool, Watch)> {
        let (path, evidence) = (path.to_owned(), self.evidence.clone());
        self.send(Request::Read, move |client| {
            async move {
                let (stat, watcher) = client.check_and_watch_stat(&path).await?;
                Ok((stat.is_some(), Watch { watcher, evidence }))
            }
            .boxed()
        })
    }

    /// Sets the data of a node, if it still has this version.
    pub(crate) fn write(&self, path: &str, data: &[u8], version: i32) -> Answer<()> {
        let (path, data) = (path.to_owned(), data.to_vec());
        self.send(Request::Write, move |client| {
            async move { client.set_data(&path, &data, Some(version)).await.map(drop) }.boxed()
        })
    }

    /// Asks a quorum whether all of some nodes exist; returns the index of the first that does not. It is a transaction of
    /// checks, which changes nothing and fires no watch.
    ///
    /// It needs a quorum either way, so it is a barrier for all that was sent before it, which `sync` is not: a leader
    /// that was deposed without noticing answers `sync`.
    pub(crate) fn check(&self, paths: Vec<String>) -> Answer<Option<usize>> {
        self.send(Request::Write, move |client| {
            async move {
                let add = |writer: &mut MultiWriter<'_>| {
                    paths.iter().try_for_each(|path| writer.add_check_version(path, -1))
                };
                match transact(&client, add).await? {
                    Err(Refusal { error: ZkError::NoNode, index }) => Ok(Some(index)),
                    // For all other refusals (it needs READ), a quorum has answered.
                    Ok(_) | Err(_) => Ok(None),
                }
            }
            .boxed()
        })
    }
}

/// Sends a transaction of what `add` puts into it.
fn transact<'a>(
    client: &'a Client,
    add: impl FnOnce(&mut MultiWriter<'_>) -> Result<(), ZkError>,
) -> BoxFuture<'a, Outcome> {
    let mut writer = client.new_multi_writer();
    let committed = add(&mut writer).map(|()| writer.commit());
    async move { outcome(committed?.await) }.boxed()
}

/// Sends the create of one node. It is no transaction: that would cost a round trip more on servers which do not return its
/// czxid.
fn create_one<'a>(client: &'a Client, draft: &'a Draft) -> BoxFuture<'a, Outcome> {
    let Draft { path, is_sequential, .. } = draft;
    let created = client.create(path, draft.options.identifier(), &draft.mode());
    async move {
        let result = created.await.map(|(stat, number)| {
            let path = if *is_sequential { format!("{path}{number}") } else { path.clone() };
            vec![MultiWriteResult::Create { path, stat }]
        });
        outcome(result.map_err(|source| MultiWriteError::OperationFailed { index: 0, source }))
    }
    .boxed()
}

fn outcome(result: Result<Vec<MultiWriteResult>, MultiWriteError>) -> Outcome {
    match result {
        Ok(results) => Ok(Ok(results)),
        // The session is checked with every part.
        Err(MultiWriteError::OperationFailed { source, .. }) if !is_refusal(&source) => Err(source),
        Err(MultiWriteError::OperationFailed { index, source }) => Ok(Err(Refusal { index, error: source })),
        Err(MultiWriteError::RequestFailed { source }) => Err(source),
    }
}

fn is_refusal(error: &ZkError) -> bool {
    matches!(Failure::of(error.clone()), Failure::Refused(_))
}

/// The results of the one of several transactions that was done, or all refusals if all were refused.
fn the_one_done(outcomes: Vec<Outcome>) -> Result<Result<Vec<MultiWriteResult>, Vec<Refusal>>, ZkError> {
    let (mut done, mut refusals, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(Ok(results)) => done.push(results),
            Ok(Err(refusal)) => refusals.push(refusal),
            Err(error) => failures.push(error),
        }
    }
    let has_changed_nothing = |refusal: &Refusal| is_certain(&refusal.error);
    match done.pop() {
        Some(results) if done.is_empty() && failures.is_empty() && refusals.iter().all(has_changed_nothing) => {
            Ok(Ok(results))
        }
        // What the others have created, or may have, has to be searched for.
        Some(_) => Err(ZkError::ConnectionLoss),
        None => match failures.iter().position(|error| !is_refusal(error)).or(failures.len().checked_sub(1)) {
            // One that may have been done matters more than one that was refused as a whole.
            Some(failure) => Err(failures.swap_remove(failure)),
            None => Ok(Err(refusals)),
        },
    }
}

/// The last `count` of what a transaction has created, with its czxid.
async fn created(client: &Client, results: Vec<MultiWriteResult>, count: usize) -> Result<Vec<Created>, ZkError> {
    let nodes: Vec<_> = results
        .into_iter()
        .filter_map(|result| match result {
            MultiWriteResult::Create { path, stat } => Some((path, stat)),
            _ => None,
        })
        .collect();
    // Servers before 3.7.2, 3.8.2 and 3.9.0 return the stat of containers only (ZOOKEEPER-4026).
    let known = nodes.iter().map(|(_, stat)| stat).find(|stat| !stat.is_invalid() && stat.czxid > 0);
    let known = known.map(|stat| stat.czxid);
    let Some(containers) = nodes.len().checked_sub(count) else {
        return Err(ZkError::UnexpectedError("a transaction of creates has created too little".to_owned()));
    };
    let czxid = match known {
        Some(czxid) => czxid,
        None => read_czxid(client, &nodes[containers..]).await?,
    };
    Ok(nodes.into_iter().skip(containers).map(|(path, _)| Created { path, czxid }).collect())
}

/// The czxid of the transaction that created `nodes`. One node has it for all.
async fn read_czxid(client: &Client, nodes: &[(String, Stat)]) -> Result<i64, ZkError> {
    for (path, _) in nodes {
        if let Some(stat) = client.check_stat(path).await? {
            return Ok(stat.czxid);
        }
    }
    // They were created, and all are gone again. That is not to be taken for a refusal.
    Err(ZkError::ConnectionLoss)
}
