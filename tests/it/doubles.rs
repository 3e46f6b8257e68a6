//! What services see through the traits: the same with real locks as with those of `testing::LocalSession`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use zookeeper_recipes::testing::LocalSession;
use zookeeper_recipes::{
    DistributedLock, Ended, Error, FencingToken, HoldMonitor, HoldState, LockProvider, Loss, Options, Owner,
    Standing, Unanswered,
};

use crate::recipes::{Candidate, Permits, Reader, Reentrant, Writer};
use crate::support::{TIMEOUT, World, remove_path, soon};

/// The servers with a session, which the tests make fail.
enum Fleet {
    Real(Box<World>),
    Local(LocalSession),
}

type Provider = Arc<dyn LockProvider>;
type Lock = Arc<dyn DistributedLock>;

impl Fleet {
    async fn real() -> Self {
        Self::Real(Box::new(World::new().await))
    }

    async fn local() -> Self {
        Self::Local(LocalSession::new())
    }

    /// How long a call waits that comes to nothing: with real servers, longer than a busy machine takes to answer.
    fn moment(&self) -> Duration {
        match self {
            Self::Real(_) => TIMEOUT / 2,
            Self::Local(_) => Duration::from_millis(10),
        }
    }

    fn path(&self) -> String {
        match self {
            Self::Real(world) => world.path.clone(),
            Self::Local(_) => "/jobs/bills".to_owned(),
        }
    }

    fn provider(&self) -> Provider {
        self.with_options(Options::new())
    }

    fn with_options(&self, options: Options) -> Provider {
        match self {
            Self::Real(world) => Arc::new(world.session.clone().with_lock_options(options)),
            Self::Local(session) => Arc::new(session.clone()),
        }
    }

    /// That of another process.
    async fn another(&self) -> Provider {
        match self {
            Self::Real(world) => Arc::new(world.other().await),
            Self::Local(session) => Arc::new(session.another()),
        }
    }

