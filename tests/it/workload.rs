//! The tasks of random workloads: each round takes a lock in one way or another, uses it, and records what it sees.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::BoxFuture;
use testbed::history::{Acquire, Acquiring, Held, History, Process, now};
use zookeeper_groups::Slots;
use zookeeper_recipes::job::JobOutcome;
use zookeeper_recipes::{
    DistributedLock, Election, Error, HoldMonitor, HoldState, Job, LockGuard, MultiLock, Mutex, Owner,
    ReentrantMutex, Result, RwLock, Semaphore, Session, Waiting,
};

use crate::recipes::{Candidate, Members, Permits, Reader, Writer};
use crate::support::{exact_or, pass};

pub(crate) const PERMITS: u32 = 4;
const SLOTS: u32 = 2;
/// The nanoseconds between two slots of a job: several may pass while one is run.
const SLOT: u64 = 10_000_000;

/// One of the tasks of a workload: who it is, and where it writes down what it does.
pub(crate) struct Client {
    session: Session,
    process: Process,
    path: String,
    random: Rng,
    owner: Owner,
    name: String,
    /// The folder of its session, below the path.
    home: String,
    /// Whether it holds for long now and then.
    lingers: bool,
    /// Whether somebody deletes its nodes by hand.
    may_be_evicted: bool,
    /// How often it has held.
    pub(crate) held: usize,
}

impl Client {
    pub(crate) fn new(session: &Session, path: &str, history: &History, name: String, random: Rng) -> Self {
        Self {
            session: session.clone(),
            process: history.process(name.clone()),
            path: path.to_owned(),
            random,
            owner: Owner::new(),
            name,
            home: "home".to_owned(),
            lingers: false,
            may_be_evicted: false,
            held: 0,
        }
    }

    /// Gives all tasks of a session a folder of their own.
    pub(crate) fn with_home(mut self, home: String) -> Self {
        self.home = home;
        self
    }

    /// Lets it hold for long now and then, so that faults meet holds.
    pub(crate) fn lingering(mut self, lingers: bool) -> Self {
        self.lingers = lingers;
        self
    }

    /// Lets its calls end with [`Error::Evicted`], because somebody deletes its nodes by hand.
    pub(crate) fn evicted_by_hand(mut self, may_be_evicted: bool) -> Self {
        self.may_be_evicted = may_be_evicted;
        self
    }

    fn gave_up(&self, acquiring: Vec<Acquiring>, error: &Error) {
        let expected = matches!(error, Error::Unavailable { .. } | Error::Lost(_));
        let is_evicted = self.may_be_evicted && matches!(error, Error::Evicted { .. });
        assert!(expected || is_evicted, "nothing else can go wrong: {error:?}");
        acquiring.into_iter().for_each(Acquiring::fail);
    }
}

/// A lock that is asked for, and how it is written down.
struct Ask {
    acquires: Vec<Acquire>,
    lock: Box<dyn DistributedLock>,
    place: Option<BoxFuture<'static, Result<Place>>>,
}

type Guard = Box<dyn LockGuard>;
/// A place in the queue, to be awaited for the guard.
type Place = BoxFuture<'static, Result<Guard>>;
/// What a task does in one round.
pub(crate) type Round = for<'a> fn(&'a mut Client) -> BoxFuture<'a, ()>;

pub(crate) async fn lock(client: &mut Client) {
    lock_at(client, client.path.clone()).await;
}

/// Locks what all lock often, or what they lock now and then; or several times in a row what its session locks.
pub(crate) async fn lock_again(client: &mut Client) {
    let (path, times) = match client.random.u8(0..6) {
        0 | 1 => ("often", 1),
        2 | 3 => ("now-and-then", 2),
        _ => (&*client.home, client.random.usize(1..6)),
    };
    let path = format!("{}/{path}", client.path);
    for _ in 0..times {
        lock_at(client, path.clone()).await;
    }
}

async fn lock_at(client: &mut Client, path: String) {
    let lock = Mutex::new(&client.session, &path).expect("a lock");
    let mutex = lock.clone();
    let place = place(async move { mutex.enqueue().await });
    ask(client, Ask { acquires: vec![Acquire::exclusive(path)], lock: Box::new(lock), place: Some(place) }).await;
}

pub(crate) async fn campaign(client: &mut Client) {
    let election = Election::new(&client.session, &client.path).expect("a lock");
    let candidate = Candidate(election.clone());
    let place = place(async move { election.enqueue().await });
    let acquires = vec![Acquire::exclusive(client.path.clone())];
    ask(client, Ask { acquires, lock: Box::new(candidate), place: Some(place) }).await;
}

