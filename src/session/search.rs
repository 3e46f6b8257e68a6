//! Owns the search for nodes that may have been left: those whose creates had an unknown outcome, by the guid in their names.
//!
//! 1. It lists behind a barrier that needs a quorum, so it misses nothing that was sent before.
//! 2. It is done again a second later, because a server was seen to apply a request of a lost connection after the search.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use uuid::Uuid;

use crate::error::ZkError;
use crate::path::LockPath;
use crate::session::cleanup::{Deletion, delete_all, delete_in_background, send};
use crate::session::nodes::{OwnNode, OwnNodes};
use crate::session::register::carries;
use crate::session::request::{Failure, SessionOver};
use crate::session::server_session::ServerSession;

/// How long after the first search a create of a lost connection may still come to be applied.
pub(super) const SECOND_LOOK: Duration = Duration::from_secs(1);

/// About how large a request becomes that deletes many nodes, and what each adds to the length of its path. A server refuses
/// more than a megabyte.
const REQUEST_BYTES: usize = 900_000;
const NODE_BYTES: usize = 100;

/// Deletes what a session that is being closed has left.
pub(super) async fn delete_leftovers(zk: &Arc<ServerSession>) {
    let left = zk.nodes.left();
    // The end of a session of ours removes what a second look would find; a given one goes on.
    if search(zk, &left).await.is_ok() && !zk.is_owned() {
        tokio::time::sleep(SECOND_LOOK).await;
        let _ = search(zk, &left).await;
    }
}

/// Searches for nodes whose creates had an unknown outcome, and deletes them.
pub(super) async fn search_twice(zk: Arc<ServerSession>, wanted: Vec<(LockPath, Uuid)>) {
    if search(&zk, &wanted).await.is_err() {
        return;
    }
    if zk.is_owned() {
        // What a second look finds is rare, and the end of a session of ours removes it, so closing need not wait for it.
        wanted.iter().for_each(|(_, guid)| zk.nodes.gone(*guid));
    }
    tokio::time::sleep(SECOND_LOOK).await;
    if search(&zk, &wanted).await.is_ok() {
        wanted.iter().for_each(|(_, guid)| zk.nodes.gone(*guid));
    }
}

/// Searches once more for the doubles of nodes that are about to be held, if a create of them had an unknown outcome.
pub(crate) fn delete_late_doubles(nodes: &OwnNodes) {
    if !nodes.is_uncertain() {
        return;
    }
    let zk = nodes.zk().clone();
    let wanted: Vec<_> = nodes.as_slice().iter().map(OwnNode::wanted).collect();
    let known: HashSet<_> = nodes.paths().into_iter().map(|(path, _)| path).collect();
    let work = async move {
        tokio::time::sleep(SECOND_LOOK).await;
        for ((parent, _), names) in wanted.iter().zip(find(&zk, &wanted).await.unwrap_or_default()) {
            let doubles = names.iter().filter(|name| !known.contains(&parent.child(name)));
            doubles.for_each(|name| delete_in_background(&zk, parent, name));
        }
    };
    nodes.zk().background(work.boxed());
}

/// Deletes the nodes with these guids.
async fn search(zk: &Arc<ServerSession>, wanted: &[(LockPath, Uuid)]) -> Result<(), SessionOver> {
    let found = find(zk, wanted).await?;
    let found = wanted.iter().zip(found);
    let (guids, paths): (Vec<_>, Vec<_>) = found
        .flat_map(|((parent, guid), names)| {
            names.into_iter().map(|name| (*guid, parent.child(&name))).collect::<Vec<_>>()
        })
        .unzip();
    if paths.is_empty() {
        return Ok(());
    }
    zk.connected().await?;
    let longest = paths.iter().map(String::len).max().unwrap_or_default();
    let requests = paths.chunks((REQUEST_BYTES / (longest + NODE_BYTES)).max(1)).map(|chunk| send(zk, chunk));
    let firsts = join_all(requests.collect::<Vec<_>>()).await.concat();
    for (guid, end) in guids.into_iter().zip(delete_all(zk, &paths, firsts).await) {
        if let Deletion::Refused { .. } = end {
            zk.nodes.stays(guid);
        }
    }
    Ok(())
}

/// The children of each parent with the guid beside it, as of now: behind a barrier, so that nothing sent before is
/// missed. The listings may be shared with other searches, as they are never sent before the barrier.
pub(crate) async fn find(
    zk: &Arc<ServerSession>,
    wanted: &[(LockPath, Uuid)],
) -> Result<Vec<Vec<String>>, SessionOver> {
    // Many may have one parent, which is listed once.
    let parents: HashSet<_> = wanted.iter().map(|(parent, _)| parent).collect();
    let Some(any) = parents.iter().next() else {
        return Ok(Vec::new());
    };
    let found = zk.retry(|| {
        // Sent in one poll, the barrier first.
        let barrier = zk.check(vec![any.as_str().to_owned()]);
        let listings = join_all(parents.iter().map(|parent| zk.list_together(parent)));
        join(barrier, listings).map(|(barrier, listings)| {
        let mut names = HashMap::new();
        for (parent, listing) in parents.iter().zip(listings) {
            match (&barrier, listing) {
                (Err(Failure::SessionOver), _) | (_, Err(Failure::SessionOver)) => return Err(Failure::SessionOver),
                (Ok(_), Ok(listing)) => drop(names.insert(*parent, listing)),
                // Without a parent there is no child.
                (Ok(_), Err(Failure::Refused(ZkError::NoNode))) => {}
                (Ok(_) | Err(Failure::Refused(_)), Err(Failure::Refused(error))) => {
                    tracing::warn!(path = parent.as_str(), %error, "cannot look for a lock node that may have been left");
                }
                (Err(_), _) | (_, Err(Failure::Unknown)) => return Err(Failure::Unknown),
            }
        }
        Ok(names)
        })
    });
    // The closure returns no refusal, so there always are names.
    let names = found.await?.unwrap_or_default();
    let with_guid = |(parent, guid): &(LockPath, Uuid)| {
        let all = names.get(parent).into_iter().flat_map(|names| names.as_slice().iter().chain(names.abandoned()));
        all.filter(|name| carries(name, *guid)).cloned().collect()
    };
    Ok(wanted.iter().map(with_guid).collect())
}
