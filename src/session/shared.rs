//! Owns what callers of one session share: listings of one path, and the check that a quorum honours the session.
//!
//! 1. A listing answers only callers that asked before it was sent, so it shows what they have done before.
//! 2. Of a path a few listings are under way in a session, however many callers ask. One that asks while there are as many
//!    shares the next, which is sent when one of them is answered. Each is as large as the queue is long: a server that is
//!    asked for thousands of them at once dies of its answers.
//! 3. Abandoned nodes are filtered out once per listing, before it is shared.
//! 4. What is shared is driven in the background, and handed out through a channel: a caller that does not poll, or drops its
//!    future, holds nobody up. The first few listings of a path are polled each by its caller.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::path::LockPath;
use crate::session::request::{Answer, Failure};
use crate::session::server_session::ServerSession;
use crate::session::trust::Moment;

/// How many listings of a path are under way at most: as many as let a waiter that is woken look at once, beside newcomers.
const MOST_UNDER_WAY: u32 = 4;

/// Where what is shared will be found.
type Slot<T> = watch::Sender<Option<Result<T, Failure>>>;

/// The check that is under way, and since when.
pub(super) type CheckUnderWay = Mutex<Option<(Moment, Weak<Slot<()>>)>>;

/// The listings that are under way.
pub(super) type ListingsUnderWay = Mutex<HashMap<LockPath, Listings>>;

/// The children of a node.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    abandoned: Vec<String>,
    sorted: OnceLock<Vec<String>>,
}

impl Names {
    /// The names, without those of nodes that this session has abandoned.
    pub(crate) fn as_slice(&self) -> &[String] {
        &self.names
    }

    /// The names of nodes that this session has abandoned.
    pub(super) fn abandoned(&self) -> &[String] {
        &self.abandoned
    }

    /// Whether a name is among [`as_slice`](Self::as_slice).
    pub(crate) fn contains(&self, name: &str) -> bool {
        // Thousands of waiters may look for theirs in one listing.
        let sorted = self.sorted.get_or_init(|| {
            let mut sorted = self.names.clone();
            sorted.sort_unstable();
            sorted
        });
        sorted.binary_search_by(|listed| listed.as_str().cmp(name)).is_ok()
    }
}

/// A listing. While four of its path are under way, further callers share one, which the background sends.
pub(crate) enum Listing {
    /// Of one caller, sent at once.
    Single(Answer<Vec<String>>, UnderWay),
    Shared(BoxFuture<'static, Result<Arc<Names>, Failure>>),
}

impl Future for Listing {
    type Output = Result<Arc<Names>, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Single(answer, UnderWay { zk, .. }) => {
                answer.poll_unpin(cx).map_ok(|names| Arc::new(zk.without_abandoned(names)))
            }
            Self::Shared(answer) => answer.poll_unpin(cx),
        }
    }
}

/// The listings of one path that are under way.
#[derive(Debug)]
pub(super) struct Listings {
    count: usize,
    /// One that is not sent yet.
    next: Option<Weak<Slot<Arc<Names>>>>,
    /// How many more may be sent.
    permits: Arc<Semaphore>,
}

impl Listings {
    fn new() -> Self {
        Self { count: 0, next: None, permits: Arc::new(Semaphore::new(MOST_UNDER_WAY as usize)) }
    }
}

