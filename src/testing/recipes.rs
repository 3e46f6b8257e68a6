//! Owns the recipes within the process, which differ in what they want of the queues.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::contender::Contender;
use crate::distributed_lock::{
    DistributedElection, DistributedLock, DistributedReentrantLock, DistributedRwLock, DistributedSemaphore,
    LeaderGuard, LockGuard, WriteGuard,
};
use crate::election::CurrentTerm;
use crate::error::{Error, Loss, Result};
use crate::hold::{Ended, HoldMonitor};
use crate::owner::Owner;
use crate::path::LockPath;
use crate::testing::LocalSession;
use crate::testing::hold::{LocalGuard, LocalHold};
use crate::testing::servers::{Servers, Stage, Want, unavailable};

/// A lock of one path or several.
pub(super) struct LocalLock {
    pub(super) session: LocalSession,
    pub(super) wants: Vec<Want>,
}

impl LocalLock {
    fn servers(&self) -> &Arc<Servers> {
        &self.session.local.servers
    }

    /// Joins the queues at their tail.
    fn join(&self) -> LocalHold {
        LocalHold(self.servers().join(self.session.local.id, &self.session.identifier, &self.wants))
    }

    async fn acquire(&self) -> Result<LocalHold> {
        loop {
            self.servers().connected(self.session.local.id).await?;
            let hold = self.join();
            let look = || match self.servers().look(&hold.0) {
                Stage::Waiting => None,
                stage => Some(stage),
            };
            match self.servers().until(look).await {
                Stage::Ended(Ended::Lost(Loss::Closed)) => return Err(Error::Closed),
                // One with several nodes queues again.
                Stage::Ended(Ended::Lost(Loss::Deleted)) if self.wants.len() == 1 => {
                    return Err(Error::Evicted { node: hold.0.path.to_string() });
                }
                Stage::Ended(_) => {}
                Stage::Waiting | Stage::Held => return Ok(hold),
            }
        }
    }

    async fn try_acquire(&self) -> Result<Option<LocalHold>> {
        self.servers().ask(self.session.local.id)?;
        if !self.servers().is_free(&self.wants) {
            return Ok(None);
        }
        let hold = self.join();
        Ok((self.servers().look(&hold.0) == Stage::Held).then_some(hold))
    }

    async fn try_acquire_for(&self, limit: Duration) -> Result<Option<LocalHold>> {
        if limit.is_zero() {
            return self.try_acquire().await;
        }
        self.within(limit, self.acquire()).await
    }

    /// Waits for a connection, then for `acquired`: `None` if that takes longer than `limit`.
    async fn within<T>(&self, limit: Duration, acquired: impl Future<Output = Result<T>>) -> Result<Option<T>> {
        let begun = Instant::now();
        let connected = self.servers().connected(self.session.local.id);
        tokio::time::timeout(limit, connected).await.map_err(|_| unavailable(limit))??;
        // From here on either somebody is ahead, or the lock is granted.
        let left = limit.saturating_sub(begun.elapsed());
        tokio::time::timeout(left, acquired).await.ok().transpose()
    }

    /// The contender must be one of this lock.
    fn check(&self, contender: &Contender) -> Result<()> {
        self.servers().ask(self.session.local.id)?;
        if self.wants.iter().any(|want| want.path.as_str() == contender.path()) {
            return Ok(());
        }
        let reason = format!("it is one of {}, not of {}", contender.path(), self.wants[0].path);
        Err(Error::invalid("contender", reason))
    }
}

fn guard(hold: LocalHold) -> Box<dyn LockGuard> {
    LocalGuard::new(hold)
}

fn writer(hold: LocalHold) -> Box<dyn WriteGuard> {
    LocalGuard::new(hold)
}

#[async_trait]
impl DistributedLock for LocalLock {
    async fn lock(&self) -> Result<Box<dyn LockGuard>> {
        self.acquire().await.map(guard)
    }

    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_acquire().await?.map(guard))
    }

    async fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.try_acquire_for(limit).await?.map(guard))
    }

    fn path(&self) -> &str {
        self.wants[0].path.as_str()
    }

    async fn contenders(&self) -> Result<Vec<Contender>> {
        self.servers().ask(self.session.local.id)?;
        Ok(self.servers().contenders(&self.wants))
    }

    async fn revoke(&self, contender: &Contender) -> Result<bool> {
        self.check(contender)?;
        Ok(self.servers().revoke(contender))
    }

    async fn break_lock(&self, contender: &Contender) -> Result<bool> {
        self.check(contender)?;
        Ok(self.servers().break_lock(contender))
    }
}

pub(super) struct LocalRwLock {
    pub(super) read: LocalLock,
    pub(super) write: LocalLock,
}