    /// Waits until the tasks that were started have come as far as they can.
    async fn settle(&self, recipe: &Recipe, waiters: usize) {
        match self {
            Self::Real(world) => {
                let dirs: Vec<_> = recipe.dirs.iter().map(|dir| format!("{}{dir}", world.path)).collect();
                let all = (recipe.nodes)(waiters);
                soon("the waiters", crate::wait::for_nodes(&world.admin, &dirs, all)).await;
            }
            Self::Local(_) => {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn disconnect(&self) {
        match self {
            Self::Real(world) => world.proxy.refuse(),
            Self::Local(session) => session.disconnect(),
        }
    }

    fn reconnect(&self) {
        match self {
            Self::Real(world) => world.proxy.heal(),
            Self::Local(session) => session.reconnect(),
        }
    }

    async fn expire(&self) {
        match self {
            Self::Real(world) => world.expire().await,
            Self::Local(session) => session.expire(),
        }
    }

    /// Deletes a node of the holder.
    async fn delete(&self, recipe: &Recipe) {
        match self {
            Self::Real(world) => {
                let dir = format!("{}{}", world.path, recipe.dirs.last().expect("a folder"));
                let node = crate::support::children(&world.admin, &dir).await.remove(0);
                remove_path(&world.admin, &format!("{dir}/{node}")).await;
            }
            Self::Local(session) => session.lose(&format!("/jobs/bills{}", recipe.local_dir), Loss::Deleted),
        }
    }

    /// Lets the limit of a hold pass.
    fn pass_max_hold(&self, recipe: &Recipe) {
        if let Self::Local(session) = self {
            session.lose(&format!("/jobs/bills{}", recipe.local_dir), Loss::MaxHold);
        }
    }

    async fn close(&self) {
        match self {
            Self::Real(world) => soon("the end", world.session.close()).await.expect("closed"),
            Self::Local(session) => session.close(),
        }
    }
}

/// A kind of lock.
struct Recipe {
    lock: fn(&dyn LockProvider, &str) -> Lock,
    /// Another one that the first excludes.
    other: fn(&dyn LockProvider, &str) -> Lock,
    /// The folders of its nodes, below the lock path.
    dirs: &'static [&'static str],
    /// Where the local one has them.
    local_dir: &'static str,
    /// The number of nodes of a holder and this many waiters.
    nodes: fn(usize) -> usize,
}

impl Recipe {
    const fn of_one_node(lock: fn(&dyn LockProvider, &str) -> Lock) -> Self {
        Self { lock, other: lock, dirs: &[""], local_dir: "", nodes: |waiters| 1 + waiters }
    }
}

fn write(locks: &dyn LockProvider, path: &str) -> Lock {
    Arc::new(Writer(locks.rw_lock_at(path).expect("a lock")))
}

const RECIPES: [Recipe; 7] = [
    Recipe::of_one_node(|locks, path| locks.lock_at(path).expect("a lock")),
    Recipe::of_one_node(|locks, path| Arc::new(Reentrant(locks.reentrant_lock_at(path).expect("a lock")))),
    Recipe::of_one_node(write),
    Recipe {
        lock: |locks, path| Arc::new(Reader(locks.rw_lock_at(path).expect("a lock"))),
        ..Recipe::of_one_node(write)
    },
    Recipe {
        dirs: &["/locks", "/leases"],
        // The first waiter already has its leases.
        nodes: |waiters| 3 + waiters + 3 * waiters.min(1),
        ..Recipe::of_one_node(|locks, path| Arc::new(Permits(locks.semaphore_at(path, 4).expect("a lock"), 3)))
    },
    Recipe {
        dirs: &["/a", "/b"],
        local_dir: "/a",
        nodes: |waiters| 2 + 2 * waiters,
        ..Recipe::of_one_node(|locks, path| {
            let paths = ["a", "b"].map(|name| format!("{path}/{name}"));
            locks.multi_lock_of(&[&paths[0], &paths[1]]).expect("a lock")
        })
    },
    Recipe::of_one_node(|locks, path| Arc::new(Candidate(locks.election_at(path).expect("a lock")))),
];

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

async fn state(monitor: &HoldMonitor, wanted: HoldState) {
    soon(&wanted.to_string(), async {
        while monitor.state() != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn grants_in_order(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.provider(), &path).lock().await.expect("held");
    let other = (recipe.other)(&fleet.another().await, &path);
    assert!(other.try_lock().await.expect("asked").is_none());
    assert!(other.try_lock_for(Duration::ZERO).await.expect("asked").is_none());
    assert!(other.try_lock_for(fleet.moment()).await.expect("asked").is_none());
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
    let lock = (recipe.lock)(&fleet.provider(), &fleet.path());
    let guard = lock.lock().await.expect("held");
    let (monitor, ended) = (guard.monitor(), guard.monitor().ended());
    assert_eq!((monitor.state(), monitor.fencing_token()), (HoldState::Held, guard.fencing_token()));
    assert_eq!((monitor.path(), guard.state()), (guard.path(), HoldState::Held));
    assert!(monitor.valid_for() > Duration::ZERO && guard.valid_for() > Duration::ZERO);
    assert!(guard.path().starts_with(&fleet.path()), "{}", guard.path());
    assert_eq!(monitor.run_until_lost(async { 7 }).await, Ok(7));
    guard.release().await.expect("released");
    assert_eq!(soon("the end", ended).await, Ended::Released);
    assert_eq!((monitor.state(), monitor.valid_for()), (HoldState::Released, Duration::ZERO));
    assert_eq!(monitor.run_until_lost(async { 7 }).await, Err(Ended::Released));

    let monitor = lock.lock().await.expect("held").monitor();
    assert_eq!(soon("the end", monitor.ended()).await, Ended::Released, "by its drop");
    drop(soon("a lock", lock.lock()).await.expect("held"));
}

async fn forgets_waiters_that_give_up(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.provider(), &path).lock().await.expect("held");
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
    let lock = (recipe.lock)(&fleet.provider(), &fleet.path());
    let guard = lock.lock().await.expect("held");
    let monitor = guard.monitor();
    fleet.disconnect();
    state(&monitor, HoldState::Suspended).await;
    assert_eq!(guard.state(), HoldState::Suspended);
    let at_once = lock.try_lock_for(Duration::ZERO).now_or_never().expect("no wait for a connection");
    assert!(matches!(at_once, Err(Error::Unavailable { why: Unanswered::Servers, .. })));
    let error = lock.try_lock_for(fleet.moment()).await.expect_err("nobody was asked");
    assert!(matches!(error, Error::Unavailable { why: Unanswered::Servers, .. }), "{error:?}");
    assert!(error.is_transient());
    fleet.reconnect();
    state(&monitor, HoldState::Held).await;
    soon("the release", guard.release()).await.expect("released");
}

async fn is_lost_when_the_session_expires(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.provider(), &path).lock().await.expect("held");
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
    assert_eq!(guard.monitor().state(), HoldState::Lost(loss));
    assert_eq!(guard.release().await, Err(Error::Lost(loss)));
    // The session is renewed.
    drop(soon("a lock", (recipe.lock)(&fleet.provider(), &path).lock()).await.expect("held"));
}

async fn is_lost_when_the_node_is_deleted(fleet: Fleet, recipe: &Recipe) {
    let lock = (recipe.lock)(&fleet.provider(), &fleet.path());
    let guard = lock.lock().await.expect("held");
    let ended = guard.monitor().ended();
    fleet.delete(recipe).await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Deleted);
    assert_eq!(soon("the end", ended).await, Ended::Lost(Loss::Deleted));
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Deleted)));
    drop(soon("a lock", lock.lock()).await.expect("held"));
}

