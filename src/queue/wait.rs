//! Owns what a waiter waits for: one watch on what is in its way.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::queue::admission::{Czxids, is_still};
use crate::queue::attempt::Interrupt;
use crate::queue::line::{Line, clear_strays};
use crate::session::{Answer, Failure, Fired, Link, Requests, Reserved, Watch};

type ZkError = zookeeper_client::Error;

/// Waits until the node `name` in front of us is gone, or may be; or turns out to be another than the one that we know.
pub(super) async fn behind(
    link: &Arc<Link>,
    line: &Line,
    name: &str,
    czxids: &mut Czxids,
    room: &mut Option<Reserved>,
) -> Result<(), Interrupt> {
    let (id, path) = (link.id().0, line.path.child(name));
    watch(
        link,
        &path,
        room,
        move |requests, path| requests.watch(path),
        |(_, stat, watch)| {
            if stat.ephemeral_owner == id {
                tracing::debug!(path, "waiting behind a node of the same session");
            }
            is_still(czxids, name, stat.czxid).then_some(watch)
        },
    )
    .await
}

/// Waits until a line with `excess` more than there is room for has changed.
pub(super) async fn for_room(
    link: &Arc<Link>,
    line: &Line,
    excess: usize,
    room: &mut Option<Reserved>,
) -> Result<(), Interrupt> {
    watch(
        link,
        line.path.as_str(),
        room,
        move |requests, path| requests.watch_children(path),
        |(mut names, watch)| {
            clear_strays(link, &line.path, &mut names);
            // If some have left since we looked, our turn is nearer than we told.
            (line.excess(&names) >= excess).then_some(watch)
        },
    )
    .await
}

/// Sends a request that sets a watch, and waits for that if `choose` finds nothing that speaks against it.
async fn watch<T: Send + Unpin + 'static>(
    link: &Arc<Link>,
    path: &str,
    room: &mut Option<Reserved>,
    send: impl FnOnce(&Requests, &str) -> Answer<T> + Send + 'static,
    choose: impl FnOnce(T) -> Option<Watch>,
) -> Result<(), Interrupt> {
    link.make_room(room, path.len())?;
    let node = path.to_owned();
    match link.ask(move |requests| send(requests, &node)).await {
        Ok(seen) => match choose(seen) {
            Some(watch) => match watch.fired().await {
                Fired::Deleted | Fired::Changed => Ok(()),
                Fired::SessionOver => Err(Interrupt::SessionOver),
            },
            None => Ok(()),
        },
        Err(Failure::Refused(ZkError::NoNode)) => Ok(()),
        Err(Failure::Refused(error)) => Err(Error::refused("watch", path, error).into()),
        Err(Failure::Unknown) => Ok(link.settled().await?),
        Err(Failure::Over) => Err(Interrupt::SessionOver),
    }
}