#[async_trait]
impl DistributedRwLock for LocalRwLock {
    async fn read(&self) -> Result<Box<dyn LockGuard>> {
        self.read.acquire().await.map(guard)
    }

    async fn try_read(&self) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.read.try_acquire().await?.map(guard))
    }

    async fn try_read_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.read.try_acquire_for(limit).await?.map(guard))
    }

    async fn write(&self) -> Result<Box<dyn WriteGuard>> {
        self.write.acquire().await.map(writer)
    }

    async fn try_write(&self) -> Result<Option<Box<dyn WriteGuard>>> {
        Ok(self.write.try_acquire().await?.map(writer))
    }

    async fn try_write_for(&self, limit: Duration) -> Result<Option<Box<dyn WriteGuard>>> {
        Ok(self.write.try_acquire_for(limit).await?.map(writer))
    }
}

pub(super) struct LocalSemaphore {
    pub(super) session: LocalSession,
    pub(super) path: LockPath,
    pub(super) permits: u32,
}

impl LocalSemaphore {
    fn many(&self, count: u32) -> Result<LocalLock> {
        let reason = match count {
            0 => "none would be acquired; give at least one".to_owned(),
            count if count > self.permits => format!("{count} are wanted, and there are only {}", self.permits),
            count => {
                return Ok(self.session.lock_of(vec![Want::permits(self.path.clone(), count, self.permits)]));
            }
        };
        Err(Error::invalid("permits", reason))
    }
}

#[async_trait]
impl DistributedSemaphore for LocalSemaphore {
    async fn acquire(&self, count: u32) -> Result<Box<dyn LockGuard>> {
        self.many(count)?.acquire().await.map(guard)
    }

    async fn try_acquire(&self, count: u32) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.many(count)?.try_acquire().await?.map(guard))
    }

    async fn try_acquire_for(&self, count: u32, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        Ok(self.many(count)?.try_acquire_for(limit).await?.map(guard))
    }
}

pub(super) struct LocalReentrantLock(pub(super) LocalLock);

#[async_trait]
impl DistributedReentrantLock for LocalReentrantLock {
    async fn lock(&self, owner: &Owner) -> Result<Box<dyn LockGuard>> {
        let owned = self.0.session.owned(owner, &self.0.wants[0].path);
        let mut owned = owned.lock().await;
        if let Some(hold) = owned.upgrade() {
            return LocalGuard::owned(hold, owner);
        }
        let hold = Arc::new(self.0.acquire().await?);
        *owned = Arc::downgrade(&hold);
        LocalGuard::owned(hold, owner)
    }

    async fn try_lock(&self, owner: &Owner) -> Result<Option<Box<dyn LockGuard>>> {
        let owned = self.0.session.owned(owner, &self.0.wants[0].path);
        // Another call of this owner waits, so somebody is ahead.
        let Ok(mut owned) = owned.try_lock() else { return Ok(None) };
        if let Some(hold) = owned.upgrade() {
            return LocalGuard::owned(hold, owner).map(Some);
        }
        let Some(hold) = self.0.try_acquire().await?.map(Arc::new) else { return Ok(None) };
        *owned = Arc::downgrade(&hold);
        LocalGuard::owned(hold, owner).map(Some)
    }

    async fn try_lock_for(&self, owner: &Owner, limit: Duration) -> Result<Option<Box<dyn LockGuard>>> {
        if limit.is_zero() {
            return self.try_lock(owner).await;
        }
        self.0.within(limit, self.lock(owner)).await
    }
}

pub(super) struct LocalElection {
    pub(super) lock: LocalLock,
    pub(super) current: CurrentTerm,
}

impl LocalElection {
    fn leads(&self, hold: LocalHold) -> Box<dyn LeaderGuard> {
        self.current.begin(HoldMonitor::new(hold.0.clone()));
        LocalGuard::new(hold)
    }
}

#[async_trait]
impl DistributedElection for LocalElection {
    async fn campaign(&self) -> Result<Box<dyn LeaderGuard>> {
        self.lock.acquire().await.map(|hold| self.leads(hold))
    }

    async fn try_campaign(&self) -> Result<Option<Box<dyn LeaderGuard>>> {
        Ok(self.lock.try_acquire().await?.map(|hold| self.leads(hold)))
    }

    async fn try_campaign_for(&self, limit: Duration) -> Result<Option<Box<dyn LeaderGuard>>> {
        Ok(self.lock.try_acquire_for(limit).await?.map(|hold| self.leads(hold)))
    }

    fn current_term(&self) -> Option<HoldMonitor> {
        self.current.monitor()
    }

    async fn leader(&self) -> Result<Option<Contender>> {
        self.lock.servers().ask(self.lock.session.local.id)?;
        Ok(self.lock.servers().contenders(&self.lock.wants).into_iter().find(Contender::is_holder))
    }
}
