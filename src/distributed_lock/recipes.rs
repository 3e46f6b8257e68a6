//! Owns the implementations of the traits by the recipes, and by [`Session`], which creates them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::contender::Contender;
use crate::distributed_lock::{
    DistributedElection, DistributedLock, DistributedReentrantLock, DistributedRwLock, DistributedSemaphore,
    LeaderGuard, LockGuard, LockProvider, WriteGuard,
};
use crate::election::{Election, Leadership};
use crate::error::{Error, Loss, Result};
use crate::fencing_token::FencingToken;
use crate::hold::{HoldMonitor, HoldState};
use crate::multi_lock::{MultiLock, MultiLockGuard};
use crate::mutex::{Mutex, MutexGuard};
use crate::owner::Owner;
use crate::reentrant::{ReentrantMutex, ReentrantMutexGuard};
use crate::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::semaphore::{Semaphore, SemaphorePermit};
use crate::session::Session;

/// A multi-lock without shared members.
struct Exclusive(MultiLock);

macro_rules! locks {
    ($($lock:ty: |$this:ident| $of:expr;)*) => {$(
        #[async_trait]
        impl DistributedLock for $lock {
            async fn lock(&self) -> Result<Box<dyn LockGuard>> {
                let $this = self;
                Ok(Box::new($of.lock().await?))
            }

            async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>> {
                let $this = self;
                Ok($of.try_lock().await?.map(boxed))
            }

            async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
                let $this = self;
                Ok($of.try_lock_for(limit).await?.map(boxed))
            }

            fn path(&self) -> &str {
                let $this = self;
                $of.path()
            }

            async fn contenders(&self) -> Result<Vec<Contender>> {
                let $this = self;
                $of.contenders().await
            }

            async fn revoke(&self, contender: &Contender) -> Result<bool> {
                let $this = self;
                $of.revoke(contender).await
            }

            async fn break_lock(&self, contender: &Contender) -> Result<bool> {
                let $this = self;
                $of.break_lock(contender).await
            }
        }
    )*};
}

locks! {
    Mutex: |this| this;
    Exclusive: |this| this.0;
}

fn boxed<G: LockGuard + 'static>(guard: G) -> Box<dyn LockGuard> {
    Box::new(guard)
}

impl MultiLock {
    /// Returns this lock as a [`DistributedLock`], which one holder at a time can hold.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidInput`] if one of the members is only [read](crate::MultiLockBuilder::read): others may read it
    /// at the same time.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(session: zookeeper_recipes::Session) -> Result<(), zookeeper_recipes::Error> {
    /// use std::sync::Arc;
    ///
    /// use zookeeper_recipes::{DistributedLock, MultiLock};
    ///
    /// let accounts: Arc<dyn DistributedLock> =
    ///     MultiLock::new(&session, ["/accounts/alice", "/accounts/bob"])?.exclusive()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exclusive(&self) -> Result<Arc<dyn DistributedLock>> {
        if let Some(path) = self.shared_member() {
            let reason = format!("{path} is only read, which several may do at a time; lock it or write it");
            return Err(Error::invalid("paths", reason));
        }
        Ok(Arc::new(Exclusive(self.clone())))
    }
}

macro_rules! guards {
    ($($guard:ty: $release:ident),*) => {$(
        #[async_trait]
        impl LockGuard for $guard {
            fn fencing_token(&self) -> FencingToken {
                (**self).fencing_token()
            }

            fn state(&self) -> HoldState {
                (**self).state()
            }

            fn lost(&self) -> BoxFuture<'static, Loss> {
                (**self).lost().boxed()
            }

            async fn release(self: Box<Self>) -> Result<()> {
                Self::$release(*self).await
            }

            fn path(&self) -> &str {
                (**self).path()
            }

            fn valid_for(&self) -> Duration {
                (**self).valid_for()
            }

            fn monitor(&self) -> HoldMonitor {
                (**self).monitor()
            }

            fn revoke_requested(&self) -> BoxFuture<'static, ()> {
                (**self).revoke_requested().boxed()
            }
        }
    )*};
}

guards! {
    MutexGuard: release,
    ReentrantMutexGuard: release,
    RwLockReadGuard: release,
    RwLockWriteGuard: release,
    SemaphorePermit: release,
    MultiLockGuard: release,
    Leadership: resign
}

#[async_trait]
impl DistributedRwLock for RwLock {
    async fn read(&self) -> Result<Box<dyn LockGuard>> {
        self.read().await.map(boxed)
    }