pub(crate) async fn take_permits(client: &mut Client) {
    let semaphore = Semaphore::new(&client.session, &client.path, PERMITS).expect("a lock");
    let count = client.random.u32(1..=PERMITS);
    let acquires = vec![Acquire::permits(client.path.clone(), count)];
    ask(client, Ask { acquires, lock: Box::new(Permits(semaphore, count)), place: None }).await;
}

pub(crate) async fn lock_some(client: &mut Client) {
    let members = some_members(client);
    let lock = MultiLock::new(&client.session, &members).expect("a lock");
    let acquires = members.into_iter().map(Acquire::exclusive).collect();
    ask(client, Ask { acquires, lock: Box::new(Members(lock)), place: None }).await;
}

pub(crate) async fn read_and_write_some(client: &mut Client) {
    let (mut builder, mut acquires) = (MultiLock::builder(&client.session), Vec::new());
    for member in some_members(client) {
        if client.random.bool() {
            builder = builder.read(&member);
            acquires.push(Acquire::shared(member));
        } else {
            builder = builder.write(&member);
            acquires.push(Acquire::exclusive(member));
        }
    }
    let lock = builder.build().expect("a lock");
    ask(client, Ask { acquires, lock: Box::new(Members(lock)), place: None }).await;
}

fn some_members(client: &mut Client) -> Vec<String> {
    let mut members = ["a", "b", "c", "d"].map(|name| format!("{}/{name}", client.path)).to_vec();
    client.random.shuffle(&mut members);
    members.truncate(client.random.usize(1..=4));
    members
}

pub(crate) async fn read_or_write(client: &mut Client) {
    let lock = RwLock::new(&client.session, &client.path).expect("a lock");
    let path = client.path.clone();
    let same = lock.clone();
    match client.random.u8(0..5) {
        0..=2 => {
            let place = place(async move { same.enqueue_read().await });
            ask(
                client,
                Ask { acquires: vec![Acquire::shared(path)], lock: Box::new(Reader(lock)), place: Some(place) },
            )
            .await;
        }
        3 => {
            let place = place(async move { same.enqueue_write().await });
            let acquires = vec![Acquire::exclusive(path)];
            ask(client, Ask { acquires, lock: Box::new(Writer(lock)), place: Some(place) }).await;
        }
        _ => {
            let acquiring = client.process.acquire(Acquire::exclusive(path));
            let writing = match lock.write().await {
                Ok(writing) => writing,
                Err(error) => return client.gave_up(vec![acquiring], &error),
            };
            let held = acquiring.ok(writing.fencing_token().get());
            held.downgrade();
            match writing.downgrade().await {
                Ok(reading) => use_it(client, vec![held], Box::new(reading)).await,
                Err(error) => use_it(client, vec![held], Box::new(error.guard)).await,
            }
        }
    }
}

pub(crate) async fn reenter(client: &mut Client) {
    let mutex = ReentrantMutex::new(&client.session, &client.path).expect("a lock");
    let owner = client.owner.clone();
    let acquire = Acquire::exclusive(client.path.clone()).with_owner(client.name.clone());
    let mut guards = Vec::new();
    for _ in 0..client.random.usize(1..4) {
        let acquiring = client.process.acquire(acquire.clone());
        match mutex.lock(&owner).await {
            Ok(guard) => guards.push((acquiring.ok(guard.fencing_token().get()), guard)),
            Err(error) => client.gave_up(vec![acquiring], &error),
        }
    }
    client.random.shuffle(&mut guards);
    for (held, guard) in guards {
        use_it(client, vec![held], Box::new(guard)).await;
    }
}

/// Claims a number, which is a lock of its own.
pub(crate) async fn claim(client: &mut Client) {
    let slots = Slots::new(&client.session, &client.path, SLOTS).expect("a valid path");
    let since = now();
    let claimed = match client.random.u8(0..3) {
        0 => slots.try_claim().await,
        _ => slots.claim().await.map(Some),
    };
    match claimed {
        Ok(Some(slot)) => {
            let acquire = Acquire::exclusive(format!("{}/{}", client.path, slot.number()));
            let held = client.process.acquire_since(acquire, since).ok(slot.fencing_token().get());
            use_it(client, vec![held], Box::new(slot.into_guard())).await;
        }
        Ok(None) => {}
        Err(error) => client.gave_up(Vec::new(), &error),
    }
}

