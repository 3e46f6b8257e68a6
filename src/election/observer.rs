//! Owns [`Observer`], which reports leaders without being a candidate.
//!
//! A look begins [`TURN`] after the last one at the earliest, so a leader that writes without a pause, or another client that
//! does so to its node, costs a bounded number of requests.

use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, Stream};
use tokio::time::{Instant, sleep_until};
use zookeeper_client::{EventType, OneshotWatcher, SessionId};

use crate::contender::Contender;
use crate::driver::{Core, Reservation};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::locked::locked;
use crate::queue::{NodeName, Queue};
use crate::session::{Interrupt, Zk, event, found};

/// The shortest time from one look to the next.
const TURN: Duration = Duration::from_millis(200);

/// An observer of the leaders of an election, returned by [`Election::observe`](crate::Election::observe).
///
/// It reports every leader that stays, across lost connections and sessions. It looks at most five times a second, so it may
/// miss a leader that resigns before the observer reads its node, and a proclamation that is replaced before.
///
/// It is also a [`Stream`] of the results of [`changed`](Self::changed). The stream ends after an error.
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
    view: Arc<View>,
    /// The pending future of the stream's next item.
    next: Mutex<Option<BoxFuture<'static, Result<Option<Contender>>>>>,
    has_ended: bool,
}

/// The state of an observer: the leader that it returned last, and its watch.
struct View {
    lock: Lock,
    /// The leader that was returned last. Inner `None`: there was no leader. Outer `None`: nothing was returned yet.
    last: Mutex<Option<Option<Contender>>>,
    standing: Mutex<Standing>,
    /// When the next look may begin.
    turn: Mutex<Option<Instant>>,
}

/// The watch on the leader that was read last, if it has not fired yet, and the room for it in its session.
#[derive(Default)]
struct Standing {
    session: Option<SessionId>,
    reservation: Option<Reservation>,
    /// Resolves with the event of the watch. The output is whether the session goes on.
    fired: Option<Shared<BoxFuture<'static, bool>>>,
}

impl Observer {
    pub(super) fn new(lock: Lock) -> Self {
        let view = View { lock, last: Mutex::default(), standing: Mutex::default(), turn: Mutex::default() };
        Self { view: Arc::new(view), next: Mutex::default(), has_ended: false }
    }

    /// Waits until the leader differs from the one that was returned last: another leader, no leader, or the same leader
    /// with a new proclamation. The first call returns at once.
    ///
    /// A revocation alone is not reported: the leader that was returned last, identifier included, still applies. (A leader
    /// that was revoked before this observer saw it has an empty [identifier](Contender::identifier) until it proclaims
    /// one.) [`Election::leader`](crate::Election::leader) and [`contenders`](crate::Election::contenders) show whether the
    /// leader was asked to resign.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NoAuth`] if the ACLs deny it; [`Error::Closed`] and [`Error::SessionEnded`] if there is no session any
    /// more; [`Error::SessionFull`] if it has too many watches.
    pub async fn changed(&mut self) -> Result<Option<Contender>> {
        self.view.changed().await
    }

    /// Returns whether the leader that was returned last may be out of date: nothing was returned yet, there is news, the
    /// session is disconnected, or it was renewed since. Await [`changed`](Self::changed) then.
    ///
    /// While this is false, a change of the leader is noticed as soon as the servers send the event. The session counts as
    /// connected until the client gives its connection up: for a fifth of the session timeout if the servers have fallen silent.
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

impl View {
    async fn changed(&self) -> Result<Option<Contender>> {
        let leader = self.lock.session.attempt(|zk| self.other(zk)).await?;
        *locked(&self.last) = Some(leader.clone());
        Ok(leader)
    }

    fn core(&self) -> &Arc<Core> {
        self.lock.session.core()
    }

    /// Waits for a leader other than the one that was returned last.
    async fn other(&self, zk: Zk) -> Result<Option<Contender>, Interrupt> {
        let queue = self.lock.queues.first().expect("an election has a queue");
        let parent = queue.path.as_str();
        loop {
            self.turn().await;
            let first = queue.first(self.core(), &zk).await?;
            let node = first.as_ref().map_or_else(|| parent.to_owned(), |(name, _)| queue.path.child(name));
            let watches = self.make_room(&zk, parent, &node)?;
            let seen = match &first {
                Some(first) => self.read_leader(queue, first, &node, watches, &zk).await?,
                None => self.watch_for_any(parent, &zk).await?,
            };
            // The leader has changed since the listing.
            let Some((leader, watch)) = seen else { continue };
            let core = Arc::clone(self.core());
            locked(&self.standing).fired = watch.map(|watch| fired(watch, core).boxed().shared());
            if self.is_news(leader.as_ref()) {
                return Ok(leader);
            }
            tokio::select! {
                fired = self.fired() => fired?,
                () = zk.retry_listing(watches) => {}
            }
        }
    }

