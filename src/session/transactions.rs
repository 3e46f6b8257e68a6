//! Owns the transactions: requests of several parts, all of which are done or none.
//!
//! 1. Nodes that are created in one transaction have one place in the order of all transactions, so no order of paths
//!    can make two callers wait for each other.
//! 2. A transaction that is refused changes nothing, and tells which of its parts was in the way.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_client::{Client, MultiWriteError, MultiWriteResult, MultiWriter, Stat};

use crate::session::answer::{Answer, Failure};
use crate::session::requests::{Created, Draft, Requests};
use crate::session::trust::Request;

type ZkError = zookeeper_client::Error;

/// Why a transaction was not done.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// The part that was in the way.
    pub(crate) index: usize,
    pub(crate) error: ZkError,
}

type Outcome<T> = Result<T, Refusal>;

/// What became of a transaction; the error of one that was not answered, or refused as a whole.
type Ended = Result<Outcome<Vec<MultiWriteResult>>, ZkError>;

impl Requests {
    /// Creates nodes, and before them containers, of which there are several guesses: one transaction for each, all sent
    /// in one burst. At most one is to fit what is there; if none does, the answer has a refusal of each.
    ///
    /// If more than one was done, because somebody has deleted in between what the one before had made, the outcome is
    /// said to be unknown, and the nodes of all are left to be searched for.
    pub(crate) fn create_all(
        &self,
        guesses: Vec<Vec<String>>,
        drafts: Vec<Draft>,
    ) -> Answer<Result<Vec<Created>, Vec<Refusal>>> {
        self.send(Request::Write, move |client| {
            async move {
                let paths: Vec<_> = drafts.iter().map(Draft::path).collect();
                let begin = |containers: &Vec<String>| match (&drafts[..], &paths[..]) {
                    // One node alone: servers tell the number of its transaction.
                    ([draft], [path]) if containers.is_empty() => create(&client, draft, path),
                    _ => begin(&client, |writer| {
                        containers.iter().try_for_each(|path| drafts[0].add_container_to(writer, path))?;
                        drafts.iter().try_for_each(|draft| draft.add_to(writer))
                    }),
                };
                // All are sent before the first is awaited.
                let sent: Vec<_> = guesses.iter().map(begin).collect();
                let mut ends = Vec::new();
                for transaction in sent {
                    ends.push(transaction.await);
                }
                match the_one_done(ends)? {
                    Ok(results) => created(&client, results, drafts.len()).await.map(Ok),
                    Err(refusals) => Ok(Err(refusals)),
                }
            }
            .boxed()
        })
    }

    /// Creates a node and deletes another, if that still has this version.
    pub(crate) fn replace(&self, draft: Draft, old: &str, version: i32) -> Answer<Outcome<Created>> {
        let old = old.to_owned();
        self.send(Request::Write, move |client| {
            async move {
                let add = |writer: &mut MultiWriter<'_>| {
                    draft.add_to(writer)?;
                    writer.add_delete(&old, Some(version))
                };
                match transact(&client, add).await? {
                    Ok(results) => Ok(Ok(created(&client, results, 1).await?.swap_remove(0))),
                    Err(refusal) => Ok(Err(refusal)),
                }
            }
            .boxed()
        })
    }

    /// Deletes several nodes.
    pub(crate) fn delete_all(&self, paths: Vec<String>) -> Answer<Outcome<()>> {
        self.send(Request::Write, move |client| {
            async move {
                let add =
                    |writer: &mut MultiWriter<'_>| paths.iter().try_for_each(|path| writer.add_delete(path, None));
                Ok(transact(&client, add).await?.map(drop))
            }
            .boxed()
        })
    }

    /// Asks a quorum whether a node exists. See [`check_all`](Self::check_all).
    pub(crate) fn check(&self, path: &str) -> Answer<Option<usize>> {
        self.check_all(vec![path.to_owned()])
    }

    /// Asks a quorum whether all of some nodes exist, and which is the first that does not: a transaction of checks, which
    /// changes nothing and wakes no watch.
    ///
    /// It needs a quorum either way, so it is a barrier for all that was sent before it, which `sync` is not: a leader
    /// that was deposed without noticing answers `sync`.
    pub(crate) fn check_all(&self, paths: Vec<String>) -> Answer<Option<usize>> {
        self.send(Request::Write, move |client| {
            async move {
                let add = |writer: &mut MultiWriter<'_>| {
                    paths.iter().try_for_each(|path| writer.add_check_version(path, -1))
                };
                match transact(&client, add).await? {
                    Err(Refusal { error: ZkError::NoNode, index }) => Ok(Some(index)),
                    // Whatever else a check stumbles on (it needs READ), a quorum has answered.
                    Ok(_) | Err(_) => Ok(None),
                }
            }
            .boxed()
        })
    }
}

