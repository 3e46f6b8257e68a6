//! All recipes behind one interface, for tests of their common behaviour.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use zookeeper_recipes::contender::ContenderKind;
use zookeeper_recipes::{
    Contender, Election, Error, Hold, LockGuard, MultiLock, Mutex, Options, Owner, ReentrantMutex, RwLock,
    Semaphore, Session, Waiting,
};

use crate::support::{World, children, soon, wait_children};

/// What operators can do with every recipe.
#[async_trait]
pub(crate) trait Operated: Send + Sync {
    async fn contenders(&self) -> Result<Vec<Contender>, Error>;
    async fn break_lock(&self, contender: &Contender) -> Result<bool, Error>;
    async fn revoke(&self, contender: &Contender) -> Result<bool, Error>;
}

/// What every recipe can do.
#[async_trait]
pub(crate) trait Family: Operated {
    async fn hold(&self) -> Result<Box<dyn Held>, Error>;
    async fn try_hold(&self) -> Result<Option<Box<dyn Held>>, Error>;
    async fn try_hold_for(&self, limit: Duration) -> Result<Option<Box<dyn Held>>, Error>;
    /// `None` for recipes without places.
    async fn enqueue(&self) -> Result<Option<Box<dyn Queued>>, Error>;
}

/// What every guard can do.
pub(crate) trait Held: Deref<Target = Hold> + LockGuard {}

impl<G: Deref<Target = Hold> + LockGuard> Held for G {}

/// A place in the queue of any recipe.
pub(crate) trait Queued: Send + Unpin {
    fn position(&self) -> usize;
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Held>, Error>>;
}

impl<G: Held + 'static> Queued for Waiting<G> {
    fn position(&self) -> usize {
        Self::position(self)
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<dyn Held>, Error>> {
        Pin::new(self).poll(cx).map(|guard| Ok(Box::new(guard?) as _))
    }
}

impl Future for dyn Queued {
    type Output = Result<Box<dyn Held>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Every place is `Unpin`.
        self.get_mut().poll_turn(cx)
    }
}

struct Reads(RwLock);
struct Writes(RwLock);
struct Two(Semaphore);

macro_rules! family {
    ($($kin:ty: |$this:ident| $lock:expr, $hold:ident, $try_hold:ident, $try_hold_for:ident, $enqueue:ident ($($arg:expr),*);)*) => {$(
        #[async_trait]
        impl Family for $kin {
            async fn hold(&self) -> Result<Box<dyn Held>, Error> {
                let $this = self;
                Ok(Box::new($lock.$hold($($arg),*).await?))
            }

            async fn try_hold(&self) -> Result<Option<Box<dyn Held>>, Error> {
                let $this = self;
                Ok($lock.$try_hold($($arg),*).await?.map(|guard| Box::new(guard) as _))
            }

            async fn try_hold_for(&self, limit: Duration) -> Result<Option<Box<dyn Held>>, Error> {
                let $this = self;
                Ok($lock.$try_hold_for($($arg,)* limit).await?.map(|guard| Box::new(guard) as _))
            }

            async fn enqueue(&self) -> Result<Option<Box<dyn Queued>>, Error> {
                let $this = self;
                Ok(Some(Box::new($lock.$enqueue($($arg),*).await?)))
            }
        }
    )*};
}

macro_rules! operated {
    ($($kin:ty: |$this:ident| $lock:expr;)*) => {$(
        #[async_trait]
        impl Operated for $kin {
            async fn contenders(&self) -> Result<Vec<Contender>, Error> {
                let $this = self;
                $lock.contenders().await
            }

            async fn break_lock(&self, contender: &Contender) -> Result<bool, Error> {
                let $this = self;
                $lock.break_lock(contender).await
            }

            async fn revoke(&self, contender: &Contender) -> Result<bool, Error> {
                let $this = self;
                $lock.revoke(contender).await
            }
        }
    )*};
}

operated! {
    Mutex: |this| this;
    ReentrantMutex: |this| this;
    Reads: |this| this.0;
    Writes: |this| this.0;
    Two: |this| this.0;
    MultiLock: |this| this;
    Election: |this| this;
}

family! {
    Mutex: |this| this, lock, try_lock, try_lock_for, enqueue ();
    Reads: |this| this.0, read, try_read, try_read_for, enqueue_read ();
    Writes: |this| this.0, write, try_write, try_write_for, enqueue_write ();
    Two: |this| this.0, acquire_many, try_acquire_many, try_acquire_many_for, enqueue (2);
    MultiLock: |this| this, lock, try_lock, try_lock_for, enqueue ();
    Election: |this| this, campaign, try_campaign, try_campaign_for, enqueue ();
}

/// Every hold has an owner of its own.
#[async_trait]
impl Family for ReentrantMutex {
    async fn hold(&self) -> Result<Box<dyn Held>, Error> {
        Ok(Box::new(self.lock(&Owner::new()).await?))
    }

    async fn try_hold(&self) -> Result<Option<Box<dyn Held>>, Error> {
        Ok(self.try_lock(&Owner::new()).await?.map(|guard| Box::new(guard) as _))
    }

