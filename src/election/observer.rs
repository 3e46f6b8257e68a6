//! Owns [`Observer`], which sees every leader that stays, and is no candidate.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, TryFutureExt};
use zookeeper_client::SessionId;

use crate::contender::Contender;
use crate::error::{Error, Result, ZkError};
use crate::lock::Lock;
use crate::queue::{Czxids, Name, Queue, update_czxid};
use crate::session::{Event, Failure, Interrupt, Reserved, ServerSession, SessionOver, Watch, delete_abandoned};

/// Sees who leads; made by [`Election::observe`](crate::Election::observe).
///
/// It reports every leader that stays, across lost connections and sessions. It may miss a leader that resigns before the
/// observer reads its node.
///
/// It is also a [`Stream`] of what [`changed`](Self::changed) returns, which ends after an error.
///
/// # Examples
///
/// ```no_run
/// # async fn example(election: zookeeper_recipes::Election) -> Result<(), zookeeper_recipes::Error> {
/// let mut observer = election.observe();
/// loop {
///     match observer.changed().await? {
///         Some(leader) => println!("{} leads", leader.identifier_lossy()),
///         None => println!("nobody leads"),
///     }
/// }
/// # }
/// ```
pub struct Observer {
    view: Arc<View>,
    /// The item that the stream waits for.
    next: Mutex<Option<BoxFuture<'static, Result<Option<Contender>>>>>,
    has_ended: bool,
}

/// What an observer has seen.
struct View {
    lock: Lock,
    /// What was returned last.
    last: Mutex<Option<Option<Contender>>>,
    /// What was read of candidates at the end of the counter.
    czxids: Mutex<Czxids>,
    standing: Mutex<Standing>,
}

/// The watch on what was seen last, if it has not fired yet, and the room for it in its session.
#[derive(Default)]
struct Standing {
    session: Option<SessionId>,
    room: Option<Reserved>,
    fired: Option<BoxFuture<'static, Result<Event, SessionOver>>>,
}

impl Observer {
    pub(super) fn new(lock: Lock) -> Self {
        let view = View { lock, last: Mutex::default(), czxids: Mutex::default(), standing: Mutex::default() };
        Self { view: Arc::new(view), next: Mutex::default(), has_ended: false }
    }

    /// Waits until there is another leader than was returned last, or none, or the same one proclaims something else. The
    /// first time it returns at once.
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
        self.view.changed().await
    }

    /// Whether what was returned last may be out of date: nothing was returned yet, there is news, the session is
    /// disconnected, or it was renewed since. Await [`changed`](Self::changed) then.
    ///
    /// While this is false, a change of the leader takes as long to be noticed as the servers take to send an event. A
    /// connection counts until the client gives it up: one on which the servers have fallen silent does so for 0.4
    /// session timeouts.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        !self.view.stands()
    }
}

impl Stream for Observer {
    type Item = Result<Option<Contender>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let view = self.view.clone();
        let next = self.next.get_mut().unwrap_or_else(PoisonError::into_inner);
        let seen =
            ready!(next.get_or_insert_with(|| async move { view.changed().await }.boxed()).as_mut().poll(cx));
        *next = None;
        self.has_ended = seen.is_err();
        Poll::Ready(Some(seen))
    }
}

impl Standing {
    /// Reserves room for a watch on a path of `bytes` bytes, beyond what is reserved already.
    fn make_room(&mut self, zk: &ServerSession, bytes: usize) -> Result<()> {
        if self.session != Some(zk.id()) {
            *self = Self { session: Some(zk.id()), ..Self::default() };
        }
        zk.reserve_watch(&mut self.room, bytes)
    }
}

impl View {
    async fn changed(&self) -> Result<Option<Contender>> {
        let leader = self.lock.session.attempt(|zk| self.other(zk).boxed()).await?;
        *locked(&self.last) = Some(leader.clone());
        Ok(leader)
    }

