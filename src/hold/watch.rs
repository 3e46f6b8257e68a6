//! Owns the background of a hold: it notices the loss when nobody asks, and watches the hold's own nodes.

use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select_all;

use crate::error::Loss;
use crate::hold::core::{Core, Stage};
use crate::session::{Failure, Fired, Link};

/// Stands behind a hold until it is released or lost.
pub(super) async fn guard(core: Arc<Core>) {
    let mut stage = core.stage.subscribe();
    tokio::select! {
        // The sender lives in `core`; an error cannot come.
        _ = stage.wait_for(|stage| *stage != Stage::Held) => {}
        _ = core.lost() => {}
        () = deleted(&core) => core.lose(Loss::Deleted),
    }
}

/// Waits until one of the hold's own nodes is gone while the session lives.
async fn deleted(core: &Core) {
    // A short hold is spared the watch, unless somebody asks to be told.
    tokio::select! {
        () = core.watch_wanted.notified() => {}
        () = tokio::time::sleep(core.link.timeout() / 8) => {}
    }
    select_all(core.nodes.iter().zip(&core.czxids).map(|(node, &czxid)| gone(&core.link, node, czxid).boxed()))
        .await;
}

/// Waits until the node that was created by the transaction `czxid` is gone; another of its name is not ours.
async fn gone(link: &Link, node: &str, czxid: i64) {
    // Watches are limited, and waiters cannot do without; a hold can look now and then.
    let room = link.watches.reserve_spare(link.cost(node.len()));
    loop {
        if link.connected().await.is_err() {
            return pending().await;
        }
        let looked = match &room {
            Some(_) => link.requests.watch(node).await.map(|(stat, watch)| (stat, Some(watch))),
            None => link.requests.read(node).await.map(|(_, stat)| (stat, None)),
        };
        match looked {
            Ok((stat, _)) if stat.czxid != czxid => return,
            Ok((_, Some(watch))) => match watch.fired().await {
                Fired::Deleted => return,
                Fired::Changed => {}
                Fired::SessionOver => return pending().await,
            },
            Ok((_, None)) => tokio::time::sleep(link.timeout() / 3).await,
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