/// Commits what `add` puts into a transaction. The request is sent by the first poll.
async fn transact(client: &Client, add: impl FnOnce(&mut MultiWriter<'_>) -> Result<(), ZkError>) -> Ended {
    begin(client, add).await
}

/// Sends a transaction of what `add` puts into it.
fn begin<'a>(
    client: &'a Client,
    add: impl FnOnce(&mut MultiWriter<'_>) -> Result<(), ZkError>,
) -> BoxFuture<'a, Ended> {
    let mut writer = client.new_multi_writer();
    let committed = add(&mut writer).map(|()| writer.commit());
    async move { outcome(committed?.await) }.boxed()
}

fn outcome(result: Result<Vec<MultiWriteResult>, MultiWriteError>) -> Ended {
    match result {
        Ok(results) => Ok(Ok(results)),
        // The session is checked with every part.
        Err(MultiWriteError::OperationFailed { source, .. })
            if !matches!(Failure::of(source.clone()), Failure::Refused(_)) =>
        {
            Err(source)
        }
        Err(MultiWriteError::OperationFailed { index, source }) => Ok(Err(Refusal { index, error: source })),
        Err(MultiWriteError::RequestFailed { source }) => Err(source),
    }
}

/// Sends the create of one node.
fn create<'a>(client: &'a Client, draft: &Draft, path: &'a str) -> BoxFuture<'a, Ended> {
    let (is_sequential, created) = (draft.is_sequential, draft.send(client, path));
    async move {
        let result = created.await.map(|(stat, number)| {
            let path = if is_sequential { format!("{path}{number}") } else { path.to_owned() };
            vec![MultiWriteResult::Create { path, stat }]
        });
        outcome(result.map_err(|source| MultiWriteError::OperationFailed { index: 0, source }))
    }
    .boxed()
}

/// The results of the one of several transactions that was done, or all refusals if all were refused.
fn the_one_done(ends: Vec<Ended>) -> Result<Result<Vec<MultiWriteResult>, Vec<Refusal>>, ZkError> {
    let (mut done, mut refusals, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for end in ends {
        match end {
            Ok(Ok(results)) => done.push(results),
            Ok(Err(refusal)) => refusals.push(refusal),
            Err(error) => failures.push(error),
        }
    }
    let refused = |error: &ZkError| matches!(Failure::of(error.clone()), Failure::Refused(_));
    let has_changed_nothing = |refusal: &Refusal| Failure::is_certain(&refusal.error);
    match done.pop() {
        Some(results) if done.is_empty() && failures.is_empty() && refusals.iter().all(has_changed_nothing) => {
            Ok(Ok(results))
        }
        // What the others have made, or may have, is to be searched for.
        Some(_) => Err(ZkError::ConnectionLoss),
        None => match failures.iter().position(|error| !refused(error)).or(failures.len().checked_sub(1)) {
            // One that may have been done tells more than one that was refused as a whole.
            Some(failure) => Err(failures.swap_remove(failure)),
            None => Ok(Err(refusals)),
        },
    }
}

/// The last `count` of what a transaction has created, with the number of the transaction.
async fn created(client: &Client, results: Vec<MultiWriteResult>, count: usize) -> Result<Vec<Created>, ZkError> {
    let nodes: Vec<_> = results
        .into_iter()
        .filter_map(|result| match result {
            MultiWriteResult::Create { path, stat } => Some((path, stat)),
            _ => None,
        })
        .collect();
    // Servers before 3.7.2, 3.8.2 and 3.9.0 tell it of containers only (ZOOKEEPER-4026).
    let told = nodes.iter().map(|(_, stat)| stat).find(|stat| !stat.is_invalid() && stat.czxid > 0);
    let told = told.map(|stat| stat.czxid);
    let Some(nodes) = nodes.len().checked_sub(count).map(|containers| &nodes[containers..]) else {
        return Err(ZkError::UnexpectedError("a transaction of creates has created too little".to_owned()));
    };
    let czxid = match told {
        Some(czxid) => czxid,
        None => transaction(client, nodes).await?,
    };
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(nodes.iter().map(|(path, _)| Created { name: name(path), czxid }).collect())
}

/// The number of the transaction that created `nodes`, where its answer does not tell. One node tells for all.
async fn transaction(client: &Client, nodes: &[(String, Stat)]) -> Result<i64, ZkError> {
    for (path, _) in nodes {
        if let Some(stat) = client.check_stat(path).await? {
            return Ok(stat.czxid);
        }
    }
    // They were created, and all are gone again. That is not to be taken for a refusal.
    Err(ZkError::ConnectionLoss)
}