    /// Waits for a leader other than was returned last.
    async fn other(&self, zk: Arc<ServerSession>) -> Result<Option<Contender>, Interrupt> {
        let queue = self.lock.queues.first().expect("an election has a queue");
        loop {
            let first = self.first(queue, &zk).await?;
            let parent = queue.path.as_str().len();
            let bytes = first.as_ref().map_or(parent, |name| parent + 1 + name.len());
            let watches = queue.may_watch(bytes);
            locked(&self.standing).make_room(&zk, if watches { bytes } else { 0 })?;
            let seen = match first.as_deref().and_then(Name::parse) {
                Some(name) => match zk.retry(|| self.read_leader(queue, name, watches, &zk)).await? {
                    Ok(seen) => Ok(seen?),
                    Err(error) => Err(error),
                },
                None => zk.retry(|| watch_for_any(queue, &zk)).await?,
            };
            match seen {
                Ok(Some((leader, watch))) => {
                    locked(&self.standing).fired = watch.map(|watch| watch.fired().boxed());
                    if self.is_news(leader.as_ref()) {
                        return Ok(leader);
                    }
                    if !watches {
                        tokio::time::sleep(zk.times().look()).await;
                        continue;
                    }
                    tokio::select! {
                        fired = self.fired() => fired?,
                        // In case the event never comes.
                        () = zk.slow_look() => {}
                    }
                }
                // It has changed since the listing.
                Ok(None) | Err(ZkError::NoNode) => {}
                Err(error) => return Err(Error::refused("watch", queue.path.as_str(), error).into()),
            }
        }
    }

    /// Waits until the standing watch fires. If this is dropped, the watch stands on.
    async fn fired(&self) -> Result<(), SessionOver> {
        poll_fn(|cx| {
            let mut standing = locked(&self.standing);
            let fired = match standing.fired.as_mut() {
                Some(fired) => ready!(fired.poll_unpin(cx)).map(drop),
                None => Ok(()),
            };
            standing.fired = None;
            Poll::Ready(fired)
        })
        .await
    }

    /// Whether the watch stands in the present session, which is connected.
    fn stands(&self) -> bool {
        let session = &self.lock.session;
        let is_here = locked(&self.standing).session == Some(session.id());
        is_here && session.state().is_connected() && self.fired().now_or_never().is_none()
    }

    /// Whether what is seen differs from what was returned last.
    fn is_news(&self, leader: Option<&Contender>) -> bool {
        match (&*locked(&self.last), leader) {
            // A revocation overwrites what the leader wrote of itself, and does not make it another one.
            (Some(Some(last)), Some(leader)) if leader.revoke_requested() => !last.is_same_node(leader),
            (last, leader) => last.as_ref().map(Option::as_ref) != Some(leader),
        }
    }

    /// The name of the first candidate. What is read at the end of the counter is kept for the next look.
    async fn first(&self, queue: &Queue, zk: &Arc<ServerSession>) -> Result<Option<String>, Interrupt> {
        let mut czxids = std::mem::take(&mut *locked(&self.czxids));
        let first = queue.first(zk, &mut czxids).await?;
        *locked(&self.czxids) = czxids;
        Ok(first)
    }

    /// Reads the node of the leader, with a watch or without; `None` if it is another node than the one that is known.
    async fn read_leader(
        &self,
        queue: &Queue,
        name: Name<'_>,
        watches: bool,
        zk: &ServerSession,
    ) -> Result<Result<Seen>, Failure> {
        let path = queue.path.child(name.text);
        let (data, stat, watch) = if watches {
            zk.watch_data(&path).map_ok(|(data, stat, watch)| (data, stat, Some(watch))).await?
        } else {
            zk.read(&path).map_ok(|(data, stat)| (data, stat, None)).await?
        };
        let same = update_czxid(&mut locked(&self.czxids), name.text, stat.czxid);
        if !same {
            return Ok(Ok(None));
        }
        Ok(Contender::new(&self.lock, queue, &name, data, &stat)
            .map(|leader| Some((Some(leader.holding()), watch))))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("path", &self.view.lock.path)
            .field("last", &*locked(&self.view.last))
            .finish()
    }
}

/// A leader, or that there is none, with the watch that fires when this changes, if one was set.
type Seen = Option<(Option<Contender>, Option<Watch>)>;

/// Watches for a candidate, where there is none: the children of the path, or its creation.
async fn watch_for_any(queue: &Queue, zk: &Arc<ServerSession>) -> Result<Seen, Failure> {
    match zk.watch_children(queue.path.as_str()).await {
        Ok((names, _, watch)) => {
            let names = zk.without_abandoned(names);
            delete_abandoned(zk, &queue.path, &names);
            let nobody = names.as_slice().iter().all(|text| Name::parse(text).is_none());
            Ok(nobody.then_some((None, Some(watch))))
        }
        Err(Failure::Refused(ZkError::NoNode)) => {
            let (exists, watch) = zk.watch_existence(queue.path.as_str()).await?;
            Ok((!exists).then_some((None, Some(watch))))
        }
        Err(failure) => Err(failure),
    }
}
