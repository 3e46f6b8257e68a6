//! Owns [`Observer`], which reports leaders without being a candidate.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use zookeeper_client::OneshotWatcher;

use crate::contender::Contender;
use crate::driver::{Core, longest_child};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::queue::{NodeName, Queue};
use crate::session::{Interrupt, Looks, Zk, found};

/// An observer of the leaders of an election, returned by [`Election::observe`](crate::Election::observe).
///
/// An observer reports every leader that stays, across lost connections and sessions. It reads at most five times a
/// second, so it may miss a leader that resigns, or a proclamation that is replaced, between two reads.
///
/// # Examples
///
/// ```no_run
/// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
/// let mut observer = election.observe();
/// loop {
///     match observer.changed().await? {
///         Some(leader) => println!("{} leads", leader.identifier_lossy()),
///         None => println!("no leader"),
///     }
/// }
/// # }
/// ```
pub struct Observer {
    lock: Lock,
    /// `None` before the first call of [`changed`](Self::changed).
    looks: Option<Looks>,
    /// The leader that was returned last. Inner `None`: there was no leader. Outer `None`: nothing was returned yet.
    last: Option<Option<Contender>>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("path", &self.lock.path).field("last", &self.last).finish_non_exhaustive()
    }
}

impl Observer {
    pub(super) fn new(lock: Lock) -> Self {
        Self { lock, looks: None, last: None }
    }

    /// Waits until the leader differs from the one that was returned last: another leader, no leader, or the same leader
    /// with a new proclamation. The first call returns the current leader, without waiting for a change.
    ///
    /// A revocation alone is not reported: the leader that was returned last, identifier included, still applies. (A leader
    /// that was revoked before this observer saw it has an empty [identifier](Contender::identifier) until it proclaims
    /// something.) [`Election::leader`](crate::Election::leader) and [`contenders`](crate::Election::contenders) show
    /// whether the leader was asked to resign.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NoAuth`] if the ACLs deny it; [`Error::Closed`] and [`Error::SessionEnded`] if there is no session any
    /// more; [`Error::SessionFull`] if the session has too many watches.
    pub async fn changed(&mut self) -> Result<Option<Contender>> {
        let (lock, queue) = (&self.lock, self.lock.queues.first().expect("an election has a queue"));
        let looks = match &mut self.looks {
            Some(looks) => looks,
            none => none.insert(lock.session.looks_at_child_of(queue.path.as_str())?),
        };
        loop {
            looks.due().await;
            let seen = looks.attempt(|zk| async move { look(lock, queue, &zk).await });
            // `None`: the leader has changed since the listing.
            let Some(leader) = seen.await? else {
                looks.look_by(Instant::now());
                continue;
            };
            if is_news(self.last.as_ref(), leader.as_ref()) {
                return Ok(self.last.insert(leader).clone());
            }
        }
    }
}

/// Returns whether `leader` differs from the leader that was returned last.
fn is_news(last: Option<&Option<Contender>>, leader: Option<&Contender>) -> bool {
    match (last, leader) {
        // A revocation overwrites the data of the leader, but does not make it another leader.
        (Some(Some(last)), Some(leader)) if leader.revoke_requested() => !last.is_same_node(leader),
        (last, leader) => last.map(Option::as_ref) != Some(leader),
    }
}

/// The leader, and the watch for a change, if one was set. Inner `None`: there is no leader. Outer `None`: the leader has
/// changed since the listing.
type Seen = (Option<Option<Contender>>, Option<OneshotWatcher>);

const CHANGED: Seen = (None, None);

/// Finds the leader, and watches for a change.
async fn look(lock: &Lock, queue: &Queue, zk: &Zk) -> Result<Seen, Interrupt> {
    match queue.first(lock.session.core(), zk).await? {
        Some(first) => read_leader(lock, queue, &first, zk).await,
        None => watch_for_any(lock.session.core(), queue.path.as_str(), zk).await,
    }
}

/// Reads the node of the first candidate. Watches the node, unless its name is longer than all names that this crate
/// creates: the observer has reserved too few bytes for a watch on a longer name.
async fn read_leader(
    lock: &Lock,
    queue: &Queue,
    (name, czxid): &(String, Option<i64>),
    zk: &Zk,
) -> Result<Seen, Interrupt> {
    let (parent, node) = (queue.path.as_str(), queue.path.child(name));
    let read = if node.len() <= longest_child(parent) {
        let watched = zk.retry("watch_data", || zk.watch_data(&node)).await?;
        watched.map(|(data, stat, watch)| (data, stat, Some(watch)))
    } else {
        zk.retry("read", || zk.data(&node)).await?.map(|(data, stat)| (data, stat, None))
    };
    let Some((data, stat, watch)) = found(read, "watch", parent)? else { return Ok(CHANGED) };
    // Another node may have the name by now.
    let Some(name) = NodeName::parse(name).filter(|_| czxid.is_none_or(|known| known == stat.czxid)) else {
        return Ok(CHANGED);
    };
    let leader = Contender::new(lock, queue, &name, data, &stat)?.holding();
    Ok((Some(Some(leader)), watch))
}

/// Watches for the first candidate to come: watches the children of the path, or the creation of a missing path.
async fn watch_for_any(core: &Arc<Core>, path: &str, zk: &Zk) -> Result<Seen, Interrupt> {
    let children = zk.retry("watch_children", || zk.watch_children(path)).await?;
    let (nobody, watch) = match found(children, "watch", path)? {
        Some((names, _, watch)) => {
            let names = core.without_orphans(path, names, false);
            (names.iter().all(|text| NodeName::parse(text).is_none()), watch)
        }
        None => {
            let answer = zk.retry("watch_existence", || zk.watch_existence(path)).await?;
            let (stat, watch) = answer.map_err(|error| Error::refused("watch", path, error))?;
            (stat.is_none(), watch)
        }
    };
    Ok(if nobody { (Some(None), Some(watch)) } else { CHANGED })
}
