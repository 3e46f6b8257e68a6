//! Owns what a waiter waits for: one watch on what is in its way.

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::error::{Error, Result};
use crate::queue::admission::{Czxids, is_still};
use crate::queue::attempt::Interrupt;
use crate::queue::line::{Line, clear_strays};
use crate::queue::name::Name;
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
        move |requests, path| requests.watch_deletion(path),
        |(stat, watch)| {
            if stat.ephemeral_owner == id {
                tracing::debug!(path, "waiting behind a node of the same session");
            }
            is_still(czxids, name, stat.czxid).then_some(watch)
        },
        // A name at the end of the counter may be given again.
        || match Name::parse(name) {
            Some(name) if name.is_in_zone() => ready(Ok(false)).boxed(),
            Some(_) | None => link.still_lists(&line.path, name).boxed(),
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
        // To look again costs no more than to look whether that is needed.
        || ready(Ok(false)).boxed(),
    )
    .await
}

/// Sends a request that sets a watch, and waits for that if `choose` finds nothing that speaks against it. Now and then it
/// asks whether all is `unchanged`, because an event may never come: no server sends one to whom the ACLs of the moment
/// deny the node.
async fn watch<'a, T: Send + Unpin + 'static>(
    link: &Arc<Link>,
    path: &str,
    room: &mut Option<Reserved>,
    send: impl FnOnce(&Requests, &str) -> Answer<T> + Send + 'static,
    choose: impl FnOnce(T) -> Option<Watch>,
    unchanged: impl Fn() -> BoxFuture<'a, Result<bool, Failure>>,
) -> Result<(), Interrupt> {
    link.make_room(room, path.len())?;
    let node = path.to_owned();
    match link.ask(move |requests| send(requests, &node)).await {
        Ok(seen) => match choose(seen) {
            Some(watch) => tokio::select! {
                fired = watch.fired() => match fired {
                    Fired::Deleted | Fired::Changed => Ok(()),
                    Fired::SessionOver => Err(Interrupt::SessionOver),
                },
                changed = changed(link, unchanged) => changed,
            },
            None => Ok(()),
        },
        Err(Failure::Refused(ZkError::NoNode)) => Ok(()),
        Err(Failure::Refused(error)) => Err(Error::refused("watch", path, error).into()),
        Err(Failure::Unknown) => Ok(link.settled().await?),
        Err(Failure::Over) => Err(Interrupt::SessionOver),
    }
}

/// Waits until a slow look finds that something has changed.
async fn changed<'a>(
    link: &Arc<Link>,
    unchanged: impl Fn() -> BoxFuture<'a, Result<bool, Failure>>,
) -> Result<(), Interrupt> {
    loop {
        link.slow_look().await;
        match unchanged().await {
            Ok(true) | Err(Failure::Unknown) => {}
            // What is refused here is refused to whoever looks again, too, who says so.
            Ok(false) | Err(Failure::Refused(_)) => return Ok(()),
            Err(Failure::Over) => return Err(Interrupt::SessionOver),
        }
    }
}
