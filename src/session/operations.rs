//! Owns what the servers are asked: each request of this crate, as a method. Only this file calls the client.
//!
//! 1. Nodes that are created in one transaction have one place in the order of all transactions, so no order of paths
//!    can make two callers wait for each other.
//! 2. A transaction that is refused changes nothing, and returns which of its parts was refused.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use zookeeper_client::{Client, CreateMode, CreateOptions, MultiWriteError, MultiWriteResult, MultiWriter, Stat};

use crate::error::ZkError;
use crate::options::{Options, Parents};
use crate::session::identity::Connection;
use crate::session::request::{Answer, Evidence, Failure, is_certain};
use crate::session::server_session::ServerSession;
use crate::session::standing::Watch;
use crate::session::trust::Request;

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

    /// Adds the create of a missing parent, which has no data.
    fn add_parent_to(&self, writer: &mut MultiWriter<'_>, path: &str) -> Result<(), ZkError> {
        let mode = match self.options.parents() {
            Parents::Persistent => CreateMode::Persistent,
            Parents::Container | Parents::MustExist => CreateMode::Container,
        };
        writer.add_create(path, &[], &mode.with_acls(self.options.parent_acls()))
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

impl ServerSession {
    /// Creates nodes, and before them containers, of which there are several guesses: one transaction for each, all sent
    /// at once. At most one is to fit what is there; if none does, the answer has a refusal of each.
    ///
    /// If more than one was done, because somebody deleted in between what its predecessor had created, the outcome is unknown,
    /// and the nodes of all have to be searched for.
    pub(super) fn create(&self, guesses: Vec<Vec<String>>, drafts: Vec<Arc<Draft>>) -> Answer<Creation> {
        let creator = Creator { evidence: self.evidence.clone(), connection: self.connection() };
        if let ([draft], [containers]) = (&drafts[..], &guesses[..])
            && containers.is_empty()
        {
            let draft = draft.clone();
            return self.send("create", Request::Write, move |client| {
                async move {
                    // A refusal of it is an error of the whole request: no quorum need have judged it.
                    let node = create_one(&client, &draft).await?;
                    creator.created(&client, vec![node], 1).await.map(Ok)
                }
                .boxed()
            });
        }
        self.send("create", Request::Write, move |client| {
            async move {
                let begin = |containers: &Vec<String>| match &drafts[..] {
                    [draft] if containers.is_empty() => create_one(&client, draft).map(outcome_of_one).boxed(),
                    drafts => transact(&client, |writer| {
                        containers.iter().try_for_each(|path| drafts[0].add_parent_to(writer, path))?;
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
                    Ok(results) => creator.created(&client, creates(results), drafts.len()).await.map(Ok),
                    Err(refusals) => Ok(Err(refusals)),
                }
            }
            .boxed()
        })
    }

    /// Creates a node and deletes another, if that still has this version.
    pub(super) fn replace(&self, draft: Arc<Draft>, old: &str, version: i32) -> Answer<Creation> {
        let old = old.to_owned();
        let creator = Creator { evidence: self.evidence.clone(), connection: self.connection() };
        self.send("replace", Request::Write, move |client| {
            async move {
                let outcome = transact(&client, |writer| {
                    draft.add_to(writer)?;
                    writer.add_delete(&old, Some(version))
                });
                match outcome.await? {
                    Ok(results) => creator.created(&client, creates(results), 1).await.map(Ok),
                    Err(refusal) => Ok(Err(vec![refusal])),
                }
            }
            .boxed()
        })
    }

    /// Deletes a node, if it still has this version.
    pub(crate) fn delete(&self, path: &str, version: Option<i32>) -> Answer<()> {
        self.send("delete", Request::Write, |client| client.delete(path, version).boxed())
    }

    /// Deletes several nodes.
    pub(super) fn delete_all(&self, paths: Vec<String>) -> Answer<Result<(), Refusal>> {
        self.send("delete_many", Request::Write, move |client| {
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
        self.send("list", Request::Read, move |client| async move { client.list_children(&path).await }.boxed())
    }

    pub(crate) fn read(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.send("read", Request::Read, |client| client.get_data(path).boxed())
    }

    /// The nodes of the connection's session whose paths begin with `path`.
    pub(super) fn ephemerals(&self, path: &str) -> Answer<Vec<String>> {
        let path = path.to_owned();
        self.send("list_ephemerals", Request::Read, move |client| {
            async move { client.list_ephemerals(&path).await }.boxed()
        })
    }

    /// The stat of a node, if it exists. Unlike [`read`](Self::read) it needs no permission on older servers.
    pub(crate) fn stat(&self, path: &str) -> Answer<Option<Stat>> {
        self.send("stat", Request::Read, |client| client.check_stat(path).boxed())
    }

    /// Reads a node that exists, and watches it; unlike `exists`, it leaves no watch on one that does not.
    pub(crate) fn watch_data(&self, path: &str) -> Answer<(Vec<u8>, Stat, Watch)> {
        let (path, evidence) = (path.to_owned(), self.evidence.clone());
        self.send("watch_data", Request::Read, move |client| {
            async move {
                let (data, stat, watcher) = client.get_and_watch_data(&path).await?;
                Ok((data, stat, Watch::new(watcher, evidence)))
            }
            .boxed()
        })
    }

    /// Lists the children of a node that exists, and watches for others. The node of a contender has none, so of such a
    /// node it watches the deletion, and not changes of its data.
    pub(crate) fn watch_children(&self, path: &str) -> Answer<(Vec<String>, Stat, Watch)> {
        let (path, evidence) = (path.to_owned(), self.evidence.clone());
        self.send("watch_children", Request::Read, move |client| {
            async move {
                let (names, stat, watcher) = client.get_and_watch_children(&path).await?;
                Ok((names, stat, Watch::new(watcher, evidence)))
            }
            .boxed()
        })
    }

    /// Watches a node that may not exist yet; returns whether it does.
    pub(crate) fn watch_existence(&self, path: &str) -> Answer<(bool, Watch)> {
        let (path, evidence) = (path.to_owned(), self.evidence.clone());
        self.send("watch_existence", Request::Read, move |client| {
            async move {
                let (stat, watcher) = client.check_and_watch_stat(&path).await?;
                Ok((stat.is_some(), Watch::new(watcher, evidence)))
            }
            .boxed()
        })
    }

    /// Sets the data of a node, if it still has this version.
    pub(crate) fn write(&self, path: &str, data: &[u8], version: i32) -> Answer<()> {
        let (path, data) = (path.to_owned(), data.to_vec());
        self.send("write", Request::Write, move |client| {
            async move { client.set_data(&path, &data, Some(version)).await.map(drop) }.boxed()
        })
    }

    /// Asks a quorum whether all of some nodes exist; returns the index of the first that does not. It is a transaction of
    /// checks, which changes nothing and fires no watch.
    ///
    /// It needs a quorum either way, so it is a barrier for all that was sent before it, which `sync` is not: a leader
    /// that was deposed without noticing answers `sync`.
    pub(crate) fn check(&self, paths: Vec<String>) -> Answer<Option<usize>> {
        self.send("check", Request::Write, move |client| {
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
fn create_one<'a>(
    client: &'a Client,
    draft: &'a Draft,
) -> impl Future<Output = Result<(String, Stat), ZkError>> + Send + 'a {
    let Draft { path, is_sequential, .. } = draft;
    let created = client.create(path, draft.options.identifier(), &draft.mode());
    created.map_ok(move |(stat, number)| {
        (if *is_sequential { format!("{path}{number}") } else { path.clone() }, stat)
    })
}

fn outcome_of_one(created: Result<(String, Stat), ZkError>) -> Outcome {
    let result = created.map(|(path, stat)| vec![MultiWriteResult::Create { path, stat }]);
    outcome(result.map_err(|source| MultiWriteError::OperationFailed { index: 0, source }))
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

/// What a transaction has created.
fn creates(results: Vec<MultiWriteResult>) -> Vec<(String, Stat)> {
    let create = |result| match result {
        MultiWriteResult::Create { path, stat } => Some((path, stat)),
        _ => None,
    };
    results.into_iter().filter_map(create).collect()
}

/// Where nodes are created.
struct Creator {
    evidence: Arc<Evidence>,
    connection: Connection,
}

impl Creator {
    /// The last `count` of what was created, with their czxid.
    async fn created(
        self,
        client: &Client,
        nodes: Vec<(String, Stat)>,
        count: usize,
    ) -> Result<Vec<Created>, ZkError> {
        let Some(containers) = nodes.len().checked_sub(count) else {
            return Err(ZkError::UnexpectedError("a transaction of creates has created too little".to_owned()));
        };
        // Servers before 3.7.2, 3.8.2 and 3.9.0 return the stat of containers only (ZOOKEEPER-4026).
        let known = nodes.iter().map(|(_, stat)| stat).rfind(|stat| !stat.is_invalid() && stat.czxid > 0);
        let stat = match known {
            Some(stat) => *stat,
            None => read_stat(client, &nodes[containers..]).await?,
        };
        // A container has no owner.
        if stat.ephemeral_owner != 0 {
            self.evidence.owned_by(stat.ephemeral_owner, self.connection)?;
        }
        Ok(nodes.into_iter().skip(containers).map(|(path, _)| Created { path, czxid: stat.czxid }).collect())
    }
}

/// The stat of one of `nodes`, which were created in one transaction: all have its czxid and its owner.
async fn read_stat(client: &Client, nodes: &[(String, Stat)]) -> Result<Stat, ZkError> {
    for (path, _) in nodes {
        if let Some(stat) = client.check_stat(path).await? {
            return Ok(stat);
        }
    }
    // They were created, and all are gone again. That is not to be taken for a refusal.
    Err(ZkError::ConnectionLoss)
}
