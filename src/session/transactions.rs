//! Owns the transactions: requests of several parts, all of which are done or none.
//!
//! 1. Nodes that are created in one transaction have one place in the order of all transactions, so no order of paths
//!    can make two callers wait for each other.
//! 2. A transaction that is refused changes nothing, and tells which of its parts was in the way.

use futures_util::FutureExt;
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

impl Requests {
    /// Creates several nodes.
    pub(crate) fn create_all(&self, drafts: Vec<Draft>) -> Answer<Outcome<Vec<Created>>> {
        self.send(Request::Write, move |client| {
            async move {
                let add = |writer: &mut MultiWriter<'_>| drafts.iter().try_for_each(|draft| draft.add_to(writer));
                match transact(&client, add).await? {
                    Ok(results) => created(&client, results).await.map(Ok),
                    Err(refusal) => Ok(Err(refusal)),
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
                    Ok(results) => Ok(Ok(created(&client, results).await?.swap_remove(0))),
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
async fn transact(
    client: &Client,
    add: impl FnOnce(&mut MultiWriter<'_>) -> Result<(), ZkError>,
) -> Result<Outcome<Vec<MultiWriteResult>>, ZkError> {
    let mut writer = client.new_multi_writer();
    add(&mut writer)?;
    match writer.commit().await {
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

/// The nodes that a transaction has created, with the number of the transaction.
async fn created(client: &Client, results: Vec<MultiWriteResult>) -> Result<Vec<Created>, ZkError> {
    let nodes: Vec<_> = results
        .into_iter()
        .filter_map(|result| match result {
            MultiWriteResult::Create { path, stat } => Some((path, stat)),
            _ => None,
        })
        .collect();
    let Some((_, stat)) = nodes.first() else {
        return Err(ZkError::UnexpectedError("a transaction of creates has created nothing".to_owned()));
    };
    let czxid = if stat.is_invalid() || stat.czxid <= 0 { transaction(client, &nodes).await? } else { stat.czxid };
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(nodes.iter().map(|(path, _)| Created { name: name(path), czxid }).collect())
}

/// Servers before 3.7.2, 3.8.2 and 3.9.0 do not say which transaction it was (ZOOKEEPER-4026). One node tells for all.
async fn transaction(client: &Client, nodes: &[(String, Stat)]) -> Result<i64, ZkError> {
    for (path, _) in nodes {
        if let Some(stat) = client.check_stat(path).await? {
            return Ok(stat.czxid);
        }
    }
    // They were created, and all are gone again. That is not to be taken for a refusal.
    Err(ZkError::ConnectionLoss)
}
