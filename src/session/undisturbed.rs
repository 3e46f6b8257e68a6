//! Owns what a session knows of its last node in a lock path, so that its next one there is granted by the answer to its
//! create, without a listing.
//!
//! Numbers under a path count every create. If our next node has the next number, nobody has queued in between; and if our
//! last node is deleted, nobody is ahead. That holds as long as it is the same path, because numbers start over with it: a
//! watch on the path, which was set while our node was in it, has not fired. The servers send an event before the answer to
//! any later request, so it is enough to look when the answer to the create is there. In detail:
//!
//! 1. What is known is recorded when a hold is released, after its delete was sent, and is used up by one create. So two
//!    creates that are under way never rely on the same one. A hold that was lost leaves nothing.
//! 2. The delete must have been answered, and Ok: a node that could not be deleted still stands ahead.
//! 3. The watch was set while our node was the only one in the path. The answer to the request that set it proves that: the
//!    path has one child, and the creation of our node was the last change of its children. (That there is one child, and that
//!    as many were created as our number shows, would not prove that it is ours.)
//! 4. The watch has not fired, for any reason.
//! 5. It is one connection, from before the watch was set until the answer to the create.
//! 6. The numbers are not at the end of the counter.
//!
//! Where sessions take turns, a wrong guess would cost a round trip each time. So a guess needs that the last number was the
//! one after our last number before, and a watch is set only where a guess is near.
//!
//! Not noticed: somebody takes READ on the path from us, and then deletes it and creates it again; servers send no event
//! then. A watch older than a session timeout is not relied on; a hold looks at the path after an eighth of one, and is lost
//! if it sees another, or may not; and it hands the lock over to nobody: who follows it in the queue looks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use crate::path::LockPath;
use crate::session::server_session::{PAUSE, ServerSession};
use crate::session::standing::{Arming, StandingWatch};
use crate::session::trust::Moment;

/// How many paths a generation has. Of a path something is remembered for as long as no more than this were released since.
const GENERATION: usize = 512;

/// How many of them have a watch.
const MOST_WATCHED: usize = 64;

/// The lock paths where the session was alone last.
#[derive(Debug, Default)]
pub(super) struct Undisturbed(Mutex<Paths>);

/// Two generations of paths: when the younger is full, it takes the place of the older, which is forgotten.
#[derive(Debug, Default)]
struct Paths {
    younger: HashMap<LockPath, Last>,
    older: HashMap<LockPath, Last>,
}

/// A node of ours that was alone in its path, and is released.
#[derive(Debug)]
pub(crate) struct Last {
    node: Alone,
    /// Comes when its delete was answered, and Ok.
    deleted: oneshot::Receiver<()>,
}

/// A node of ours that is alone in its path.
#[derive(Debug)]
pub(crate) struct Alone {
    number: i32,
    /// Whether nobody else was there since our last one.
    is_next: bool,
    /// Whether it was granted by its number alone.
    is_guess: bool,
    watch: Option<PathWatch>,
}

/// A watch on a lock path that was set while our node was the only one in it.
#[derive(Debug)]
struct PathWatch {
    watch: StandingWatch,
    /// What created the path.
    czxid: i64,
}

impl ServerSession {
    /// Takes what is known of our last node in a path, before the next is created.
    pub(crate) fn take_last(&self, path: &LockPath) -> Option<Last> {
        let mut paths = self.undisturbed.lock();
        paths.younger.remove(path).or_else(|| paths.older.remove(path))
    }

    /// Notes that a node which was alone in a path is being released.
    pub(super) fn released_alone(&self, path: LockPath, node: Alone, deleted: oneshot::Receiver<()>) {
        let mut paths = self.undisturbed.lock();
        let full = (paths.younger.len() >= GENERATION).then(|| std::mem::take(&mut paths.younger));
        let forgotten = full.map(|full| std::mem::replace(&mut paths.older, full));
        let before = paths.younger.insert(path, Last { node, deleted });
        drop(paths);
        // Takes the watches back, for which it needs no lock of ours.
        drop((forgotten, before));
    }