    async fn try_hold_for(&self, limit: Duration) -> Result<Option<Box<dyn Held>>, Error> {
        Ok(self.try_lock_for(&Owner::new(), limit).await?.map(|guard| Box::new(guard) as _))
    }

    async fn enqueue(&self) -> Result<Option<Box<dyn Queued>>, Error> {
        Ok(None)
    }
}

type Make = fn(&Session, &str, Options) -> Result<Arc<dyn Family>, Error>;

/// A recipe by its name.
#[derive(Clone, Copy)]
pub(crate) struct Kin {
    pub(crate) name: &'static str,
    pub(crate) make: Make,
    /// The folders of its queues below the lock path, and the kind of their nodes.
    pub(crate) queues: &'static [(&'static str, ContenderKind)],
    /// A recipe that this one excludes, if not its own.
    excluded: Option<Make>,
    /// The number of nodes of a waiter behind a holder.
    pub(crate) waiting: usize,
}

/// The semaphore has three permits, and each acquire takes two.
pub(crate) const FAMILY: [Kin; 7] = [
    one("mutex", ContenderKind::Lock, |session, path, options| {
        Ok(Arc::new(Mutex::with_options(session, path, options)?))
    }),
    one("reentrant mutex", ContenderKind::Lock, |session, path, options| {
        Ok(Arc::new(ReentrantMutex::with_options(session, path, options)?))
    }),
    one("writer", ContenderKind::Write, WRITES),
    Kin { excluded: Some(WRITES), ..one("reader", ContenderKind::Read, READS) },
    Kin {
        queues: &[("/locks", ContenderKind::Lock), ("/leases", ContenderKind::Lease)],
        waiting: 3,
        ..one("semaphore", ContenderKind::Lease, |session, path, options| {
            Ok(Arc::new(Two(Semaphore::with_options(session, path, 3, options)?)))
        })
    },
    Kin {
        queues: TWO_QUEUES,
        waiting: 2,
        ..one("multi-lock", ContenderKind::Lock, |session, path, options| {
            Ok(Arc::new(two_locks(session, path, options)?))
        })
    },
    one("election", ContenderKind::Latch, |session, path, options| {
        Ok(Arc::new(Election::with_options(session, path, options)?))
    }),
];

const WRITES: Make = |session, path, options| Ok(Arc::new(Writes(RwLock::with_options(session, path, options)?)));
const READS: Make = |session, path, options| Ok(Arc::new(Reads(RwLock::with_options(session, path, options)?)));
const TWO_QUEUES: &[(&str, ContenderKind)] = &[("/a", ContenderKind::Lock), ("/b", ContenderKind::Lock)];

/// A recipe with one node at the lock path.
const fn one(name: &'static str, kind: ContenderKind, make: Make) -> Kin {
    let queues: &[_] = match kind {
        ContenderKind::Read => &[("", ContenderKind::Read)],
        ContenderKind::Write => &[("", ContenderKind::Write)],
        ContenderKind::Latch => &[("", ContenderKind::Latch)],
        _ => &[("", ContenderKind::Lock)],
    };
    Kin { name, make, queues, excluded: None, waiting: 1 }
}

fn two_locks(session: &Session, path: &str, options: Options) -> Result<MultiLock, Error> {
    let (a, b) = (format!("{path}/a"), format!("{path}/b"));
    MultiLock::builder(session).lock(&a).lock(&b).options(options).build()
}

impl Kin {
    pub(crate) fn lock(&self, session: &Session, path: &str) -> Arc<dyn Family> {
        (self.make)(session, path, session_options(session)).expect(self.name)
    }

    /// A lock that excludes this one, and is excluded by it.
    pub(crate) fn rival(&self, session: &Session, path: &str) -> Arc<dyn Family> {
        self.excluded.unwrap_or(self.make)(session, path, session_options(session)).expect(self.name)
    }

    /// Waits until all queues together have `count` nodes.
    pub(crate) async fn wait_nodes(&self, world: &World, count: usize) {
        let counted = async {
            loop {
                let mut counts = 0;
                for (queue, _) in self.queues {
                    counts += children(&world.admin, &format!("{}{queue}", world.path)).await.len();
                }
                if counts == count {
                    return;
                }
            }
        };
        soon(&format!("{count} nodes of a {}", self.name), counted).await;
    }

    /// Waits until all queues are empty.
    pub(crate) async fn wait_empty(&self, world: &World) {
        for (queue, _) in self.queues {
            wait_children(&world.admin, &format!("{}{queue}", world.path), 0).await;
        }
    }
}

/// Identified by its session.
fn session_options(session: &Session) -> Options {
    Options::new().with_identifier(format!("in {}", session.id()))
}

/// Acquires in the background, and waits until the nodes are in the queue.
pub(crate) async fn queue(kin: &Kin, world: &World, lock: Arc<dyn Family>, ahead: usize) -> Joining {
    let waiting = tokio::spawn(async move { lock.hold().await });
    kin.wait_nodes(world, ahead + kin.waiting).await;
    waiting
}

pub(crate) type Joining = tokio::task::JoinHandle<Result<Box<dyn Held>, Error>>;

/// The hold of a queued acquire.
pub(crate) async fn turn(kin: &Kin, waiting: Joining) -> Box<dyn Held> {
    soon(kin.name, waiting).await.expect("no panic").expect("held")
}