/// Fires a job. Each slot is an object that is had once at most, and the job is one that is held while it runs.
pub(crate) async fn fire(client: &mut Client) {
    let job = Job::new(&client.session, &client.path).expect("a valid path");
    let job = job.with_wait_limit(Duration::from_millis(client.random.u64(0..2) * 3_000));
    let (slot, length) = (now() / SLOT, Duration::from_millis(client.random.u64(0..20)));
    let (begun, finished) = (AtomicBool::new(false), AtomicBool::new(false));
    let work = async |monitor: HoldMonitor| {
        begun.store(true, Relaxed);
        let acquired =
            |object| client.process.acquire(Acquire::exclusive(object)).ok(monitor.fencing_token().get());
        drop(acquired(format!("{}/{slot}", client.path)));
        let held = acquired(client.path.clone());
        pass(length).await;
        held.release().ok();
        finished.store(true, Relaxed);
        Ok::<_, Error>(())
    };
    match job.run(slot, work).await {
        Ok(JobOutcome::Ran(())) => {
            assert!(finished.load(Relaxed));
            client.held += 1;
        }
        Ok(outcome) => assert!(!begun.load(Relaxed), "{outcome:?}"),
        Err(Error::Unavailable { .. }) => assert!(!begun.load(Relaxed)),
        Err(error) => client.gave_up(Vec::new(), &error),
    }
}

fn place<G: LockGuard + Unpin + 'static>(
    enqueue: impl Future<Output = Result<Waiting<G>>> + Send + 'static,
) -> BoxFuture<'static, Result<Place>> {
    Box::pin(async move {
        let waiting = enqueue.await?;
        let guard: Place = Box::pin(async move { Ok(Box::new(waiting.await?) as Guard) });
        Ok(guard)
    })
}

/// Asks for a lock in one way or another, and uses it if it is had.
async fn ask(client: &mut Client, ask: Ask) {
    let acquiring: Vec<_> = ask.acquires.into_iter().map(|acquire| client.process.acquire(acquire)).collect();
    let limit = Duration::from_millis(client.random.u64(0..60));
    let had = match (client.random.u8(0..8), ask.place) {
        (0, _) => ask.lock.try_lock().await,
        (1, _) => ask.lock.try_lock_for(limit).await,
        (2, _) => match tokio::time::timeout(limit, ask.lock.lock()).await {
            Ok(had) => had.map(Some),
            Err(_) => return,
        },
        (3 | 4, Some(place)) => match place.await {
            Ok(guard) => {
                acquiring.iter().for_each(|acquiring| acquiring.enqueued(None));
                guard.await.map(Some)
            }
            Err(error) => Err(error),
        },
        _ => ask.lock.lock().await.map(Some),
    };
    match had {
        Ok(Some(guard)) => {
            let token = guard.fencing_token().get();
            let held = acquiring.into_iter().map(|acquiring| acquiring.ok(token)).collect();
            use_it(client, held, guard).await;
        }
        Ok(None) => acquiring.into_iter().for_each(Acquiring::fail),
        Err(error) => client.gave_up(acquiring, &error),
    }
}

/// Holds for a while, looking again and again, and lets go in one way or another.
async fn use_it(client: &mut Client, held: Vec<Held>, guard: Guard) {
    client.held += 1;
    let mut last = now();
    let is_long = client.lingers && client.random.u8(0..8) == 0;
    let mut looks = client.random.usize(0..if is_long { 20 } else { 4 });
    // Who is cut off waits for what becomes of it.
    while looks > 0 || guard.state() == HoldState::Suspended {
        looks = looks.saturating_sub(1);
        let before = now();
        let still = held.iter().all(|held| held.confirm(|| guard.state() == HoldState::Held));
        if still {
            last = before;
        }
        let pause = client.random.u64(0..if is_long { 150 } else { 3 });
        if tokio::time::timeout(Duration::from_millis(pause), guard.lost()).await.is_ok() {
            // On a real machine this task may be late, so others may have held since it looked last.
            let since = exact_or(now(), last);
            held.iter().for_each(|held| held.lost_since(since));
            return drop(guard);
        }
    }
    let releasing: Vec<_> = held.into_iter().map(Held::release).collect();
    if client.random.bool() {
        return drop(guard);
    }
    match guard.release().await {
        Ok(()) => releasing.into_iter().for_each(|releasing| releasing.ok()),
        Err(Error::Lost(_)) => releasing.into_iter().for_each(|releasing| releasing.lost()),
        Err(error) => panic!("nothing else can go wrong: {error:?}"),
    }
}
