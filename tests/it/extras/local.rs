//! What services see of every recipe with the servers of `Session::local`, and how they make them fail. They are those of the suite in
//! virtual time, so here is what only a [`LocalSession`] has.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::job::JobOutcome;
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{
    DistributedLock, Error, FencingToken, HoldMonitor, HoldState, Job, LockGuard, Loss, Mutex, Session,
};

use crate::recipes::*;
use crate::support::{BRIEF, TIMEOUT, admin_client, soon, until};

const PATH: &str = "/jobs/bills";

/// The servers with a session, which the tests make fail.
struct Fleet {
    session: LocalSession,
    admin: Client,
}

type Lock = Arc<dyn DistributedLock>;

impl Fleet {
    async fn start() -> Self {
        let session = local(TIMEOUT).await;
        let admin = admin_client(&session.hosts()).await;
        Self { session, admin }
    }

    fn lock(&self, recipe: &Recipe) -> Lock {
        (recipe.lock)(&self.session, PATH)
    }

    /// That of another process.
    async fn other(&self, recipe: &Recipe) -> Lock {
        let another = self.session.another_with(|servers| servers.with_session_timeout(TIMEOUT));
        (recipe.other)(&another.await.expect("connects"), PATH)
    }

    /// Waits until the tasks that were started have come as far as they can.
    async fn settle(&self, recipe: &Recipe, waiters: usize) {
        let dirs: Vec<_> = recipe.dirs.iter().map(|dir| format!("{PATH}{dir}")).collect();
        soon("the waiters", crate::wait::for_nodes(&self.admin, &dirs, (recipe.nodes)(waiters))).await;
    }
}

async fn local(timeout: Duration) -> LocalSession {
    let servers = Session::local().await.expect("servers");
    servers.another_with(|servers| servers.with_session_timeout(timeout)).await.expect("connects")
}

macro_rules! table {
    ($($recipe:ident => $of:expr;)*) => {$(
        mod $recipe {
            use super::*;

            rows!($of =>
                grants_in_order, is_suspended_and_held_again, is_lost_when_the_session_expires,
                is_lost_when_the_node_is_deleted, queues_again_when_the_session_expires
            );
        }
    )*};
}

for_all_recipes!(table);

fn acquire(lock: Lock) -> JoinHandle<Result<FencingToken, Error>> {
    tokio::spawn(async move {
        let guard = lock.lock().await?;
        let token = guard.fencing_token();
        guard.release().await.map(|()| token)
    })
}

async fn token(waiter: JoinHandle<Result<FencingToken, Error>>) -> FencingToken {
    soon("a turn", waiter).await.expect("no panic").expect("held and released")
}

async fn state(guard: &dyn LockGuard, wanted: HoldState) {
    until(&wanted.to_string(), || guard.state() == wanted).await;
}

async fn grants_in_order(recipe: &Recipe) {
    let fleet = Fleet::start().await;
    let guard = fleet.lock(recipe).lock().await.expect("held");
    let other = fleet.other(recipe).await;
    assert!(other.try_lock().await.expect("asked").is_none());
    assert!(other.try_lock_for(BRIEF / 2).await.expect("asked").is_none());
    let mut waiters = Vec::new();
    for waiter in 1..=3 {
        waiters.push(acquire(fleet.other(recipe).await));
        fleet.settle(recipe, waiter).await;
    }
    let mut last = guard.fencing_token();
    guard.release().await.expect("released");
    for waiter in waiters {
        let next = token(waiter).await;
        assert!(last < next, "in the order of arrival");
        last = next;
    }
}

async fn is_suspended_and_held_again(recipe: &Recipe) {
    let fleet = Fleet::start().await;
    let lock = fleet.lock(recipe);
    let guard = lock.lock().await.expect("held");
    fleet.session.disconnect();
    state(&*guard, HoldState::Suspended).await;
    let at_once = lock.try_lock_for(Duration::ZERO).now_or_never().expect("no wait for a connection");
    assert!(matches!(at_once, Err(Error::Unavailable { why: Unanswered::Servers, .. })));
    fleet.session.reconnect();
    state(&*guard, HoldState::Held).await;
    soon("the release", guard.release()).await.expect("released");
}

async fn is_lost_when_the_session_expires(recipe: &Recipe) {
    let fleet = Fleet::start().await;
    let guard = fleet.lock(recipe).lock().await.expect("held");
    let next = acquire(fleet.other(recipe).await);
    fleet.settle(recipe, 1).await;
    let lost = guard.lost();
    fleet.session.expire();
    // The servers delete the nodes with the session, and either may be noticed first.
    let loss = soon("the loss", lost).await;
    assert!(matches!(loss, Loss::Expired | Loss::Deleted), "{loss:?}");
    assert!(token(next).await > guard.fencing_token());
    assert_eq!(guard.release().await, Err(Error::Lost(loss)));
    // The session is renewed.
    drop(soon("a lock", fleet.lock(recipe).lock()).await.expect("held"));
}

async fn is_lost_when_the_node_is_deleted(recipe: &Recipe) {
    let fleet = Fleet::start().await;
    let lock = fleet.lock(recipe);
    let guard = lock.lock().await.expect("held");
    // The path of a semaphore stands for its leases.
    let dir = recipe.dirs.last().expect("a folder").trim_end_matches("/leases");
    fleet.session.lose(&format!("{PATH}{dir}")).await.expect("deleted");
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Deleted)));
    drop(soon("a lock", lock.lock()).await.expect("held"));
}

async fn queues_again_when_the_session_expires(recipe: &Recipe) {
    let fleet = Fleet::start().await;
    let guard = fleet.other(recipe).await.lock().await.expect("held");
    let waiting = acquire((recipe.other)(&fleet.session, PATH));
    fleet.settle(recipe, 1).await;
    let next = acquire(fleet.other(recipe).await);
    fleet.settle(recipe, 2).await;
    fleet.session.expire();
    fleet.settle(recipe, 2).await;
    guard.release().await.expect("released");
    assert!(token(next).await < token(waiting).await, "it went to the tail");
}

#[tokio::test]
async fn session_that_stays_disconnected_expires() {
    let session = local(BRIEF).await;
    let guard = Mutex::new(&session, "/jobs/bills").expect("a lock").lock().await.expect("held");
    let next = session.another().await.expect("connects");
    session.disconnect();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::TrustEnded);
    drop(soon("the lock", Mutex::new(&next, "/jobs/bills").expect("a lock").lock()).await.expect("held"));
    session.reconnect();
    drop(soon("a new session", Mutex::new(&session, "/jobs/bills").expect("a lock").lock()).await.expect("held"));
}

#[tokio::test]
async fn servers_that_are_unavailable_answer_nobody() {
    let session = local(BRIEF).await;
    let lock = Mutex::new(&session, "/jobs/bills").expect("a lock");
    session.make_unavailable();
    let error = lock.try_lock().await.expect_err("nobody was asked");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    session.make_available();
    drop(soon("the lock", lock.lock()).await.expect("held"));
}

#[tokio::test]
async fn job_is_run_once_with_local_servers() {
    let session = local(TIMEOUT).await;
    let job = Job::new(&session, "/jobs/bills").expect("a job");
    let work = async |_: HoldMonitor| Ok::<_, Error>(7);
    assert!(matches!(job.run("5", work).await.expect("asked"), JobOutcome::Ran(7)));
    assert!(matches!(job.run("5", work).await.expect("asked"), JobOutcome::RanAlready { .. }));
}
