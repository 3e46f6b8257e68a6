//! The table of what stands beside what.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_recipes::{LockGuard, Mutex, RwLock, Session};

use crate::peer::Language;

type Guard = Box<dyn LockGuard>;

/// A lock of ours and a lock of another client, which exclude each other.
pub(crate) struct Pair {
    pub(crate) language: Language,
    /// What the driver calls its lock.
    pub(crate) theirs: &'static str,
    /// Acquires ours.
    pub(crate) ours: fn(&Session, &str) -> BoxFuture<'static, Guard>,
    /// How each is marked in the ledger: `r` for those who exclude only others.
    pub(crate) marks: (char, char),
    /// Where their nodes are, below the path.
    pub(crate) dirs: &'static [&'static str],
    /// How many nodes there are when one holds and so many wait.
    pub(crate) nodes: fn(usize) -> usize,
}

impl Pair {
    const fn of_one_node(
        language: Language,
        theirs: &'static str,
        ours: fn(&Session, &str) -> BoxFuture<'static, Guard>,
    ) -> Self {
        Self { language, theirs, ours, marks: ('w', 'w'), dirs: &[""], nodes: |waiters| 1 + waiters }
    }
}

pub(crate) const KAZOO_LOCK: Pair = Pair::of_one_node(Language::Python, "lock", mutex);

pub(crate) const KAZOO_WRITER_BESIDE_WRITER: Pair = Pair::of_one_node(Language::Python, "write", writer);

pub(crate) const KAZOO_WRITER_BESIDE_READER: Pair =
    Pair { marks: ('r', 'w'), ..Pair::of_one_node(Language::Python, "write", reader) };

pub(crate) const KAZOO_READER_BESIDE_WRITER: Pair =
    Pair { marks: ('w', 'r'), ..Pair::of_one_node(Language::Python, "read", writer) };

/// kazoo's lock with two lines that make its names those of everybody else.
pub(crate) const KAZOO_RENAMED_LOCK: Pair = Pair::of_one_node(Language::Python, "renamed", mutex);

pub(crate) const GO_LOCK: Pair = Pair::of_one_node(Language::Go, "lock", mutex);

/// The lock among ZooKeeper's own recipes.
pub(crate) const ZOOKEEPER_LOCK: Pair = Pair::of_one_node(Language::Recipes, "lock", mutex);

fn mutex(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let lock = Mutex::new(session, path).expect("a mutex");
    async move { Box::new(lock.lock().await.expect("held")) as Guard }.boxed()
}

fn writer(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let lock = RwLock::new(session, path).expect("a lock");
    async move { Box::new(lock.write().await.expect("held")) as Guard }.boxed()
}

fn reader(session: &Session, path: &str) -> BoxFuture<'static, Guard> {
    let lock = RwLock::new(session, path).expect("a lock");
    async move { Box::new(lock.read().await.expect("held")) as Guard }.boxed()
}
