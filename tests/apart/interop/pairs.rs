//! The table of locks that exclude each other.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select_all};
use zookeeper_recipes::{
    Election, FencingToken, HoldState, LockGuard, Loss, Mutex, MutexGuard, Options, Owner, ReentrantMutex, Result,
    RwLock, Semaphore, Session,
};

use crate::peer::Language;

pub(crate) type Guard = Box<dyn LockGuard>;

/// Acquires one of ours.
pub(crate) type Ours = fn(&Session, &str) -> BoxFuture<'static, Guard>;

/// A lock of ours and a lock of another client, which exclude each other.
pub(crate) struct Pair {
    pub(crate) language: Language,
    /// What the driver calls its lock.
    pub(crate) theirs: &'static str,
    pub(crate) ours: Ours,
    /// How each is marked in the ledger: `r` for readers, which exclude only the other side.
    pub(crate) marks: (char, char),
    /// Where their nodes are, below the path.
    pub(crate) dirs: &'static [&'static str],
    /// How many nodes a holder and this many waiters have.
    pub(crate) nodes: fn(usize) -> usize,
}

impl Pair {
    const fn of_one_node(language: Language, theirs: &'static str, ours: Ours) -> Self {
        Self { language, theirs, ours, marks: ('w', 'w'), dirs: &[""], nodes: |waiters| 1 + waiters }
    }
}

pub(crate) const KAZOO_LOCK: Pair = Pair::of_one_node(Language::Python, "lock", mutex);

pub(crate) const KAZOO_WRITER_BESIDE_WRITER: Pair = Pair::of_one_node(Language::Python, "write", writer);

pub(crate) const KAZOO_WRITER_BESIDE_READER: Pair =
    Pair { marks: ('r', 'w'), ..Pair::of_one_node(Language::Python, "write", reader) };

pub(crate) const KAZOO_READER_BESIDE_WRITER: Pair =
    Pair { marks: ('w', 'r'), ..Pair::of_one_node(Language::Python, "read", writer) };

/// kazoo's lock with two lines of code that give it everybody else's names.
pub(crate) const KAZOO_RENAMED_LOCK: Pair = Pair::of_one_node(Language::Python, "renamed", mutex);

pub(crate) const GO_LOCK: Pair = Pair::of_one_node(Language::Go, "lock", mutex);

/// The lock among ZooKeeper's own recipes.
pub(crate) const ZOOKEEPER_LOCK: Pair = Pair::of_one_node(Language::Java, "recipe", mutex);

pub(crate) const CURATOR_MUTEX: Pair = Pair::of_one_node(Language::Java, "mutex", mutex);

pub(crate) const CURATOR_MUTEX_BESIDE_REENTRANT: Pair = Pair::of_one_node(Language::Java, "mutex", reentrant);

/// With the path removed and created again all the time.
pub(crate) const CURATOR_MUTEX_BESIDE_PATH_REMOVAL: Pair =
    Pair::of_one_node(Language::Java, "mutex", removing_mutex);

pub(crate) const CURATOR_WRITER_BESIDE_WRITER: Pair = Pair::of_one_node(Language::Java, "write", writer);

pub(crate) const CURATOR_WRITER_BESIDE_READER: Pair =
    Pair { marks: ('r', 'w'), ..Pair::of_one_node(Language::Java, "write", reader) };

pub(crate) const CURATOR_READER_BESIDE_WRITER: Pair =
    Pair { marks: ('w', 'r'), ..Pair::of_one_node(Language::Java, "read", writer) };

/// With one permit. The first waiter already has a lease, which counts.
pub(crate) const CURATOR_SEMAPHORE: Pair = Pair {
    dirs: &["/locks", "/leases"],
    nodes: |waiters| if waiters == 0 { 1 } else { 2 + waiters },
    ..Pair::of_one_node(Language::Java, "semaphore", permit)
};

pub(crate) const CURATOR_SEMAPHORE_MUTEX: Pair = Pair { theirs: "semaphore-mutex", ..CURATOR_SEMAPHORE };

/// Takes three locks one by one: a waiter for the first is not yet in the other queues.
pub(crate) const CURATOR_MULTI_LOCK: Pair = Pair {
    dirs: &["/a", "/b", "/c"],
    nodes: |waiters| 3 + waiters,
    ..Pair::of_one_node(Language::Java, "multi", one_by_one)
};

pub(crate) const CURATOR_LATCH: Pair = Pair::of_one_node(Language::Java, "latch", leadership);

pub(crate) const CURATOR_SELECTOR: Pair = Pair::of_one_node(Language::Java, "selector", mutex);

pub(crate) fn mutex(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let lock = Mutex::new(session, path).expect("a mutex");
    async move { Box::new(lock.lock().await.expect("held")) as Guard }.boxed()
}

pub(crate) fn writer(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let lock = RwLock::new(session, path).expect("a lock");
    async move { Box::new(lock.write().await.expect("held")) as Guard }.boxed()
}

pub(crate) fn reader(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let lock = RwLock::new(session, path).expect("a lock");
    async move { Box::new(lock.read().await.expect("held")) as Guard }.boxed()
}

fn reentrant(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let lock = ReentrantMutex::new(session, path).expect("a mutex");
    async move { Box::new(lock.lock(&Owner::new()).await.expect("held")) as Guard }.boxed()
}

fn removing_mutex(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let options = Options::new().with_path_removal(true);
    let lock = Mutex::with_options(session, path, options).expect("a mutex");
    async move { Box::new(lock.lock().await.expect("held")) as Guard }.boxed()
}

fn permit(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let semaphore = Semaphore::new(session, path, 1).expect("a semaphore");
    async move { Box::new(semaphore.acquire().await.expect("held")) as Guard }.boxed()
}

/// Mutexes that were acquired one by one.
#[derive(Debug)]
struct OneByOne(Vec<MutexGuard>);

#[async_trait]
impl LockGuard for OneByOne {
    fn fencing_token(&self) -> FencingToken {
        self.0[0].fencing_token()
    }

    fn state(&self) -> HoldState {
        let mut states = self.0.iter().map(|guard| guard.state());
        states.find(|state| *state != HoldState::Held).unwrap_or(HoldState::Held)
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        select_all(self.0.iter().map(|guard| guard.lost().boxed())).map(|(loss, ..)| loss).boxed()
    }

    fn path(&self) -> &str {
        self.0[0].path()
    }

    fn valid_for(&self) -> Duration {
        self.0.iter().map(|guard| guard.valid_for()).min().unwrap_or_default()
    }

    async fn release(self: Box<Self>) -> Result<()> {
        for guard in self.0 {
            guard.release().await?;
        }
        Ok(())
    }
}

/// As `docs/mixed-fleets.md` shows it.
pub(crate) fn one_by_one(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let locks = ["a", "b", "c"].map(|member| Mutex::new(session, &format!("{path}/{member}")).expect("a mutex"));
    async move {
        let mut guards = Vec::new();
        for lock in locks {
            guards.push(lock.lock().await.expect("held"));
        }
        Box::new(OneByOne(guards)) as Guard
    }
    .boxed()
}

fn leadership(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let election = Election::new(session, path).expect("an election");
    async move { Box::new(election.campaign().await.expect("leads")) as Guard }.boxed()
}
