//! What services see of every recipe: the same with real servers as with those of `Session::local`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use zookeeper_recipes::error::Unanswered;
use zookeeper_recipes::job::JobOutcome;
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::zookeeper_client::Client;
use zookeeper_recipes::{
    DistributedLock, Election, Error, FencingToken, HoldMonitor, HoldState, Job, LockGuard, Loss, MultiLock,
    Mutex, Options, Owner, ReentrantMutex, RwLock, Semaphore, Session,
};

use crate::recipes::{ELECTION, MULTI_LOCK, MUTEX, READER, REENTRANT_MUTEX, Recipe, SEVERAL_PERMITS, WRITER};
use crate::support::{BRIEF, TIMEOUT, World, admin_client, remove_path, soon, until};

/// The servers with a session, which the tests make fail.
enum Fleet {
    Real(Box<World>),
    Local { session: LocalSession, admin: Client },
}

type Lock = Arc<dyn DistributedLock>;

impl Fleet {
    async fn real() -> Self {
        Self::Real(Box::new(World::new().await))
    }

    async fn local() -> Self {
        let session = local(TIMEOUT).await;
        let admin = admin_client(&session.hosts()).await;
        Self::Local { session, admin }
    }

    fn path(&self) -> String {
        match self {
            Self::Real(world) => world.path.clone(),
            Self::Local { .. } => "/jobs/bills".to_owned(),
        }
    }

    fn session(&self) -> Session {
        match self {
            Self::Real(world) => world.session.clone(),
            Self::Local { session, .. } => Session::clone(session),
        }
    }

    /// That of another process.
    async fn another(&self) -> Session {
        match self {
            Self::Real(world) => world.other().await,
            Self::Local { session, .. } => Session::clone(
                &session.another_with(|servers| servers.with_session_timeout(TIMEOUT)).await.expect("connects"),
            ),
        }
    }

    fn admin(&self) -> &Client {
        match self {
            Self::Real(world) => &world.admin,
            Self::Local { admin, .. } => admin,
        }
    }

    /// Waits until the tasks that were started have come as far as they can.
    async fn settle(&self, recipe: &Recipe, waiters: usize) {
        let dirs: Vec<_> = recipe.dirs.iter().map(|dir| format!("{}{dir}", self.path())).collect();
        soon("the waiters", crate::wait::for_nodes(self.admin(), &dirs, (recipe.nodes)(waiters))).await;
    }

    fn disconnect(&self) {
        match self {
            Self::Real(world) => world.proxy.refuse(),
            Self::Local { session, .. } => session.disconnect(),
        }
    }

    fn reconnect(&self) {
        match self {
            Self::Real(world) => world.proxy.heal(),
            Self::Local { session, .. } => session.reconnect(),
        }
    }

    async fn expire(&self) {
        match self {
            Self::Real(world) => world.expire().await,
            Self::Local { session, .. } => session.expire(),
        }
    }

    /// Deletes a node of the holder.
    async fn delete(&self, recipe: &Recipe) {
        let dir = recipe.dirs.last().expect("a folder");
        let path = format!("{}{dir}", self.path());
        match self {
            Self::Real(world) => {
                let node = crate::support::children(&world.admin, &path).await.remove(0);
                remove_path(&world.admin, &format!("{path}/{node}")).await;
            }
            Self::Local { session, .. } => {
                session.lose(path.strip_suffix("/leases").unwrap_or(&path)).await.expect("deleted");
            }
        }
    }

    async fn close(&self) {
        soon("the end", self.session().close()).await.expect("closed");
    }
}

async fn local(timeout: Duration) -> LocalSession {
    let servers = Session::local().await.expect("servers");
    servers.another_with(|servers| servers.with_session_timeout(timeout)).await.expect("connects")
}

const RECIPES: [Recipe; 7] = [MUTEX, REENTRANT_MUTEX, WRITER, READER, SEVERAL_PERMITS, MULTI_LOCK, ELECTION];

macro_rules! same_with_both {
    ($($test:ident),* $(,)?) => {
        mod real {
            use super::*;
            $(#[tokio::test]
            async fn $test() {
                join_all(RECIPES.iter().map(|recipe| async move { super::$test(Fleet::real().await, recipe).await })).await;
            })*
        }

        mod local {
            use super::*;
            $(#[tokio::test]
            async fn $test() {
                for recipe in &RECIPES {
                    super::$test(Fleet::local().await, recipe).await;
                }
            })*
        }
    };
}

same_with_both! {
    grants_in_order,
    ends_with_release_or_drop,
    forgets_waiters_that_give_up,
    is_suspended_and_held_again,
    is_lost_when_the_session_expires,
    is_lost_when_the_node_is_deleted,
    is_lost_when_the_session_is_closed,
    is_lost_at_its_time_limit,
    queues_again_when_the_session_expires,
}