async fn is_lost_when_the_session_is_closed(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let lock = (recipe.lock)(&fleet.provider(), &path);
    let guard = lock.lock().await.expect("held");
    fleet.close().await;
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Closed);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::Closed)));
    assert_eq!(lock.lock().await.err(), Some(Error::Closed));
    assert_eq!(lock.try_lock().await.err(), Some(Error::Closed));
    assert_eq!(lock.try_lock_for(fleet.moment()).await.err(), Some(Error::Closed));
    drop(soon("a lock", (recipe.other)(&fleet.another().await, &path).lock()).await.expect("held"));
}

async fn is_lost_at_its_time_limit(fleet: Fleet, recipe: &Recipe) {
    let locks = fleet.with_options(Options::new().with_max_hold(TIMEOUT / 10));
    let guard = (recipe.lock)(&locks, &fleet.path()).lock().await.expect("held");
    let lost = guard.lost();
    fleet.pass_max_hold(recipe);
    assert_eq!(soon("the loss", lost).await, Loss::MaxHold);
    assert_eq!(guard.release().await, Err(Error::Lost(Loss::MaxHold)));
}

async fn queues_again_when_the_session_expires(fleet: Fleet, recipe: &Recipe) {
    let path = fleet.path();
    let guard = (recipe.lock)(&fleet.another().await, &path).lock().await.expect("held");
    let waiting = acquire(&(recipe.other)(&fleet.provider(), &path));
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
    bad_input_is_refused,
}

async fn readers_share_and_writers_go_on_as_readers(fleet: Fleet) {
    let path = fleet.path();
    let lock = fleet.provider().rw_lock_at(&path).expect("a lock");
    let other = fleet.another().await.rw_lock_at(&path).expect("a lock");
    let reading = lock.read().await.expect("reads");
    let beside = other.try_read().await.expect("asked").expect("readers share");
    assert!(other.try_write().await.expect("asked").is_none());
    reading.release().await.expect("released");
    beside.release().await.expect("released");
    let writing = soon("the lock", lock.write()).await.expect("writes");
    let token = writing.fencing_token();
    assert!(other.try_read_for(fleet.moment()).await.expect("asked").is_none());
    let reading = writing.downgrade().await.map_err(|(_, error)| error).expect("reads");
    assert_eq!(reading.fencing_token(), token);
    let beside = other.try_read().await.expect("asked").expect("readers share");
    assert!(lock.try_write_for(fleet.moment()).await.expect("asked").is_none());
    beside.release().await.expect("released");

    drop(reading);
    let writing = soon("the lock", lock.write()).await.expect("writes");
    fleet.close().await;
    let (writing, error) = writing.downgrade().await.map(|_| ()).expect_err("lost");
    assert_eq!((writing.state(), error), (HoldState::Lost(Loss::Closed), Error::Lost(Loss::Closed)));
}

async fn permits_are_all_or_none(fleet: Fleet) {
    let path = fleet.path();
    let permits = fleet.provider().semaphore_at(&path, 4).expect("a semaphore");
    let other = fleet.another().await.semaphore_at(&path, 4).expect("a semaphore");
    let two = permits.acquire(2).await.expect("two");
    let one = other.try_acquire(1).await.expect("asked").expect("one");
    assert!(other.try_acquire(2).await.expect("asked").is_none());
    assert!(other.try_acquire_for(2, fleet.moment()).await.expect("asked").is_none());
    two.release().await.expect("released");
    drop(soon("three", other.acquire(3)).await.expect("three"));
    one.release().await.expect("released");
    for refused in [permits.acquire(5).await.err(), permits.acquire(0).await.err()] {
        assert!(matches!(refused, Some(Error::InvalidInput { what: "permits", .. })), "{refused:?}");
    }
}

async fn owner_locks_again(fleet: Fleet) {
    let path = fleet.path();
    let locks = fleet.provider();
    let [lock, same] = [(); 2].map(|()| locks.reentrant_lock_at(&path).expect("a lock"));
    let [owner, other] = [Owner::new(), Owner::new()];
    let first = lock.lock(&owner).await.expect("held");
    let again = same.lock(&owner).await.expect("held");
    assert_eq!(first.fencing_token(), again.fencing_token());
    assert!(same.try_lock(&owner).await.expect("asked").is_some());
    assert!(lock.try_lock(&other).await.expect("asked").is_none());
    first.release().await.expect("released");
    assert!(lock.try_lock_for(&other, fleet.moment()).await.expect("asked").is_none(), "it is held once more");
    again.release().await.expect("released");
    drop(soon("the lock", lock.lock(&other)).await.expect("held"));
}

