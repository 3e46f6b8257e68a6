//! Owns [`Observer`]: who sees every leader that stays, without standing.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;

use crate::contender::Contender;
use crate::error::{Error, Result};
use crate::queue::{Czxids, Interrupt, Line, Name, Queue, attempt, clear_strays, is_still};
use crate::session::{Failure, Fired, Link, Watch};

type ZkError = zookeeper_client::Error;

/// Sees who leads; made by [`Election::observe`](crate::Election::observe).
///
/// It sees every leader that stays, also over lost connections and sessions. One that is gone again before it could be
/// looked at may go unseen.
pub struct Observer {
    queue: Queue,
    /// What was told last.
    told: Option<Option<Contender>>,
    /// What was read of those who stand at the end of the counter.
    czxids: Mutex<Czxids>,
}

impl Observer {
    pub(super) fn new(queue: Queue) -> Self {
        Self { queue, told: None, czxids: Mutex::default() }
    }

    /// Waits until there is another leader than was told last, or none, or the same one proclaims something else. The
    /// first time it tells at once.
    ///
    /// A revocation of the leader alone is not reported: what was returned last, identifier included, still applies.
    /// (A leader that was revoked before this observer saw it has an empty [identifier](Contender::identifier) until it
    /// proclaims one.) [`Election::leader`](crate::Election::leader) and [`contenders`](crate::Election::contenders)
    /// return who was asked to resign.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NoAuth`] if the ACLs deny it; [`Error::Closed`] and [`Error::SessionEnded`] if there is no session any
    /// more; [`Error::SessionFull`] if it has too many watches.
    ///
    /// # Panics
    ///
    /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
    pub async fn changed(&mut self) -> Result<Option<Contender>> {
        let observer = &*self;
        let leader = attempt(&observer.queue.session, |link| observer.other(link).boxed()).await?;
        self.told = Some(leader.clone());
        Ok(leader)
    }

    /// Waits for a leader other than was told.
    async fn other(&self, link: Arc<Link>) -> Result<Option<Contender>, Interrupt> {
        let line = self.queue.lines().next().expect("an election has a line");
        let mut room = None;
        loop {
            link.connected().await?;
            let first = self.first(line, &link).await?;
            let parent = line.path.as_str().len();
            link.make_room(&mut room, first.as_ref().map_or(parent, |name| parent + 1 + name.len()))?;
            let seen = match first.as_deref().and_then(Name::parse) {
                Some(name) => self.watch_leader(line, &name, &link).await,
                None => watch_for_any(line, &link).await,
            };
            match seen {
                Ok(Some((leader, _))) if self.is_news(leader.as_ref()) => return Ok(leader),
                Ok(Some((_, watch))) => tokio::select! {
                    fired = watch.fired() => {
                        if fired == Fired::SessionOver {
                            return Err(Interrupt::SessionOver);
                        }
                    }
                    // In case the event never comes.
                    () = link.slow_look() => {}
                },
                // It has changed since the listing.
                Ok(None) | Err(Failure::Refused(ZkError::NoNode)) => {}
                Err(Failure::Refused(error)) => {
                    return Err(Error::refused("watch", line.path.as_str(), error).into());
                }
                Err(Failure::Unknown) => link.settled().await?,
                Err(Failure::Over) => return Err(Interrupt::SessionOver),
            }
        }
    }

    /// Whether what is seen differs from what was told last.
    fn is_news(&self, leader: Option<&Contender>) -> bool {
        match (&self.told, leader) {
            // A revocation overwrites what the leader said of itself, and does not make it another one.
            (Some(Some(told)), Some(leader)) if leader.revoke_requested() => !told.is_same_node(leader),
            (told, leader) => told.as_ref().map(Option::as_ref) != Some(leader),
        }
    }

    /// The name of the candidate whose turn it is. What is read at the end of the counter is kept for the next time.
    async fn first(&self, line: &Line, link: &Arc<Link>) -> Result<Option<String>, Interrupt> {
        let mut czxids = std::mem::take(&mut *self.czxids());
        let first = line.first(link, &mut czxids).await?;
        *self.czxids() = czxids;
        Ok(first)
    }

    async fn watch_leader(&self, line: &Line, name: &Name<'_>, link: &Arc<Link>) -> Result<Seen, Failure> {
        let path = line.path.child(name.text);
        let (data, stat, watch) = link.ask(move |requests| requests.watch(&path)).await?;
        let same = is_still(&mut self.czxids(), name.text, stat.czxid);
        Ok(same.then(|| (Some(Contender::new(line, name, data, &stat).holding()), watch)))
    }

    fn czxids(&self) -> MutexGuard<'_, Czxids> {
        self.czxids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("path", &self.queue.path).field("told", &self.told).finish()
    }
}

/// What is seen, and the watch that tells when it is so no more; nothing if it has changed since the listing.
type Seen = Option<(Option<Contender>, Watch)>;

/// Nobody stands: waits for a first candidate, or for the path to be made.
async fn watch_for_any(line: &Line, link: &Arc<Link>) -> Result<Seen, Failure> {
    let path = line.path.clone();
    match link.ask(move |requests| requests.watch_children(path.as_str())).await {
        Ok((mut names, watch)) => {
            clear_strays(link, &line.path, &mut names);
            let nobody = names.iter().all(|text| Name::parse(text).is_none());
            Ok(nobody.then_some((None, watch)))
        }
        Err(Failure::Refused(ZkError::NoNode)) => {
            let path = line.path.clone();
            let (exists, watch) = link.ask(move |requests| requests.watch_existence(path.as_str())).await?;
            Ok((!exists).then_some((None, watch)))
        }
        Err(failure) => Err(failure),
    }
}