fn acquire(lock: &Lock) -> JoinHandle<Result<FencingToken, Error>> {
    let lock = lock.clone();
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

async fn grants_in_order(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.session(), &path).lock().await.expect("held");
    let other = (recipe.other)(&fleet.another().await, &path);
    assert!(other.try_lock().await.expect("asked").is_none());
    assert!(other.try_lock_for(Duration::ZERO).await.expect("asked").is_none());
    assert!(other.try_lock_for(BRIEF / 2).await.expect("asked").is_none());
    let mut waiters = Vec::new();
    for waiter in 1..=3 {
        waiters.push(acquire(&(recipe.other)(&fleet.another().await, &path)));
        fleet.settle(recipe, waiter).await;
    }
    let mut last = guard.fencing_token();
    guard.release().await.expect("released");
    for waiter in waiters {
        let next = token(waiter).await;
        assert!(last < next, "in the order of arrival");
        last = next;
    }
    let guard = soon("a lock", other.try_lock_for(TIMEOUT)).await.expect("asked").expect("granted");
    assert!(guard.fencing_token() > last);
}

async fn ends_with_release_or_drop(fleet: Fleet, recipe: &Recipe) {
    let lock = (recipe.lock)(&fleet.session(), &fleet.path());
    let guard = lock.lock().await.expect("held");
    assert_eq!(guard.state(), HoldState::Held);
    assert!(guard.valid_for() > Duration::ZERO);
    assert!(guard.path().starts_with(&fleet.path()), "{}", guard.path());
    assert_eq!(guard.run_until_lost(async { 7 }).await, Ok(7));
    guard.release().await.expect("released");
    drop(soon("a lock", lock.lock()).await.expect("held"));
    drop(soon("a lock after the drop", lock.lock()).await.expect("held"));
}

async fn forgets_waiters_that_give_up(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.session(), &path).lock().await.expect("held");
    let [first, second] = [fleet.another().await, fleet.another().await];
    let waiting = acquire(&(recipe.other)(&first, &path));
    fleet.settle(recipe, 1).await;
    let next = acquire(&(recipe.other)(&second, &path));
    fleet.settle(recipe, 2).await;
    waiting.abort();
    assert!(waiting.await.expect_err("aborted").is_cancelled());
    guard.release().await.expect("released");
    token(next).await;
}

async fn is_suspended_and_held_again(fleet: Fleet, recipe: &Recipe) {
    let lock = (recipe.lock)(&fleet.session(), &fleet.path());
    let guard = lock.lock().await.expect("held");
    fleet.disconnect();
    state(&*guard, HoldState::Suspended).await;
    let at_once = lock.try_lock_for(Duration::ZERO).now_or_never().expect("no wait for a connection");
    assert!(matches!(at_once, Err(Error::Unavailable { why: Unanswered::Servers, .. })));
    let error = lock.try_lock_for(BRIEF / 8).await.expect_err("nobody was asked");
    assert!(matches!(error, Error::Unavailable { why: Unanswered::Servers, .. }), "{error:?}");
    assert!(error.is_transient());
    fleet.reconnect();
    state(&*guard, HoldState::Held).await;
    soon("the release", guard.release()).await.expect("released");
}

async fn is_lost_when_the_session_expires(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.session(), &path).lock().await.expect("held");
    let next = acquire(&(recipe.other)(&fleet.another().await, &path));
    fleet.settle(recipe, 1).await;
    let lost = guard.lost();
    fleet.expire().await;
    // The servers delete the nodes with the session, and either may be noticed first.
    let loss = soon("the loss", lost).await;
    assert!(matches!(loss, Loss::Expired | Loss::Deleted), "{loss:?}");
    assert_eq!((guard.state(), guard.valid_for()), (HoldState::Lost(loss), Duration::ZERO));
    assert_eq!(guard.run_until_lost(async { panic!("not a step") }).await, Err::<(), _>(loss));
    assert!(token(next).await > guard.fencing_token());
    assert_eq!(guard.release().await, Err(Error::Lost(loss)));
    // The session is renewed.
    drop(soon("a lock", (recipe.lock)(&fleet.session(), &path).lock()).await.expect("held"));
}

async fn is_lost_when_the_node_is_deleted(fleet: Fleet, recipe: &Recipe) {
    let lock = (recipe.lock)(&fleet.session(), &fleet.path());
    let guard = lock.lock().await.expect("held");
    fleet.delete(recipe).await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Deleted)));
    drop(soon("a lock", lock.lock()).await.expect("held"));
}

