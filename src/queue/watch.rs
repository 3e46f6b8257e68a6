//! Owns what a waiter waits for: one watch, on its predecessor or on a full queue.

use std::future::{Future, ready};
use std::sync::Arc;

use futures_util::FutureExt;

use crate::error::{Error, Result};
use crate::queue::order::{Czxids, Name, update_czxid};
use crate::queue::{Queue, ZkError};
use crate::session::{Answer, Failure, Interrupt, Reserved, ServerSession, SessionOver, Watch, delete_abandoned};

/// Waits until the predecessor is gone, or may be; or turns out to be another node than the one that is known.
pub(super) async fn predecessor(
    zk: &Arc<ServerSession>,
    queue: &Queue,
    name: &str,
    czxids: &mut Czxids,
    reserved: &mut Option<Reserved>,
) -> Result<(), Interrupt> {
    let path = queue.path.child(name);
    watch(
        zk,
        &path,
        reserved,
        || zk.watch_children(&path),
        |(_, stat, watch)| {
            if stat.ephemeral_owner == zk.id().0 {
                tracing::debug!(path, "waiting behind a node of the same session");
            }
            update_czxid(czxids, name, stat.czxid).then_some(watch)
        },
        || match Name::parse(name) {
            // A name at the end of the counter may be given again.
            Some(name) if name.is_in_zone() => ready(Ok(false)).left_future(),
            _ => zk
                .list_together(&queue.path)
                .map(|listing| listing.map(|names| names.contains(name)))
                .right_future(),
        },
    )
    .await
}

/// Waits until a queue with `excess` more nodes than permits has changed.
pub(super) async fn room(
    zk: &Arc<ServerSession>,
    queue: &Queue,
    excess: usize,
    reserved: &mut Option<Reserved>,
) -> Result<(), Interrupt> {
    watch(
        zk,
        queue.path.as_str(),
        reserved,
        || zk.watch_children(queue.path.as_str()),
        |(names, _, watch)| {
            // If some have left since we looked, our turn is nearer than was reported.
            let names = zk.without_abandoned(names);
            delete_abandoned(zk, &queue.path, &names);
            (queue.excess(names.as_slice().len()) >= excess).then_some(watch)
        },
        // To look again costs no more than to look whether that is needed.
        || ready(Ok(false)),
    )
    .await
}

/// Sets a watch, and waits for it if `choose` finds no reason against it. Now and then it asks whether all is `unchanged`,
/// because an event may never come: servers send none to a client that the ACLs of the moment deny the node.
async fn watch<T, F: Future<Output = Result<bool, Failure>>>(
    zk: &ServerSession,
    path: &str,
    reserved: &mut Option<Reserved>,
    send: impl FnMut() -> Answer<T>,
    choose: impl FnOnce(T) -> Option<Watch>,
    mut unchanged: impl FnMut() -> F,
) -> Result<(), Interrupt> {
    zk.reserve_watch(reserved, path.len())?;
    let watch = match zk.retry(send).await? {
        Ok(seen) => match choose(seen) {
            Some(watch) => watch,
            None => return Ok(()),
        },
        Err(ZkError::NoNode) => return Ok(()),
        Err(error) => return Err(Error::refused("watch", path, error).into()),
    };
    let mut fired = std::pin::pin!(watch.fired());
    loop {
        let looked = async {
            zk.slow_look().await;
            unchanged().await
        };
        tokio::select! {
            fired = &mut fired => return Ok(fired.map(drop)?),
            looked = looked => match looked {
                Ok(true) | Err(Failure::Unknown) => {}
                // What is refused here is refused to the next look, too, which reports it.
                Ok(false) | Err(Failure::Refused(_)) => return Ok(()),
                Err(Failure::SessionOver) => return Err(SessionOver.into()),
            },
        }
    }
}