    /// Takes back the watches that are of no use any more.
    pub(super) fn forget_old_watches(&self) {
        let is_old = |watch: &mut PathWatch| !watch.is_young(self.timeout()) || !watch.watch.stands();
        let mut paths = self.undisturbed.lock();
        let old: Vec<_> = paths.lasts_mut().filter_map(|last| last.node.watch.take_if(is_old)).collect();
        drop(paths);
        drop(old);
    }

    /// Whether another path may have a watch.
    fn may_watch_path(&self) -> bool {
        self.undisturbed.lock().lasts_mut().filter(|last| last.node.watch.is_some()).count() < MOST_WATCHED
    }
}

impl Undisturbed {
    fn lock(&self) -> MutexGuard<'_, Paths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Paths {
    fn lasts_mut(&mut self) -> impl Iterator<Item = &mut Last> {
        self.younger.values_mut().chain(self.older.values_mut())
    }
}

impl Last {
    /// Whether the answer to the next create can be the grant.
    pub(crate) fn allows_guess(&self, zk: &ServerSession) -> bool {
        self.node.is_next && self.node.watch.as_ref().is_some_and(|watch| watch.is_young(zk.timeout()))
    }

    /// Sets a watch on the path, sent after the next create, if a guess is near and there is room.
    pub(crate) fn arm(&self, zk: &ServerSession, path: &str) -> Option<Arming> {
        let room =
            (self.node.is_next && zk.may_watch_path()).then(|| zk.reserve_spare_watch(path.len())).flatten()?;
        Some(Arming::send(zk, path, room))
    }

    /// Our next node, if its number shows that it is granted; asked when its create was answered.
    pub(crate) async fn guess(&mut self, number: i32) -> Option<Alone> {
        if !self.is_before(number) {
            return None;
        }
        let is_deleted = match self.deleted.try_recv() {
            // The answer to the delete came first, but another task may be about to read it.
            Err(TryRecvError::Empty) => matches!(timeout(PAUSE, &mut self.deleted).await, Ok(Ok(()))),
            deleted => deleted.is_ok(),
        };
        let watch = self.node.watch.take_if(|watch| is_deleted && watch.watch.stands())?;
        Some(Alone { number, is_next: true, is_guess: true, watch: Some(watch) })
    }

    fn is_before(&self, number: i32) -> bool {
        !is_at_the_end(number) && self.node.number == number - 1
    }
}

impl Alone {
    /// Our node with this number, if the answer to the request that watches its path proves that it is alone.
    pub(crate) async fn prove(last: Option<&Last>, arming: Arming, number: i32, czxid: i64) -> Option<Self> {
        let (stat, watch) = arming.answered().await.ok()?;
        let is_alone = stat.num_children == 1 && stat.pzxid == czxid && watch.stands();
        let watch = PathWatch { watch, czxid: stat.czxid };
        let is_next = last.is_some_and(|last| last.is_before(number));
        (is_alone && !is_at_the_end(number)).then_some(Self {
            number,
            is_next,
            is_guess: false,
            watch: Some(watch),
        })
    }

    /// Our node with this number, which a listing shows alone. A watch that stands shows that it is the path of the last one.
    pub(crate) fn listed(last: Option<Last>, number: i32) -> Self {
        let is_next = last.as_ref().is_some_and(|last| last.is_before(number));
        let watch = last.and_then(|last| last.node.watch).filter(|watch| watch.watch.stands());
        Self { number, is_next, is_guess: false, watch: watch.filter(|_| !is_at_the_end(number)) }
    }

    /// Whether it was granted by its number alone.
    pub(super) fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// The watch on the path, if the node was granted by its number alone.
    pub(super) fn watch_of_guess(&self) -> Option<&StandingWatch> {
        self.watch.as_ref().filter(|_| self.is_guess).map(|watch| &watch.watch)
    }

    /// What created the path, as far as the watch shows.
    pub(crate) fn path_czxid(&self) -> Option<i64> {
        self.watch.as_ref().map(|watch| watch.czxid)
    }
}

impl PathWatch {
    fn is_young(&self, limit: Duration) -> bool {
        Moment::now().since(self.watch.sent()) < limit
    }
}

/// Whether the number is one of those that servers give more than once, or comes after one.
fn is_at_the_end(number: i32) -> bool {
    !(0..i32::MAX - 1).contains(&number)
}