async fn is_lost_when_the_session_is_closed(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let lock = (recipe.lock)(&fleet.session(), &path);
    let guard = lock.lock().await.expect("held");
    fleet.close().await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Closed);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Closed)));
    assert_eq!(lock.lock().await.err(), Some(Error::Closed));
    assert_eq!(lock.try_lock().await.err(), Some(Error::Closed));
    assert_eq!(lock.try_lock_for(BRIEF / 2).await.err(), Some(Error::Closed));
    drop(soon("a lock", (recipe.other)(&fleet.another().await, &path).lock()).await.expect("held"));
}

async fn is_lost_at_its_time_limit(fleet: Fleet, recipe: &Recipe) {
    let locks = fleet.session().with_lock_options(Options::new().with_stall_limit(BRIEF / 10));
    let guard = (recipe.lock)(&locks, &fleet.path()).lock().await.expect("held");
    let lost = guard.lost();
    assert_eq!(soon("the loss", lost).await, Loss::Stalled);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Stalled)));
}

async fn queues_again_when_the_session_expires(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.another().await, &path).lock().await.expect("held");
    let waiting = acquire(&(recipe.other)(&fleet.session(), &path));
    fleet.settle(recipe, 1).await;
    let next = acquire(&(recipe.other)(&fleet.another().await, &path));
    fleet.settle(recipe, 2).await;
    fleet.expire().await;
    fleet.settle(recipe, 2).await;
    guard.release().await.expect("released");
    assert!(token(next).await < token(waiting).await, "it went to the tail");
}

macro_rules! once_with_both {
    ($($test:ident),* $(,)?) => {
        $(mod $test {
            use super::*;

            #[tokio::test]
            async fn real() {
                super::$test(Fleet::real().await).await;
            }

            #[tokio::test]
            async fn local() {
                super::$test(Fleet::local().await).await;
            }
        })*
    };
}

once_with_both! {
    readers_share_and_writers_go_on_as_readers,
    permits_are_all_or_none,
    owner_locks_again,
    several_locks_are_one,
    leader_is_seen_and_leads_term_after_term,
    holder_is_revoked_and_broken,
}

async fn readers_share_and_writers_go_on_as_readers(fleet: Fleet) {
    let path = fleet.path();
    let lock = RwLock::new(&fleet.session(), &path).expect("a lock");
    let other = RwLock::new(&fleet.another().await, &path).expect("a lock");
    let reading = lock.read().await.expect("reads");
    let beside = other.try_read().await.expect("asked").expect("readers share");
    assert!(other.try_write().await.expect("asked").is_none());
    reading.release().await.expect("released");
    beside.release().await.expect("released");
    let writing = soon("the lock", lock.write()).await.expect("writes");
    let token = writing.fencing_token();
    assert!(other.try_read_for(BRIEF / 2).await.expect("asked").is_none());
    let reading = writing.downgrade().await.expect("reads");
    assert_eq!(reading.fencing_token(), token);
    let beside = other.try_read().await.expect("asked").expect("readers share");
    assert!(lock.try_write_for(BRIEF / 2).await.expect("asked").is_none());
    beside.release().await.expect("released");

    drop(reading);
    let writing = soon("the lock", lock.write()).await.expect("writes");
    fleet.close().await;
    let error = writing.downgrade().await.map(|_| ()).expect_err("lost");
    assert_eq!((error.guard.state(), error.source), (HoldState::Lost(Loss::Closed), Error::Lost(Loss::Closed)));
}

async fn permits_are_all_or_none(fleet: Fleet) {
    let path = fleet.path();
    let permits = Semaphore::new(&fleet.session(), &path, 4).expect("a semaphore");
    let other = Semaphore::new(&fleet.another().await, &path, 4).expect("a semaphore");
    let two = permits.acquire_many(2).await.expect("two");
    let one = other.try_acquire_many(1).await.expect("asked").expect("one");
    assert!(other.try_acquire_many(2).await.expect("asked").is_none());
    assert!(other.try_acquire_many_for(2, BRIEF / 2).await.expect("asked").is_none());
    two.release().await.expect("released");
    drop(soon("three", other.acquire_many(3)).await.expect("three"));
    one.release().await.expect("released");
    for refused in [permits.acquire_many(5).await.err(), permits.acquire_many(0).await.err()] {
        assert!(matches!(refused, Some(Error::InvalidInput { what: "permits", .. })), "{refused:?}");
    }
}

async fn owner_locks_again(fleet: Fleet) {
    let path = fleet.path();
    let session = fleet.session();
    let [lock, same] = [(); 2].map(|()| ReentrantMutex::new(&session, &path).expect("a lock"));
    let [owner, other] = [Owner::new(), Owner::new()];
    let first = lock.lock(&owner).await.expect("held");
    let again = same.lock(&owner).await.expect("held");
    assert_eq!(first.fencing_token(), again.fencing_token());
    assert!(same.try_lock(&owner).await.expect("asked").is_some());
    assert!(lock.try_lock(&other).await.expect("asked").is_none());
    first.release().await.expect("released");
    assert!(lock.try_lock_for(&other, BRIEF / 2).await.expect("asked").is_none(), "it is held once more");
    again.release().await.expect("released");
    drop(soon("the lock", lock.lock(&other)).await.expect("held"));
}

