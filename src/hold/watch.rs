//! Owns the background of a hold: it notices the loss when nobody asks, and watches the hold's own nodes.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::Loss;
use crate::hold::core::{Core, Stage};
use crate::path::LockPath;
use crate::session::{Failure, Fired, Link, Reserved};

/// Nodes without a watch that are more than this are not read one by one, so their data goes unseen.
const MANY: usize = 16;

/// Stands behind a hold until it is released or lost.
pub(super) async fn guard(core: Arc<Core>) {
    let mut stages = core.stage.subscribe();
    loop {
        let stage = *stages.borrow_and_update();
        let mut lost = pin!(core.lost());
        // A short hold is spared the watch, unless somebody asks to be told.
        let begun = tokio::select! {
            biased;
            () = left(&mut stages, stage) => false,
            _ = &mut lost => return,
            // A request to report a loss at once also holds for the node that replaces this one.
            () = core.watch_wanted.notified() => {
                core.watch_wanted.notify_one();
                true
            }
            () = sleep(core.link.timeout() / 8) => true,
        };
        if begun && matches!(stage, Stage::Held(_)) {
            let (holder, nodes) = (core.clone(), core.nodes());
            let mut looks = Looks::begin(&core.link, &nodes, Arc::new(move |data: &[u8]| holder.saw(data)));
            let ended = tokio::select! {
                biased;
                () = left(&mut stages, stage) => false,
                _ = &mut lost => true,
                _ = looks.any_gone() => {
                    core.lose_at(stage, Loss::Deleted);
                    false
                }
            };
            looks.use_up(&core.link);
            if ended {
                return;
            }
        }
        left(&mut stages, stage).await;
        if matches!(*core.stage.borrow(), Stage::Released | Stage::Lost(_)) {
            return;
        }
    }
}

/// Waits until the hold is at another stage.
async fn left(stages: &mut watch::Receiver<Stage>, stage: Stage) {
    // The sender lives in the core; an error cannot come.
    let _ = stages.wait_for(|now| *now != stage).await;
}

/// Takes what a node's data is when it may have changed.
type Seen = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Looks at the nodes of one acquisition, for the first that is gone while the session lives.
pub(crate) struct Looks {
    link: Arc<Link>,
    watched: FuturesUnordered<BoxFuture<'static, String>>,
    unwatched: FuturesUnordered<BoxFuture<'static, String>>,
    /// Too many for a look each.
    many: Vec<String>,
}

impl Looks {
    /// Begins to look at `nodes` (paths, and the transactions that created them); hands out the data of each whenever it
    /// may have changed.
    pub(crate) fn begin(link: &Arc<Link>, nodes: &[(String, i64)], seen: Seen) -> Self {
        // Watches are limited, and waiters cannot do without; a hold can look now and then.
        let rooms = nodes.iter().map(|(node, _)| link.watches.reserve_spare(link.cost(node.len())));
        let (watched, unwatched): (Vec<_>, Vec<_>) = nodes.iter().zip(rooms).partition(|(_, room)| room.is_some());
        let (few, many) = if unwatched.len() <= MANY { (unwatched, Vec::new()) } else { (Vec::new(), unwatched) };
        let look = |((node, czxid), room): (&(String, i64), Option<Reserved>)| {
            let (link, node, czxid, seen) = (link.clone(), node.clone(), *czxid, seen.clone());
            async move {
                gone(&link, &node, czxid, room.is_some(), &*seen).await;
                node
            }
            .boxed()
        };
        Self {
            link: link.clone(),
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
            node = one_of(&self.link, &self.many), if !self.many.is_empty() => node,
            else => pending().await,
        }
    }

    /// Lets the events of nodes that are being deleted use up the watches: to take one back costs two requests.
    fn use_up(self, link: &Arc<Link>) {
        let (mut watched, patience) = (self.watched, link.timeout());
        let used_up = async move { while watched.next().await.is_some() {} };
        link.background(async move { drop(timeout(patience, used_up).await) }.boxed());
    }
}

/// Waits until one of many nodes is gone, asking for all of them at once now and then.
async fn one_of(link: &Arc<Link>, nodes: &[String]) -> String {
    loop {
        sleep(link.timeout() / 3).await;
        if link.connected().await.is_err() {
            return pending().await;
        }
        let all = nodes.to_vec();
        match link.ask(move |requests| requests.check_all(all)).await {
            Ok(Some(gone)) => return nodes[gone].clone(),
            Ok(None) | Err(Failure::Refused(_) | Failure::Unknown) => {}
            Err(Failure::Over) => return pending().await,
        }
    }
}

/// Waits until the node that was created by the transaction `czxid` is gone; another of its name is not ours.
async fn gone(link: &Arc<Link>, node: &str, czxid: i64, watches: bool, seen: &(dyn Fn(&[u8]) + Send + Sync)) {
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
                    Some(watch) => tokio::select! {
                        fired = watch.fired() => match fired {
                            Fired::Deleted => return,
                            Fired::Changed => {}
                            Fired::SessionOver => return pending().await,
                        },
                        () = unlisted(link, node) => return,
                    },
                    None => sleep(link.timeout() / 3).await,
                }
            }
            // The servers have seen its creation, since we have seen the answer; so it is gone.
            Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return,
            Err(Failure::Refused(error)) => {
                tracing::warn!(node, %error, "cannot watch the node of a hold; its deletion is noticed late");
                return unlisted(link, node).await;
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

/// Waits until a slow look does not find the node. For one that may not be read no server sends an event.
async fn unlisted(link: &Arc<Link>, node: &str) {
    let Some((path, name)) = node.rsplit_once('/') else {
        return pending().await;
    };
    let Ok(path) = LockPath::new(path) else {
        return pending().await;
    };
    loop {
        link.slow_look().await;
        match link.still_lists(&path, name).await {
            Ok(false) | Err(Failure::Refused(zookeeper_client::Error::NoNode)) => return,
            // Of what may not be listed nothing can be said.
            Ok(true) | Err(Failure::Refused(_) | Failure::Unknown) => {}
            Err(Failure::Over) => return pending().await,
        }
    }
}
