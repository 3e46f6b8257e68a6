//! Owns the background of a hold: it notices the loss when nobody asks, and watches the hold's own nodes.

use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::time::sleep;

use crate::error::Loss;
use crate::hold::core::{Core, Stage};
use crate::session::{Failure, Fired, Link};

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
            () = left => {}
            _ = core.lost() => return,
            () = deleted(&core), if matches!(stage, Stage::Held(_)) => return core.lose(Loss::Deleted),
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
        () = core.watch_wanted.notified() => {}
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
    let watches = nodes.iter().map(|(node, czxid)| gone(link, node, *czxid, seen).boxed());
    let ((), index, _) = select_all(watches).await;
    nodes[index].0.clone()
}

/// Waits until the node that was created by the transaction `czxid` is gone; another of its name is not ours.
async fn gone(link: &Arc<Link>, node: &str, czxid: i64, seen: &(impl Fn(&[u8]) + Sync)) {
    // Watches are limited, and waiters cannot do without; a hold can look now and then.
    let room = link.watches.reserve_spare(link.cost(node.len()));
    let watches = room.is_some();
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