async fn several_locks_are_one(fleet: Fleet) {
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{}/{name}", fleet.path()));
    let (session, other) = (fleet.session(), fleet.another().await);
    let guard = MultiLock::new(&session, [&a, &b]).expect("a lock").lock().await.expect("held");
    let overlapping = MultiLock::new(&other, [&b, &c]).expect("a lock");
    assert!(overlapping.try_lock().await.expect("asked").is_none());
    assert!(Mutex::new(&other, &a).expect("a lock").try_lock().await.expect("asked").is_none());
    assert!(Mutex::new(&other, &c).expect("a lock").try_lock().await.expect("asked").is_some());
    guard.release().await.expect("released");
    drop(soon("the lock", overlapping.lock()).await.expect("held"));
}

async fn leader_is_seen_and_leads_term_after_term(fleet: Fleet) {
    let path = fleet.path();
    let election = Election::new(&fleet.session(), &path).expect("an election");
    let other = Election::new(&fleet.another().await, &path).expect("an election");
    assert!(election.leader().await.expect("asked").is_none() && election.current_term().is_none());
    let leading = election.campaign().await.expect("leads");
    leading.proclaim(b"10.0.0.7:8080".to_vec()).await.expect("proclaimed");
    let leader = other.leader().await.expect("asked").expect("a leader");
    assert_eq!((leader.identifier(), leader.token()), (&b"10.0.0.7:8080"[..], leading.fencing_token()));
    let term = election.current_term().expect("it leads");
    assert_eq!((term.state(), other.current_term().is_none()), (HoldState::Held, true));
    assert!(other.try_campaign().await.expect("asked").is_none());
    leading.resign().await.expect("resigned");
    assert!(election.current_term().is_none());

    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel::<()>();
    let leads = election.run_until(async move { assert_eq!(ended.recv().await, None) }, move |term| {
        let begins = begins.clone();
        async move {
            term.proclaim(b"here".to_vec()).await.expect("proclaimed");
            begins.send(term.clone()).expect("received");
            term.revoke_requested().await;
        }
    });
    let leads = tokio::spawn(leads);
    let first = soon("a term", begun.recv()).await.expect("leads");
    let leader = election.leader().await.expect("asked").expect("it leads");
    assert!(other.revoke(&leader).await.expect("asked"));
    let last = soon("another term", begun.recv()).await.expect("leads").fencing_token();
    assert!(first.fencing_token() < last);
    assert_eq!(election.current_term().map(|term| term.fencing_token()), Some(last));
    drop(ends);
    assert_eq!(soon("the end", leads).await.expect("no panic"), Ok(()));
    assert!(soon("the lock", other.campaign()).await.expect("leads").fencing_token() > last);
}

async fn holder_is_revoked_and_broken(fleet: Fleet) {
    let path = fleet.path();
    let lock = Mutex::new(&fleet.session(), &path).expect("a lock");
    let other = Mutex::new(&fleet.another().await, &path).expect("a lock");
    let guard = lock.lock().await.expect("held");
    let waiting = acquire(&(Arc::new(other.clone()) as Lock));
    fleet.settle(&RECIPES[0], 1).await;
    let contenders = other.contenders().await.expect("listed");
    let [holder, waiter] = &contenders[..] else { panic!("{contenders:?}") };
    assert_eq!((holder.is_holder(), holder.token()), (true, guard.fencing_token()));
    assert!(!waiter.is_holder() && waiter.token() > holder.token() && waiter.path() == path);
    assert_ne!(holder.session_id(), waiter.session_id());
    let revoked = guard.revoke_requested();
    assert_eq!(other.revoke(holder).await, Ok(true));
    soon("the request", revoked).await;
    assert!(other.contenders().await.expect("listed")[0].revoke_requested());
    assert_eq!(lock.break_lock(waiter).await, Ok(true));
    assert_eq!(other.break_lock(holder).await, Ok(true));
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    // It learns of its own node when its predecessor's is gone.
    let error = soon("the end", waiting).await.expect("no panic").expect_err("evicted");
    assert!(matches!(error, Error::Evicted { .. }), "{error:?}");
    assert_eq!(other.break_lock(holder).await, Ok(false), "it is gone");
    let stranger = Mutex::new(&fleet.session(), &format!("{path}-other")).expect("a lock");
    assert!(matches!(stranger.break_lock(holder).await, Err(Error::InvalidInput { what: "contender", .. })));
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