    /// Waits until the next look may begin.
    async fn turn(&self) {
        let turn = *locked(&self.turn);
        if let Some(turn) = turn {
            sleep_until(turn).await;
        }
        *locked(&self.turn) = Some(Instant::now() + TURN);
    }

    /// Reserves room for a watch on `node`. Returns `false` if the name is too long to be watched.
    fn make_room(&self, zk: &Zk, parent: &str, node: &str) -> Result<bool> {
        // Taken out, because what follows may run the user's code, which must not happen under the lock.
        let mut standing = std::mem::take(&mut *locked(&self.standing));
        if standing.session != Some(zk.id()) {
            standing = Standing { session: Some(zk.id()), ..Standing::default() };
        }
        let watches = self.core().reserve_watch(&mut standing.reservation, parent, node);
        *locked(&self.standing) = standing;
        watches
    }

    /// Waits until the watch fires; forever if there is none. Dropping the future does not drop the watch, and every call sees the
    /// event.
    async fn fired(&self) -> Result<(), Interrupt> {
        let fired = locked(&self.standing).fired.clone();
        let Some(fired) = fired else { return pending().await };
        if fired.await { Ok(()) } else { Err(Interrupt::SessionOver) }
    }

    /// Returns whether the watch is set in the current session, and the session is connected.
    fn stands(&self) -> bool {
        let session = &self.lock.session;
        let has_fired = self.fired().now_or_never().is_some();
        // Before the lock, because this may run the user's code.
        let (id, is_connected) = (session.id(), session.state().is_connected());
        let standing = locked(&self.standing);
        standing.session == Some(id) && standing.fired.is_some() && !has_fired && is_connected
    }

    /// Returns whether `leader` differs from the leader that was returned last.
    fn is_news(&self, leader: Option<&Contender>) -> bool {
        match (&*locked(&self.last), leader) {
            // A revocation overwrites the data of the leader, but does not make it another leader.
            (Some(Some(last)), Some(leader)) if leader.revoke_requested() => !last.is_same_node(leader),
            (last, leader) => last.as_ref().map(Option::as_ref) != Some(leader),
        }
    }

    /// Reads the node of the leader, and sets a watch if `watches`. Returns `None` if the node is gone, or is not the one
    /// listed.
    async fn read_leader(
        &self,
        queue: &Queue,
        (name, czxid): &(String, Option<i64>),
        node: &str,
        watches: bool,
        zk: &Zk,
    ) -> Result<Seen, Interrupt> {
        let read = if watches {
            let watched = zk.retry("watch_data", || zk.watch_data(node)).await?;
            watched.map(|(data, stat, watch)| (data, stat, Some(watch)))
        } else {
            zk.retry("read", || zk.data(node)).await?.map(|(data, stat)| (data, stat, None))
        };
        let Some((data, stat, watch)) = found(read, "watch", queue.path.as_str())? else { return Ok(None) };
        let Some(name) = NodeName::parse(name).filter(|_| czxid.is_none_or(|known| known == stat.czxid)) else {
            return Ok(None);
        };
        let leader = Contender::new(&self.lock, queue, &name, data, &stat)?.holding();
        Ok(Some((Some(leader), watch)))
    }

    /// Watches for a first candidate: the children of the path, or its creation. Returns `None` if a candidate has come.
    async fn watch_for_any(&self, path: &str, zk: &Zk) -> Result<Seen, Interrupt> {
        let children = zk.retry("watch_children", || zk.watch_children(path)).await?;
        let (nobody, watch) = match found(children, "watch", path)? {
            Some((names, _, watch)) => {
                let names = self.core().without_orphans(path, names, false);
                (names.iter().all(|text| NodeName::parse(text).is_none()), watch)
            }
            None => {
                let answer = zk.retry("watch_existence", || zk.watch_existence(path)).await?;
                let (stat, watch) = answer.map_err(|error| Error::refused("watch", path, error))?;
                (stat.is_none(), watch)
            }
        };
        Ok(nobody.then_some((None, Some(watch))))
    }
}

/// Waits for the event of a watch. Returns whether the session goes on.
async fn fired(watch: OneshotWatcher, core: Arc<Core>) -> bool {
    let event = event(watch).await;
    if event.is_none() {
        core.found_runtime_gone();
    }
    event.is_some_and(|event| event.event_type != EventType::Session)
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("path", &self.view.lock.path)
            .field("last", &*locked(&self.view.last))
            .finish()
    }
}

/// The leader, or none, and the watch that fires when the leader changes, if one was set. `None` if the leader has changed
/// since the listing.
type Seen = Option<(Option<Contender>, Option<OneshotWatcher>)>;
