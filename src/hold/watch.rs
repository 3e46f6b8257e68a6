//! Owns the background of a hold: it notices the loss when nobody asks, and watches the hold's own nodes.

use std::future::pending;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

use crate::error::Loss;
use crate::hold::core::{Core, Stage};
use crate::session::{Failure, Fired, Link};

/// Nodes without a watch that are more than this are not read one by one, so their data goes unseen.
const MANY: usize = 16;

/// Stands behind a hold until it is released or lost.
pub(super) async fn guard(core: Arc<Core>) {
    let mut stages = core.stage.subscribe();
    loop {
        let stage = *stages.borrow_and_update();
        let left = async {
            // The sender lives in `core`; an error cannot come.
            let _ = stages.wait_for(|now| *now != stage).await;
        };
        tokio::select! {
            biased;
            () = left => {}
            _ = core.lost() => return,
            () = deleted(&core), if matches!(stage, Stage::Held(_)) => core.lose_at(stage, Loss::Deleted),
        }
        if matches!(stage, Stage::Released | Stage::Lost(_)) {
            return;
        }
    }
}

/// Waits until one of the hold's own nodes is gone while the session lives.
async fn deleted(core: &Core) {
    let nodes = core.nodes();
    // A short hold is spared the watch, unless somebody asks to be told.
    tokio::select! {
        // Whoever asked to be told of this node will want to hear of the one that takes its place, too.
        () = core.watch_wanted.notified() => core.watch_wanted.notify_one(),
        () = sleep(core.link.timeout() / 8) => {}
    }
    any_gone(&core.link, &nodes, |data| core.saw(data)).await;
}

/// Waits until one of `nodes` (paths, and the transactions that created them) is gone while the session lives; tells
/// which. Hands out the data of each whenever it may have changed.
pub(crate) async fn any_gone(link: &Arc<Link>, nodes: &[(String, i64)], seen: impl Fn(&[u8]) + Sync) -> String {
    if nodes.is_empty() {
        return pending().await;
    }
    let seen = &seen;
    // Watches are limited, and waiters cannot do without; a hold can look now and then.
    let rooms = nodes.iter().map(|(node, _)| link.watches.reserve_spare(link.cost(node.len())));
    let (watched, unwatched): (Vec<_>, Vec<_>) = nodes.iter().zip(rooms).partition(|(_, room)| room.is_some());
    let (few, many) = if unwatched.len() <= MANY { (unwatched, Vec::new()) } else { (Vec::new(), unwatched) };
    let mut looks: FuturesUnordered<_> = watched
        .into_iter()
        .chain(few)
        .map(|((node, czxid), room)| async move {
            gone(link, node, *czxid, room.is_some(), seen).await;
            node.clone()
        })
        .collect();
    let many = many.into_iter().map(|((node, _), _)| node.clone()).collect();
    tokio::select! {
        Some(node) = looks.next(), if !looks.is_empty() => node,
        node = one_of(link, many) => node,
    }
}

/// Waits until one of many nodes is gone, asking for all of them at once now and then.
async fn one_of(link: &Arc<Link>, nodes: Vec<String>) -> String {
    if nodes.is_empty() {
        return pending().await;
    }
    loop {
        sleep(link.timeout() / 3).await;
        if link.connected().await.is_err() {
            return pending().await;
        }
        let all = nodes.clone();
        match link.ask(move |requests| requests.check_all(all)).await {
            Ok(Some(gone)) => return nodes[gone].clone(),
            Ok(None) | Err(Failure::Refused(_) | Failure::Unknown) => {}
            Err(Failure::Over) => return pending().await,
        }
    }
}

/// Waits until the node that was created by the transaction `czxid` is gone; another of its name is not ours.
async fn gone(link: &Arc<Link>, node: &str, czxid: i64, watches: bool, seen: &(impl Fn(&[u8]) + Sync)) {
    loop {
        if link.connected().await.is_err() {
            return pending().await;
        }
        let path = node.to_owned();
        let looked = if watches {
            let answer = link.ask(move |requests| requests.watch(&path)).await;
            answer.map(|(data, stat, watch)| (data, stat, Some(watch)))
        } else {
            link.ask(move |requests| requests.read(&path)).await.map(|(data, stat)| (data, stat, None))
        };
        match looked {
            Ok((_, stat, _)) if stat.czxid != czxid => return,
            Ok((data, _, watch)) => {
                seen(&data);
                match watch {
                    Some(watch) => match watch.fired().await {
                        Fired::Deleted => return,
                        Fired::Changed => {}
                        Fired::SessionOver => return pending().await,
                    },
                    None => sleep(link.timeout() / 3).await,
                }
            }
            // The servers have seen its creation, since we have seen the answer; so it is gone.
            Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return,
            Err(Failure::Refused(error)) => {
                tracing::warn!(node, %error, "cannot watch the node of a hold; its deletion would not be noticed");
                return pending().await;
            }
            Err(Failure::Unknown) => {
                if link.settled().await.is_err() {
                    return pending().await;
                }
            }
            Err(Failure::Over) => return pending().await,
        }
    }
}
