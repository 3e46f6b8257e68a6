//! Owns the background of a hold: it notices the loss when nobody asks, and watches the hold's own nodes.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::{Loss, ZkError};
use crate::hold::core::{Core, Stage};
use crate::path::LockPath;
use crate::session::{Event, Failure, Reserved, ServerSession, SessionOver};

/// Nodes without a watch that are more than this are not read one by one, so their data goes unseen.
const MANY: usize = 16;

/// Watches over a hold until it is released or lost.
pub(super) async fn watch_over(core: Arc<Core>) {
    let mut stages = core.stage.subscribe();
    loop {
        let stage = *stages.borrow_and_update();
        if core.state().ended().is_some() {
            return;
        }
        let mut lost = pin!(core.end());
        if let Stage::Held(_) = stage {
            let (holder, nodes) = (core.clone(), core.nodes());
            let mut watches = NodeWatches::begin(&core.zk, &nodes, Arc::new(move |data: &[u8]| holder.saw(data)));
            let ended = tokio::select! {
                biased;
                () = left(&mut stages, stage) => false,
                _ = &mut lost => true,
                () = deleted(&mut watches, &core) => {
                    core.lose_at(stage, Loss::Deleted);
                    false
                }
            };
            watches.use_up(&core.zk);
            if ended {
                return;
            }
        }
        tokio::select! {
            biased;
            () = left(&mut stages, stage) => {}
            _ = lost => return,
        }
    }
}

/// Waits until the hold is at another stage.
async fn left(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    // The sender lives in the core; an error cannot come.
    let _ = stages.wait_for(|now| *now != stage).await;
}

/// Waits until a node is gone, or the path that it was in.
async fn deleted(watches: &mut NodeWatches, core: &Core) {
    tokio::select! {
        _ = watches.any_gone() => {}
        () = other_path(core) => {}
    }
}

/// Looks once whether the lock path is still the one in which the lock was granted, if nobody has looked at it then; waits for
/// ever if it is. It was readable when its watch was set: without READ there came no event, either.
async fn other_path(core: &Core) {
    if let Some((path, czxid)) = core.path_unseen()
        && let Ok(seen) = core.zk.retry(|| core.zk.read(path.as_str())).await
        && !seen.is_ok_and(|(_, stat)| stat.czxid == czxid)
    {
        return;
    }
    pending().await
}

/// Takes what a node's data is when it may have changed.
type Seen = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Watches the nodes of one acquisition, for the first that is gone while the session lives.
pub(crate) struct NodeWatches {
    zk: Arc<ServerSession>,
    watched: FuturesUnordered<BoxFuture<'static, String>>,
    unwatched: FuturesUnordered<BoxFuture<'static, String>>,
    /// Too many for a look each.
    many: Vec<String>,
}

impl NodeWatches {
    /// Begins to watch `nodes` (paths, and the transactions that created them); hands out the data of each whenever it
    /// may have changed.
    pub(crate) fn begin(zk: &Arc<ServerSession>, nodes: &[(String, i64)], seen: Seen) -> Self {
        // Watches are limited, and waiters cannot do without; a hold can look now and then.
        let rooms = nodes.iter().map(|(node, _)| zk.reserve_spare_watch(node.len()));
        let (watched, unwatched): (Vec<_>, Vec<_>) = nodes.iter().zip(rooms).partition(|(_, room)| room.is_some());
        let (few, many) = if unwatched.len() <= MANY { (unwatched, Vec::new()) } else { (Vec::new(), unwatched) };
        let look = |((node, czxid), room): (&(String, i64), Option<Reserved>)| {
            let (zk, node, czxid, seen) = (zk.clone(), node.clone(), *czxid, seen.clone());
            async move {
                gone(&zk, &node, czxid, room.is_some(), &*seen).await;
                node
            }
            .boxed()
        };
        Self {
            zk: zk.clone(),
            watched: watched.into_iter().map(look).collect(),
            unwatched: few.into_iter().map(look).collect(),
            many: many.into_iter().map(|((node, _), _)| node.clone()).collect(),
        }
    }

    /// Waits until one of the nodes is gone; returns which.
    pub(crate) async fn any_gone(&mut self) -> String {
        tokio::select! {
            Some(node) = self.watched.next(), if !self.watched.is_empty() => node,
            Some(node) = self.unwatched.next(), if !self.unwatched.is_empty() => node,
            node = one_of(&self.zk, &self.many), if !self.many.is_empty() => node,
            else => pending().await,
        }
    }

    /// Lets the events of nodes that are being deleted use up the watches: to take one back costs two requests.
    fn use_up(self, zk: &Arc<ServerSession>) {
        let (mut watched, patience) = (self.watched, zk.timeout());
        let used_up = async move { while watched.next().await.is_some() {} };
        zk.background(async move { drop(timeout(patience, used_up).await) }.boxed());
    }
}

/// Waits until one of many nodes is gone, asking for all of them at once now and then.
async fn one_of(zk: &ServerSession, nodes: &[String]) -> String {
    loop {
        sleep(zk.times().look()).await;
        match zk.retry(|| zk.check(nodes.to_vec())).await {
            Ok(Ok(Some(gone))) => return nodes[gone].clone(),
            Ok(Ok(None) | Err(_)) => {}
            Err(SessionOver) => return pending().await,
        }
    }
}

/// Waits until the node that was created by the transaction `czxid` is gone; another of its name is not ours.
async fn gone(
    zk: &Arc<ServerSession>,
    node: &str,
    czxid: i64,
    watches: bool,
    seen: &(dyn Fn(&[u8]) + Send + Sync),
) {
    loop {
        let look = || {
            if watches {
                zk.watch_data(node).map_ok(|(data, stat, watch)| (data, stat, Some(watch))).left_future()
            } else {
                zk.read(node).map_ok(|(data, stat)| (data, stat, None)).right_future()
            }
        };
        let (data, stat, watch) = match zk.retry(look).await {
            Ok(Ok(seen)) => seen,
            // The servers have seen its creation, since we have seen the answer; so it is gone.
            Ok(Err(ZkError::NoNode)) => return,
            Ok(Err(error)) => {
                tracing::warn!(node, %error, "cannot watch the node of a hold; its deletion is noticed late");
                return unlisted(zk, node).await;
            }
            Err(SessionOver) => return pending().await,
        };
        if stat.czxid != czxid {
            return;
        }
        seen(&data);
        match watch {
            Some(watch) => tokio::select! {
                fired = watch.fired() => match fired {
                    Ok(Event::Deleted) => return,
                    Ok(Event::Changed) => {}
                    Err(SessionOver) => return pending().await,
                },
                () = unlisted(zk, node) => return,
            },
            None => sleep(zk.times().look()).await,
        }
    }
}

/// Waits until a slow look does not find the node. Of one that may not be read no server sends an event.
async fn unlisted(zk: &Arc<ServerSession>, node: &str) {
    let Some((path, name)) = node.rsplit_once('/') else {
        return pending().await;
    };
    let Ok(path) = LockPath::new(path) else {
        return pending().await;
    };
    loop {
        zk.slow_look().await;
        match zk.list_together(&path).await {
            Ok(names) if !names.contains(name) => return,
            Err(Failure::Refused(ZkError::NoNode)) => return,
            // Of what may not be listed nothing is known.
            Ok(_) | Err(Failure::Refused(_) | Failure::Unknown) => {}
            Err(Failure::SessionOver) => return pending().await,
        }
    }
}