    async fn try_read(&self) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_read().await?.map(boxed))
    }

    async fn try_read_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_read_for(limit).await?.map(boxed))
    }

    async fn write(&self) -> Result<Box<dyn WriteGuard>> {
        Ok(Box::new(self.write().await?))
    }

    async fn try_write(&self) -> Result<Option<Box<dyn WriteGuard>>> {
        Ok(self.try_write().await?.map(|guard| Box::new(guard) as _))
    }

    async fn try_write_for(&self, limit: Duration) -> Result<Option<Box<dyn WriteGuard>>> {
        Ok(self.try_write_for(limit).await?.map(|guard| Box::new(guard) as _))
    }
}

#[async_trait]
impl WriteGuard for RwLockWriteGuard {
    async fn downgrade(self: Box<Self>) -> Result<Box<dyn LockGuard>, (Box<dyn WriteGuard>, Error)> {
        Self::downgrade(*self).await.map(boxed).map_err(|error| (Box::new(error.guard) as _, error.source))
    }
}

#[async_trait]
impl DistributedSemaphore for Semaphore {
    async fn acquire(&self, count: u32) -> Result<Box<dyn LockGuard>> {
        self.acquire_many(count).await.map(boxed)
    }

    async fn try_acquire(&self, count: u32) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_acquire_many(count).await?.map(boxed))
    }

    async fn try_acquire_for(&self, count: u32, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_acquire_many_for(count, limit).await?.map(boxed))
    }
}

#[async_trait]
impl DistributedReentrantLock for ReentrantMutex {
    async fn lock(&self, owner: &Owner) -> Result<Box<dyn LockGuard>> {
        self.lock(owner).await.map(boxed)
    }

    async fn try_lock(&self, owner: &Owner) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_lock(owner).await?.map(boxed))
    }

    async fn try_lock_for(&self, owner: &Owner, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_lock_for(owner, limit).await?.map(boxed))
    }
}

#[async_trait]
impl DistributedElection for Election {
    async fn campaign(&self) -> Result<Box<dyn LeaderGuard>> {
        Ok(Box::new(self.campaign().await?))
    }

    async fn try_campaign(&self) -> Result<Option<Box<dyn LeaderGuard>>> {
        Ok(self.try_campaign().await?.map(|guard| Box::new(guard) as _))
    }

    async fn try_campaign_for(&self, limit: Duration) -> Result<Option<Box<dyn LeaderGuard>>> {
        Ok(self.try_campaign_for(limit).await?.map(|guard| Box::new(guard) as _))
    }

    fn current_term(&self) -> Option<HoldMonitor> {
        self.current_term()
    }

    async fn leader(&self) -> Result<Option<Contender>> {
        self.leader().await
    }
}

#[async_trait]
impl LeaderGuard for Leadership {
    async fn proclaim(&self, data: Vec<u8>) -> Result<()> {
        self.proclaim(data).await
    }
}

impl LockProvider for Session {
    fn lock_at(&self, path: &str) -> Result<Arc<dyn DistributedLock>> {
        Ok(Arc::new(Mutex::new(self, path)?))
    }

    fn rw_lock_at(&self, path: &str) -> Result<Arc<dyn DistributedRwLock>> {
        Ok(Arc::new(RwLock::new(self, path)?))
    }

    fn semaphore_at(&self, path: &str, permits: u32) -> Result<Arc<dyn DistributedSemaphore>> {
        Ok(Arc::new(Semaphore::new(self, path, permits)?))
    }

    fn reentrant_lock_at(&self, path: &str) -> Result<Arc<dyn DistributedReentrantLock>> {
        Ok(Arc::new(ReentrantMutex::new(self, path)?))
    }

    fn multi_lock_of(&self, paths: &[&str]) -> Result<Arc<dyn DistributedLock>> {
        MultiLock::new(self, paths)?.exclusive()
    }

    fn election_at(&self, path: &str) -> Result<Arc<dyn DistributedElection>> {
        Ok(Arc::new(Election::new(self, path)?))
    }
}

impl<P: LockProvider + ?Sized> LockProvider for Arc<P> {
    fn lock_at(&self, path: &str) -> Result<Arc<dyn DistributedLock>> {
        (**self).lock_at(path)
    }

    fn rw_lock_at(&self, path: &str) -> Result<Arc<dyn DistributedRwLock>> {
        (**self).rw_lock_at(path)
    }

    fn semaphore_at(&self, path: &str, permits: u32) -> Result<Arc<dyn DistributedSemaphore>> {
        (**self).semaphore_at(path, permits)
    }

    fn reentrant_lock_at(&self, path: &str) -> Result<Arc<dyn DistributedReentrantLock>> {
        (**self).reentrant_lock_at(path)
    }

    fn multi_lock_of(&self, paths: &[&str]) -> Result<Arc<dyn DistributedLock>> {
        (**self).multi_lock_of(paths)
    }

    fn election_at(&self, path: &str) -> Result<Arc<dyn DistributedElection>> {
        (**self).election_at(path)
    }
}
