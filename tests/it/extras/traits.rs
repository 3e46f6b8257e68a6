//! A service written against the traits runs with a lock on ZooKeeper, and with a fake of its own.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use zookeeper_recipes::{
    DistributedLock, Error, FencingToken, HoldState, LockGuard, Loss, MultiLock, Mutex, Session,
};

use crate::support::World;

/// A service that runs a job in one place at a time.
struct Service {
    lock: Arc<dyn DistributedLock>,
    runs: AtomicUsize,
}

impl Service {
    fn new(lock: Arc<dyn DistributedLock>) -> Self {
        Self { lock, runs: AtomicUsize::new(0) }
    }

    async fn run(&self) -> Result<Option<FencingToken>, Error> {
        let Some(guard) = self.lock.try_lock_for(Duration::from_secs(2)).await? else {
            return Ok(None);
        };
        let token = guard.fencing_token();
        guard.run_until_lost(async { self.runs.fetch_add(1, Ordering::Relaxed) }).await?;
        guard.release().await?;
        Ok(Some(token))
    }
}

fn mutex(session: &Session, path: &str) -> Arc<dyn DistributedLock> {
    Arc::new(Mutex::new(session, path).expect("a mutex"))
}

async fn serves(lock: Arc<dyn DistributedLock>) {
    let service = Service::new(lock);
    let first = service.run().await.expect("asked").expect("ran");
    let second = service.run().await.expect("asked").expect("ran");
    assert!(first < second);
    let guard = service.lock.lock().await.expect("held");
    assert_eq!(service.run().await.expect("asked"), None, "another instance runs it");
    guard.release().await.expect("released");
    assert_eq!(service.runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn service_runs_with_the_real_lock() {
    let world = World::new().await;
    serves(mutex(&world.session, &world.path)).await;
    world.wait_empty().await;
}

#[tokio::test]
async fn service_runs_with_local_servers() {
    serves(mutex(&Session::local().await.expect("servers"), "/jobs/bills")).await;
}

#[tokio::test]
async fn service_runs_with_a_fake_of_its_own() {
    serves(Arc::new(Fakes::default())).await;
}

/// A fake that a user would write.
#[derive(Clone, Default)]
struct Fakes {
    is_held: Arc<AtomicBool>,
    tokens: Arc<AtomicI64>,
}

#[derive(Debug)]
struct FakeGuard {
    token: i64,
    is_held: Arc<AtomicBool>,
}

#[async_trait]
impl DistributedLock for Fakes {
    async fn lock(&self) -> Result<Box<dyn LockGuard>, Error> {
        self.try_lock().await?.ok_or(Error::Closed)
    }

    async fn try_lock(&self) -> Result<Option<Box<dyn LockGuard>>, Error> {
        if self.is_held.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        let token = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Some(Box::new(FakeGuard { token, is_held: self.is_held.clone() })))
    }

    async fn try_lock_for(&self, _: Duration) -> Result<Option<Box<dyn LockGuard>>, Error> {
        self.try_lock().await
    }

    fn path(&self) -> &str {
        "a fake"
    }
}

#[async_trait]
impl LockGuard for FakeGuard {
    fn fencing_token(&self) -> FencingToken {
        self.token.try_into().expect("it counts from 1")
    }

    fn state(&self) -> HoldState {
        HoldState::Held
    }

    fn lost(&self) -> BoxFuture<'static, Loss> {
        pending().boxed()
    }

    fn path(&self) -> &str {
        "a fake"
    }

    fn valid_for(&self) -> Duration {
        Duration::MAX
    }

    async fn release(self: Box<Self>) -> Result<(), Error> {
        self.is_held.store(false, Ordering::Relaxed);
        Ok(())
    }
}

async fn works_on_a_borrowed_guard(guard: &dyn LockGuard) -> Result<u8, Loss> {
    guard.run_until_lost(async { 1 }).await
}

#[tokio::test]
async fn borrowed_guard_runs_until_lost() {
    let session = Session::local().await.expect("servers");
    let lock = mutex(&session, "/jobs/bills");
    let guard = lock.lock().await.expect("held");
    assert_eq!(works_on_a_borrowed_guard(&*guard).await, Ok(1));
}

#[tokio::test]
async fn multi_lock_with_a_shared_member_is_not_a_distributed_lock() {
    let world = World::new().await;
    let [one, other] = ["a", "b"].map(|name| format!("{}/{name}", world.path));
    let builder = || MultiLock::builder(&world.session);
    for lock in [
        builder().read(&one).read(&other).build().expect("a lock"),
        builder().write(&other).read(&one).build().expect("a lock"),
    ] {
        let error = lock.exclusive().err().expect("it has a shared member");
        assert!(matches!(error, Error::InvalidInput { what: "paths", .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("{one} is only read")), "{error}");
    }
}