/// Counts a listing as long as it lives.
pub(crate) struct UnderWay {
    zk: Arc<ServerSession>,
    path: LockPath,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ServerSession {
    /// Lists the children of `path`. The connection has to stand.
    pub(crate) fn list(self: &Arc<Self>, path: &LockPath) -> Listing {
        let mut all = self.lock_listings();
        let listings = all.entry(path.clone()).or_insert_with(Listings::new);
        let Ok(permit) = listings.permits.clone().try_acquire_owned() else {
            drop(all);
            return self.share(path, 1);
        };
        listings.count += 1;
        drop(all);
        let under_way = UnderWay { zk: self.clone(), path: path.clone(), _permit: Some(permit) };
        Listing::Single(self.children(path.as_str()), under_way)
    }

    /// Lists the children of `path`, for many callers that are not in a hurry. It is sent when no other listing of the path is
    /// under way, or after an eighth of a session timeout.
    pub(crate) fn list_together(self: &Arc<Self>, path: &LockPath) -> Listing {
        self.share(path, MOST_UNDER_WAY)
    }

    /// The next listing of a path, which needs this many permits.
    fn share(self: &Arc<Self>, path: &LockPath, permits: u32) -> Listing {
        let mut all = self.lock_listings();
        let listings = all.entry(path.clone()).or_insert_with(Listings::new);
        if let Some(slot) = listings.next.as_ref().and_then(Weak::upgrade) {
            return Listing::Shared(shared(slot.subscribe()).boxed());
        }
        let slot = Arc::new(Slot::new(None));
        let receiver = slot.subscribe();
        listings.next = Some(Arc::downgrade(&slot));
        listings.count += 1;
        let semaphore = listings.permits.clone();
        // What follows may drop the listing, which takes this lock.
        drop(all);
        let under_way = UnderWay { zk: self.clone(), path: path.clone(), _permit: None };
        self.background(list_next(under_way, semaphore, permits, slot).boxed());
        Listing::Shared(shared(receiver).boxed())
    }

    /// Leaves the nodes that were abandoned out of a listing.
    pub(crate) fn without_abandoned(&self, names: Vec<String>) -> Names {
        let (abandoned, names) = self.nodes.split_abandoned(names);
        Names { names, abandoned, sorted: OnceLock::new() }
    }

    /// Asks a quorum whether it honours the session, together with other callers that ask while that is under way. What an
    /// answer proves counts from its sending, so one that was sent before is no less true.
    pub(crate) fn check_session(&self) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let now = Moment::now();
        let mut under_way = self.check_under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((sent, slot)) = &*under_way
            && now.since(*sent) < self.times().shared()
            && let Some(slot) = slot.upgrade()
        {
            return shared(slot.subscribe());
        }
        let slot = Arc::new(Slot::new(None));
        let receiver = slot.subscribe();
        *under_way = Some((now, Arc::downgrade(&slot)));
        drop(under_way);
        let check = self.check(vec!["/".to_owned()]);
        self.background(check.map(move |answer| drop(slot.send_replace(Some(answer.map(drop))))).boxed());
        shared(receiver)
    }

    fn lock_listings(&self) -> MutexGuard<'_, HashMap<LockPath, Listings>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for what is shared; nothing comes if the session is over.
async fn shared<T: Clone>(mut receiver: watch::Receiver<Option<Result<T, Failure>>>) -> Result<T, Failure> {
    let found = receiver.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
    found.unwrap_or(Err(Failure::SessionOver))
}

/// Lists for all that wait at `slot`, when there is room for it.
async fn list_next(one: UnderWay, semaphore: Arc<Semaphore>, permits: u32, slot: Arc<Slot<Arc<Names>>>) {
    let zk = &one.zk;
    if permits == MOST_UNDER_WAY {
        tokio::task::yield_now().await;
    }
    // A caller that does not poll its listing holds nobody up for long.
    let permit = timeout(zk.times().shared(), semaphore.acquire_many(permits)).await;
    // From now on it is too late to share it.
    if let Some(listings) = zk.lock_listings().get_mut(&one.path) {
        listings.next = None;
    }
    let result = if slot.receiver_count() == 0 || !zk.is_connected() {
        Err(Failure::Unknown)
    } else {
        zk.children(one.path.as_str()).await.map(|names| Arc::new(zk.without_abandoned(names)))
    };
    drop(permit);
    slot.send_replace(Some(result));
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = self.zk.lock_listings();
        if let Some(listings) = all.get_mut(&self.path) {
            listings.count -= 1;
            if listings.count == 0 {
                all.remove(&self.path);
            }
        }
    }
}