async fn several_locks_are_one(fleet: Fleet) {
    let [a, b, c] = ["a", "b", "c"].map(|name| format!("{}/{name}", fleet.path()));
    let (locks, others) = (fleet.provider(), fleet.another().await);
    let guard = locks.multi_lock_of(&[&a, &b]).expect("a lock").lock().await.expect("held");
    for overlapping in [others.multi_lock_of(&[&b, &c]), others.lock_at(&a)] {
        assert!(overlapping.expect("a lock").try_lock().await.expect("asked").is_none());
    }
    assert!(others.lock_at(&c).expect("a lock").try_lock().await.expect("asked").is_some());
    guard.release().await.expect("released");
    drop(soon("the lock", others.multi_lock_of(&[&c, &b]).expect("a lock").lock()).await.expect("held"));
}

async fn leader_is_seen_and_leads_term_after_term(fleet: Fleet) {
    let path = fleet.path();
    let election = fleet.provider().election_at(&path).expect("an election");
    let other = fleet.another().await.election_at(&path).expect("an election");
    assert!(election.leader().await.expect("asked").is_none() && election.current_term().is_none());
    let leading = election.campaign().await.expect("leads");
    leading.proclaim(b"10.0.0.7:8080".to_vec()).await.expect("proclaimed");
    let leader = other.leader().await.expect("asked").expect("a leader");
    assert_eq!((leader.identifier(), leader.token()), (&b"10.0.0.7:8080"[..], leading.fencing_token()));
    let term = election.current_term().expect("it leads");
    assert_eq!((term.state(), other.current_term().is_none()), (HoldState::Held, true));
    assert!(other.try_campaign().await.expect("asked").is_none());
    leading.release().await.expect("resigned");
    assert!(election.current_term().is_none());

    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let candidate = election.run(move |term| {
        let begins = begins.clone();
        async move {
            term.proclaim(b"here".to_vec()).await.expect("proclaimed");
            begins.send(term.clone()).expect("received");
            term.revoke_requested().await;
        }
    });
    let first = soon("a term", begun.recv()).await.expect("leads");
    assert!(candidate.is_leader());
    first.resign();
    let last = soon("another term", begun.recv()).await.expect("leads").fencing_token();
    assert!(first.fencing_token() < last);
    assert_eq!(candidate.standing(), Standing::Leading { token: last });
    assert_eq!(soon("the end", candidate.stop()).await, Ok(()));
    assert!(soon("the lock", other.campaign()).await.expect("leads").fencing_token() > last);
}

async fn holder_is_revoked_and_broken(fleet: Fleet) {
    let path = fleet.path();
    let lock = fleet.provider().lock_at(&path).expect("a lock");
    let other = fleet.another().await.lock_at(&path).expect("a lock");
    let guard = lock.lock().await.expect("held");
    let waiting = acquire(&other);
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
    let stranger = fleet.provider().lock_at(&format!("{path}-other")).expect("a lock");
    assert!(matches!(stranger.break_lock(holder).await, Err(Error::InvalidInput { what: "contender", .. })));
}

async fn bad_input_is_refused(fleet: Fleet) {
    let locks = fleet.provider();
    let path = fleet.path();
    let refused = [
        locks.lock_at("jobs").err(),
        locks.rw_lock_at("/jobs/").err(),
        locks.reentrant_lock_at("").err(),
        locks.election_at("/jobs//bills").err(),
        locks.semaphore_at(&path, 0).err(),
        locks.semaphore_at("/", 1).err(),
        locks.multi_lock_of(&[]).err(),
        locks.lock_at("/zookeeper/lock").err(),
        locks.multi_lock_of(&[&path, &path]).err(),
    ];
    for (call, refused) in refused.into_iter().enumerate() {
        assert!(matches!(refused, Some(Error::InvalidInput { .. })), "call {call}: {refused:?}");
    }
}

/// A test makes the service lose its lock at any moment, from another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_lock_is_lost_while_others_look_at_it() {
    for _ in 0..2_000 {
        let session = LocalSession::new();
        let guard = session.lock_at("/jobs/bills").expect("a lock").lock().await.expect("held");
        let (begins, begun) = tokio::sync::oneshot::channel();
        let work = tokio::spawn(async move {
            begins.send(()).expect("waited for");
            let work = async {
                loop {
                    tokio::task::yield_now().await;
                }
            };
            guard.run_until_lost(work).await
        });
        begun.await.expect("begun");
        session.lose("/jobs/bills", Loss::Expired);
        let end: Result<(), Loss> = soon("the loss", work).await.expect("no panic");
        assert_eq!(end, Err(Loss::Expired));
    }
}
