//! The table of recipes: every kind of lock behind one interface, for the contract and the fault tests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use zookeeper_recipes::{
    Both, DistributedLock, Election, LockGuard, MultiLock, Mutex, Owner, ReentrantMutex, Result, RwLock,
    Semaphore, Session,
};

/// A kind of lock.
pub(crate) struct Recipe {
    pub(crate) lock: fn(&Session, &str) -> Arc<dyn DistributedLock>,
    /// A lock on the same path that excludes the first; another one if the first does not exclude itself.
    pub(crate) other: fn(&Session, &str) -> Arc<dyn DistributedLock>,
    /// The folders of its nodes, below the lock path.
    pub(crate) dirs: &'static [&'static str],
    /// The number of nodes of a holder and this many waiters.
    pub(crate) nodes: fn(usize) -> usize,
}

/// Runs a table of tests for every recipe.
macro_rules! for_all_recipes {
    ($table:ident) => {
        $table! {
            mutex => MUTEX;
            reentrant_mutex => REENTRANT_MUTEX;
            writer => WRITER;
            reader => READER;
            semaphore => SEMAPHORE;
            several_permits => SEVERAL_PERMITS;
            multi_lock => MULTI_LOCK;
            mixed_multi_lock => MIXED_MULTI_LOCK;
            election => ELECTION;
        }
    };
}

/// Tests of one recipe: functions of it, in the module above.
macro_rules! rows {
    ($of:expr => $($row:ident),*) => {$(
        #[tokio::test]
        async fn $row() {
            super::$row(&$of).await;
        }
    )*};
}

pub(crate) use {for_all_recipes, rows};

impl Recipe {
    const fn of_one_node(lock: fn(&Session, &str) -> Arc<dyn DistributedLock>) -> Self {
        Self { lock, other: lock, dirs: &[""], nodes: |waiters| 1 + waiters }
    }
}

pub(crate) const MUTEX: Recipe = Recipe::of_one_node(|session, path| the(Mutex::new(session, path)));

pub(crate) const REENTRANT_MUTEX: Recipe =
    Recipe::of_one_node(|session, path| the(ReentrantMutex::new(session, path).map(Reentrant)));

pub(crate) const WRITER: Recipe = Recipe::of_one_node(|session, path| the(RwLock::new(session, path).map(Writer)));

pub(crate) const READER: Recipe = Recipe {
    lock: |session, path| the(RwLock::new(session, path).map(Reader)),
    ..Recipe { other: WRITER.lock, ..WRITER }
};

pub(crate) const SEMAPHORE: Recipe = Recipe {
    lock: |session, path| the(Semaphore::new(session, path, 1).map(|semaphore| Permits(semaphore, 1))),
    other: |session, path| the(Semaphore::new(session, path, 1).map(|semaphore| Permits(semaphore, 1))),
    dirs: &["/locks", "/leases"],
    // The first waiter already has its lease.
    nodes: |waiters| 1 + waiters + waiters.min(1),
};

/// Three of four, so that the second caller has to wait.
pub(crate) const SEVERAL_PERMITS: Recipe = Recipe {
    lock: |session, path| the(Semaphore::new(session, path, 4).map(|semaphore| Permits(semaphore, 3))),
    other: |session, path| the(Semaphore::new(session, path, 4).map(|semaphore| Permits(semaphore, 3))),
    dirs: &["/locks", "/leases"],
    nodes: |waiters| 3 + waiters + 3 * waiters.min(1),
};

pub(crate) const MULTI_LOCK: Recipe = Recipe {
    lock: |session, path| exclusive(MultiLock::new(session, members(path))),
    other: |session, path| {
        let mut members = members(path);
        members.reverse();
        exclusive(MultiLock::new(session, members))
    },
    dirs: &["/a", "/b", "/c"],
    nodes: |waiters| 3 + 3 * waiters,
};

/// Each writes a path that the other reads.
pub(crate) const MIXED_MULTI_LOCK: Recipe = Recipe {
    lock: |session, path| {
        let [a, b, c] = members(path);
        the(MultiLock::builder(session).read(&a).read(&b).write(&c).build().map(Members))
    },
    other: |session, path| {
        let [a, b, c] = members(path);
        the(MultiLock::builder(session).read(&c).read(&b).write(&a).build().map(Members))
    },
    dirs: &["/a", "/b", "/c"],
    nodes: |waiters| 3 + 3 * waiters,
};

pub(crate) const ELECTION: Recipe =
    Recipe::of_one_node(|session, path| the(Election::new(session, path).map(Candidate)));

/// Two mutexes as one. A waiter is in the queue of the first alone.
pub(crate) const BOTH: Recipe =
    Recipe { dirs: &["/old", "/new"], nodes: |waiters| 2 + waiters, ..Recipe::of_one_node(two_mutexes) };

fn two_mutexes(session: &Session, path: &str) -> Arc<dyn DistributedLock> {
    let [old, new] = ["old", "new"].map(|name| the(Mutex::new(session, &format!("{path}/{name}"))));
    Arc::new(Both::new(old, new))
}

fn members(path: &str) -> [String; 3] {
    ["a", "b", "c"].map(|name| format!("{path}/{name}"))
}

fn the<L: DistributedLock + 'static>(lock: Result<L>) -> Arc<dyn DistributedLock> {
    Arc::new(lock.expect("a lock"))
}

fn exclusive(lock: Result<MultiLock>) -> Arc<dyn DistributedLock> {
    lock.and_then(|lock| lock.exclusive()).expect("a lock")
}

macro_rules! adapters {
    ($($name:ident($of:ty $(, $more:ty)?): |$this:ident| $lock:expr, $try_lock:expr, |$limit:ident| $try_lock_for:expr;)*) => {$(
        pub(crate) struct $name(pub(crate) $of $(, pub(crate) $more)?);

        #[async_trait]
        impl DistributedLock for $name {
            async fn lock(&self) -> Result<Box<dyn LockGuard>> {
                let $this = self;
                Ok(Box::new($lock.await?))
            }

            async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>> {
                let $this = self;
                Ok($try_lock.await?.map(|guard| Box::new(guard) as _))
            }

            async fn try_lock_for(&self, $limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
                let $this = self;
                Ok($try_lock_for.await?.map(|guard| Box::new(guard) as _))
            }

            fn path(&self) -> &str {
                self.0.path()
            }
        }
    )*};
}

adapters! {
    Reentrant(ReentrantMutex): |this| this.0.lock(&Owner::new()), this.0.try_lock(&Owner::new()),
        |limit| this.0.try_lock_for(&Owner::new(), limit);
    Writer(RwLock): |this| this.0.write(), this.0.try_write(), |limit| this.0.try_write_for(limit);
    Reader(RwLock): |this| this.0.read(), this.0.try_read(), |limit| this.0.try_read_for(limit);
    Permits(Semaphore, u32): |this| this.0.acquire_many(this.1), this.0.try_acquire_many(this.1),
        |limit| this.0.try_acquire_many_for(this.1, limit);
    Candidate(Election): |this| this.0.campaign(), this.0.try_campaign(), |limit| this.0.try_campaign_for(limit);
    // With members that are read.
    Members(MultiLock): |this| this.0.lock(), this.0.try_lock(), |limit| this.0.try_lock_for(limit);
}
